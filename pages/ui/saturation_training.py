"""The training race on the saturation page: the same small layer with each scaling."""

import numpy as np
import streamlit as st

from attnviz.figures.saturation import training
from attnviz.saturation import SCALINGS
from attnviz.saturation.training import CLASSES, PAIRS, Race
from pages.ui import saturation_picture
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.training import STEPS, Training
from pages.ui.translate import table

# A loss worse than this many times guessing has run away, and the axis no longer follows it.
RUN_AWAY = 3.0
# The last steps that a result is an average of.
LAST = 20


def section(panel: Panel) -> None:
    """Draw the controls of the training and its curves."""
    view = panel.settled.view
    settings = {"d_k": view.d_k, "power": view.power, "rate": view.rate, "seed": view.seed}
    race = Training(
        panel, "training", tuple(settings.values()), lambda: Race(**settings), lambda race: _shown(panel, race)
    )
    rate, start, stop, _ = st.columns([1.2, 1, 1, 3], vertical_alignment="bottom")
    with rate:
        panel.control("rate")
    race.controls(start, stop)
    st.caption(
        panel.title("training.lead", pairs=PAIRS, classes=CLASSES, d_k=view.d_k, chance=f"{np.log(CLASSES):.2f}")
    )
    st.caption(panel.title("training.unused"))
    race.follow()


def _shown(panel: Panel, race: Race) -> None:
    _curves(panel, race)
    st.markdown(result(panel, race))
    st.markdown(heads(panel, race))
    st.caption(panel.title("training.heads_note"))


def _curves(panel: Panel, race: Race) -> None:
    names = saturation_picture.names(panel.settled.view, panel.language)
    for column, field in zip(st.columns(2, gap="medium"), ("loss", "gradient"), strict=True):
        shown = {key: np.array([getattr(step, field) for step in race.shown[key]]) for key in SCALINGS}
        title = panel.title(f"training.{field}")
        figure = training(
            shown, names=names, x_title=panel.title("training.step"), log=field == "gradient", steps=STEPS,
            most=RUN_AWAY * float(np.log(CLASSES)) if field == "loss" else None, colours=saturation_picture.COLOURS,
        )  # fmt: skip
        last = ", ".join(f"{names[key]} {values[-1]:.3g}" for key, values in shown.items())
        with column:
            plot(
                figure, key=f"saturation.{field}", label=title, caption=title, words=table(panel.language, "plot"),
                alt=panel.title("training.alt", title=title, step=race.steps, numbers=last),
            )  # fmt: skip


def result(panel: Panel, race: Race) -> str:
    """Say what the run shows so far, and nothing else: each scaling's last losses, least first."""
    names = saturation_picture.names(panel.settled.view, panel.language)
    last = {key: race.shown[key][-LAST:] for key in SCALINGS}
    losses = {key: float(np.mean([step.loss for step in steps])) for key, steps in last.items()}
    right = {key: float(np.mean([step.right for step in steps])) for key, steps in last.items()}
    ordered = sorted(losses, key=lambda key: (np.isnan(losses[key]), losses[key]))
    lines = []
    for key in ordered:
        lost = [step for step, one in enumerate(race.shown[key], 1) if not np.isfinite(one.loss)]
        if lost:
            lines.append(panel.title("training.lost", name=names[key], step=lost[0]))
            continue
        fields = {"loss": f"{losses[key]:.3f}", "right": f"{100 * right[key]:.0f} %"}
        lines.append(panel.title("training.line", name=names[key], **fields))
    return panel.title("training.result", step=race.steps, last=min(LAST, race.steps)) + "\n" + "\n".join(lines)


def heads(panel: Panel, race: Race) -> str:
    """Say as a table what training made of queries and keys: each number at the start and now."""
    names = saturation_picture.names(panel.settled.view, panel.language)
    fields = ("spread", "top", "own", "cosine")
    head = [panel.title("training.heads.scaling"), *(panel.title(f"training.heads.{field}") for field in fields)]
    lines = ["| " + " | ".join(head) + " |", "| :--- |" + " ---: |" * len(fields)]
    for key, now in race.heads().items():
        pairs = zip(race.first[key], now, strict=True)
        cells = (f"{_short(begun)} → **{_short(at_end)}**" for begun, at_end in pairs)
        lines.append(f"| {names[key]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _short(number: float) -> str:
    # A plain number's minus is no hyphen, at which a cell would break.
    return f"{number:.2f}".replace("-", "−") if np.isfinite(number) else "–"
