"""The curves of the page on what attention replaced, with their words; also what the live route sends."""

from collections.abc import Mapping

import numpy as np

from attnviz import units
from attnviz.figures.curves import Curve, curves, powers_of_two
from attnviz.recurrence import MODELS, Timing, chain, gradients, predicted_chain
from attnviz.recurrence.measure import LENGTHS
from attnviz.recurrence.recall import CLASSES, KINDS, Recall
from attnviz.why_view import View, settle
from pages.ui import asked
from pages.ui.heatmap.frame import pack
from pages.ui.plot.spec import Drawn, specs, with_figures
from pages.ui.translate import table

FIGURE = "why_attention"
COLOURS = tuple(f"theme-{index}" for index in range(5))
_COLOUR = {"rnn": 1, "lstm": 3, "conv": 2, "attention": 0}
# What is smaller than this share of a model's largest gradient is below the figure.
LEAST = 1e-9
# Above 1, the largest of each, there is room for what is written at a mark.
_MOST = 20.0
_CHAINS = (4, 8, 16, 32, 64, 128, 256)


def names(language: str) -> dict[str, str]:
    """Give what each model is called."""
    return {key: model.label.say(language) for key, model in MODELS.items()}


def draw(view: View, language: str) -> dict[str, Drawn]:
    """Compute the view and give its live figures by part."""
    return {"gradient": _gradient(view, language), "chain": _chain(view, language)}


def shares(view: View) -> dict[str, np.ndarray]:
    """Give each model's gradient at each distance over its largest; NaN where none arrives."""
    found = {}
    for key, norms in gradients(view.sizes, view.length).items():
        share = norms / (norms.max() or 1.0)
        found[key] = np.where(share > 0, share, np.nan)
    return found


def _gradient(view: View, language: str) -> Drawn:
    words, called = table(language, "why_attention.gradient"), names(language)
    found, distance = shares(view), np.arange(view.length)
    # All distances up to 64, then so many that dots do not run into each other.
    keep = np.unique(np.linspace(0, view.length - 1, min(view.length, 65)).round().astype(int))
    shown = [Curve(called[key], distance[keep], share[keep], _COLOUR[key]) for key, share in found.items()]
    rate = view.gain / 3**0.5
    line = np.where(rate**distance > 0, rate ** distance.astype(float), np.nan)
    shown.append(Curve(called["rnn"], distance[keep], (line / line[0] * found["rnn"][0])[keep], _COLOUR["rnn"], False))
    reach = view.sizes.reach
    step = max(1, 2 ** int(np.log2(max(view.length / 8, 1))))
    figure = curves(
        shown, x_title=words["distance"], log=True, x_log=False, limits=(LEAST, _MOST),
        ticks={float(at): str(at) for at in range(0, view.length, step)},
        marks={float(reach): words["reach"]} if reach < view.length else {},
        y_text={10.0**power: f"10{_raised(power)}" if power < -1 else f"{10.0**power:g}" for power in range(-9, 1, 3)},
        colours=COLOURS,
    )  # fmt: skip
    last = [_said(called[key], share[-1], words) for key, share in found.items()]
    fields = {"distance": view.length - 1, "numbers": words["comma"].join(last)}
    off = words["grows"].format(rate=units.ratio(rate)) if np.nanmax(line) > _MOST else ""
    return Drawn(figure, words["caption"].format(**fields) + off, words["alt"].format(**fields))


def _said(name: str, share: float, words: Mapping[str, str]) -> str:
    """Say a model's share with two digits, also where the second is 0."""
    if np.isnan(share):
        return words["none"].format(name=name)
    mantissa, power = f"{share:.1e}".split("e")
    small = f"{mantissa}e{int(power)}".replace("-", "−")
    return f"{name} {small if share < 1e-4 else units.number(float(share), 2)}"


def _listed(language: str, each: Mapping[str, str]) -> str:
    return table(language, "why_attention.gradient")["comma"].join(f"{name} {number}" for name, number in each.items())


def _raised(power: int) -> str:
    return "".join(dict(zip("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹", strict=True))[sign] for sign in str(power))


def _chain(view: View, language: str) -> Drawn:
    words, called = table(language, "why_attention.chain"), names(language)
    lengths = sorted({*_CHAINS, view.length})
    found = [chain(view.sizes, length) for length in lengths]
    least = [predicted_chain(view.sizes, length) for length in lengths]
    figure = curves(
        [
            Curve(called[key], lengths, [each[key] for each in column], _COLOUR[key], column is found)
            for column in (found, least) for key in MODELS
        ],
        x_title=words["length"], ticks=powers_of_two(4, 256, 2), log=True, marks={float(view.length): ""},
        colours=COLOURS,
    )  # fmt: skip
    here = found[lengths.index(view.length)]
    numbers = _listed(language, {called[key]: units.count(here[key]) for key in MODELS})
    fields = {"length": view.length, "numbers": numbers}
    return Drawn(figure, words["caption"].format(**fields), words["alt"].format(**fields))


def timed(measured: Timing, language: str) -> Drawn:
    """Give measured times against length."""
    words, called = table(language, "why_attention.time"), names(language)
    every = [seconds for column in measured.seconds.values() for seconds in column]
    first, last = (int(np.floor(np.log10(value))) for value in (min(every), max(every)))
    figure = curves(
        [Curve(called[key], LENGTHS, measured.seconds[key], _COLOUR[key]) for key in MODELS],
        x_title=words["length"], ticks=powers_of_two(LENGTHS[0], LENGTHS[-1], 2), log=True,
        y_text={10.0**power: units.seconds(10.0**power) for power in range(first, last + 2)}, colours=COLOURS,
    )  # fmt: skip
    numbers = _listed(language, {called[key]: units.seconds(measured.seconds[key][-1]) for key in MODELS})
    fields = {"rounds": measured.rounds, "length": units.count(LENGTHS[-1]), "numbers": numbers}
    return Drawn(figure, words["caption"].format(**fields), words["alt"].format(**fields))


def recalled(race: Recall, last: int, language: str) -> Drawn:
    """Give the share of first tokens said right, each point a mean of the last steps before it."""
    words, called = table(language, "why_attention.recall"), names(language)
    ends = list(range(min(last, race.steps), race.steps + 1, last)) or [race.steps]
    right = {
        kind: [float(np.mean([step.right for step in race.shown[kind][max(0, end - last) : end]])) for end in ends]
        for kind in KINDS
    }
    figure = curves(
        [Curve(called[kind], ends, right[kind], _COLOUR[kind]) for kind in KINDS], x_title=words["step"], x_log=False,
        ticks={float(at): str(at) for at in range(0, 401, 100)}, limits=(0.0, 1.05),
        levels={words["chance"]: 1 / CLASSES}, colours=COLOURS,
    )  # fmt: skip
    numbers = _listed(language, {called[kind]: units.percent(right[kind][-1]) for kind in KINDS})
    fields = {"steps": race.steps, "length": race.length, "numbers": numbers, "last": last}
    return Drawn(figure, words["caption"].format(**fields), words["alt"].format(**fields))


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of the live figures.

    Raises:
        Refusal: For settings that cannot be read.
    """
    view, language, given = asked.read(params, settle)
    figures = specs(draw(view, language))
    return with_figures(pack(FIGURE, given, {}), figures)
