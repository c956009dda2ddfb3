"""The saturation view as figures with their words: what the page shows and what the live route sends."""

from collections.abc import Mapping

import numpy as np

from attnviz import saturation_view as views
from attnviz import units
from attnviz.figures import saturation as figures
from attnviz.figures.strips import strips
from attnviz.saturation import SCALINGS, theory
from attnviz.saturation_view import View, settle
from pages.ui import asked
from pages.ui.heatmap.frame import pack
from pages.ui.plot.spec import Drawn, specs, with_figures
from pages.ui.translate import counted, say, table

FIGURE = "saturation"
STRIPS = "strips"
# The theme's first colours, in the order of the scalings.
COLOURS = tuple(f"theme-{index}" for index in range(len(SCALINGS)))
CURVES: Mapping[str, tuple[str, ...]] = {
    "collapse": ("spread", "top", "effective"),
    "learning": ("gradient", "jacobian", "entropy"),
}
_LOGARITHMIC = ("spread", "effective", "gradient")
# A gradient that has shrunk by a million is gone; the axis ends there.
_LEAST = {"gradient": 1e-5, "effective": 0.9}


def parts(view: View) -> tuple[str, ...]:
    """Name the figures of a view in the order of the page, the rows of weights first."""
    below = {**CURVES, "scores": ("raw", "scaled"), "limits": ("depth", "largest")}
    return (STRIPS, *below.get(view.show, ()))


def draw(view: View, language: str) -> dict[str, Drawn]:
    """Compute the view and give its figures by part."""
    drawn = {STRIPS: _strips(view, language)}
    if view.show == "scores":
        return drawn | _scores(view, language)
    if view.show == "limits":
        return drawn | _limits(view, language)
    return drawn | {field: _curve(view, field, language) for field in CURVES.get(view.show, ())}


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of a view's figures.

    Raises:
        Refusal: For settings that cannot be read.
    """
    view, language, given = asked.read(params, settle)
    drawn = draw(view, language)
    return with_figures(
        pack(FIGURE, given, {}),
        specs(drawn),
    )


def names(view: View, language: str) -> dict[str, str]:
    """Give what each scaling is called, the custom one with its power."""
    called = {key: scaling.label.say(language) for key, scaling in SCALINGS.items()}
    return called | {"custom": f"d_k^−{view.power:g}"}


def _strips(view: View, language: str) -> Drawn:
    rows, called = views.rows(view), names(view, language)
    words = table(language, "saturation.strips")
    notes = {
        key: words["note"].format(top=_share(row.top), effective=f"{row.effective:.1f}")
        if np.isfinite(row.top)
        else words["lost"].format(dtype=view.dtype)
        for key, row in rows.items()
    }
    alt = "; ".join(f"{called[key]}: {note}" for key, note in notes.items())
    figure = strips({key: row.weights for key, row in rows.items()}, called, notes)
    return Drawn(
        figure, words["caption"].format(d_k=view.d_k, keys=counted(language, "key", view.keys), dtype=view.dtype), alt
    )


def _share(top: float) -> str:
    """Write a weight so that one of many keys does not read 0.00."""
    return f"{top:.2f}" if top >= 0.095 else f"{top:.1g}"


def _symbols(view: View) -> dict[str, list[str]]:
    """Mark the dots at which rows were lost to overflow or weights to underflow."""
    values = views.curves(view).values
    return {
        key: [
            "x" if overflowed > 0 else "circle-open" if zeros > 0 else "circle"
            for overflowed, zeros in zip(values[key]["overflowed"], values[key]["zeros"], strict=True)
        ]
        for key in SCALINGS
    }


def _curve(view: View, field: str, language: str) -> Drawn:
    swept, called = views.curves(view), names(view, language)
    dots = {key: swept.values[key][field] for key in SCALINGS}
    second = {key: swept.values[key]["gradient_mean"] for key in SCALINGS} if field == "gradient" else None
    figure = figures.curve(
        swept.d_k,
        dots,
        {key: views.expected(view, key, field) for key in SCALINGS},
        names=called,
        x_title="d_k",
        now=view.d_k,
        symbols=_symbols(view),
        second=second,
        log=field in _LOGARITHMIC,
        limits=_limits_of(view, field, [*dots.values(), *(second or {}).values()]),
        colours=COLOURS,
    )
    title = say(language, f"saturation.curve.{field}")
    return Drawn(figure, title, _alternative(view, title, dots, language))


def _limits_of(view: View, field: str, columns: list[np.ndarray]) -> tuple[float, float] | None:
    """Give the range of an axis that has ends of its own, or that would lose itself in nothing."""
    if field == "top":
        return 0.0, 1.03
    if field == "entropy":
        return 0.0, max(0.1, float(np.log(view.keys)) * 1.06)
    if field == "effective":
        return 0.9, view.keys * 1.2
    if field == "jacobian":
        return 0.0, 0.55
    finite = np.concatenate(columns)
    finite = finite[np.isfinite(finite) & (finite > 0)]
    if field == "gradient" and finite.size:
        high = float(finite.max()) * 1.6
        return max(float(finite.min()) / 1.6, high * 1e-5), high
    return None


def _alternative(view: View, title: str, dots: Mapping[str, np.ndarray], language: str) -> str:
    """Say a curve in numbers, at the swept d_k nearest to the one that is looked at."""
    swept = views.curves(view).d_k
    place = int(np.abs(np.log(swept) - np.log(view.d_k)).argmin())
    numbers = ", ".join(
        f"{name} {units.number(float(dots[key][place]), 4)}" for key, name in names(view, language).items()
    )
    return say(language, "saturation.curve.alt", title=title, d_k=int(swept[place]), numbers=numbers)


def _scores(view: View, language: str) -> dict[str, Drawn]:
    """Give the distributions of raw and of scaled scores over the normal ones that theory expects."""
    found, called = views.scores(view), names(view, language)
    words = table(language, "saturation.scores")
    colours = {key: COLOURS[index] for index, key in enumerate(SCALINGS)} | {"raw": COLOURS[1]}
    called["raw"] = words["raw_name"]
    shown = {"raw": ("raw",), "scaled": tuple(key for key in SCALINGS if key != "none")}
    drawn = {}
    for part, keys in shown.items():
        spreads = {key: _spread(found[key]) for key in keys}
        normals = {key: _normals(view, key) for key in keys}
        own = [parts[1] for parts in normals.values() if parts is not None and len(parts) > 1 and parts[1][2] > 0]
        widest = max(4.2 * max(spreads.values()), *(abs(mean) + 4.2 * spread for _, mean, spread in own), 0.0)
        figure = figures.densities(
            {key: found[key] for key in keys},
            normals,
            names=called,
            x_title=words["axis"],
            colours=colours,
            reach=widest or 1.0,
            highest=_highest(spreads),
            rarest=min((_peak(part) for part in own), default=0.0) / 30,
        )
        numbers = ", ".join(f"{called[key]} {units.number(spread, 4)}" for key, spread in spreads.items())
        caption = words[part].format(d_k=view.d_k) + (words["log"] if own else "")
        drawn[part] = Drawn(figure, caption, say(language, "saturation.scores.alt", title=caption, numbers=numbers))
    return drawn


def _peak(part: tuple[float, float, float]) -> float:
    """Give how high a normal part stands: a query's own key is one among many, and its part a low one."""
    share, _, spread = part
    return share / (spread * (2 * np.pi) ** 0.5)


def _highest(spreads: Mapping[str, float]) -> float | None:
    """Give where the axis of densities ends so that a narrow peak, such as that of 1/d_k, does not flatten 1/√d_k."""
    most = 4 / spreads["sqrt"] if spreads.get("sqrt") else np.inf
    narrow = [1 / spread for spread in spreads.values() if spread > 0]
    return 1.1 * most * (2 * np.pi) ** -0.5 if max(narrow, default=0.0) > most else None


def _spread(values: np.ndarray) -> float:
    """Give the standard deviation of what is finite."""
    finite = values[np.isfinite(values)]
    return float(finite.std()) if finite.size else 0.0


def _normals(view: View, key: str) -> tuple[tuple[float, float, float], ...] | None:
    """Give the normal parts that theory expects: strangers around 0, a query's own key around its mean."""
    scaling = "none" if key == "raw" else key
    spread = views.spread_theory(view, scaling, np.array([view.d_k]))
    if spread is None:
        return None
    if view.correlation == 0.0:
        return ((1.0, 0.0, float(spread[0])),)
    factor = SCALINGS[scaling].factor(view.d_k, view.keys, view.power) / (1.0 if key == "raw" else view.temperature)
    unit = factor * (view.variance_q * view.variance_k) ** 0.5
    strangers = unit * view.d_k**0.5
    own = 1.0 / view.keys
    around = strangers * (1 + view.correlation**2) ** 0.5
    return ((1.0 - own, 0.0, strangers), (own, unit * view.correlation * view.d_k, around))


def _limits(view: View, language: str) -> dict[str, Drawn]:
    """Give how small weights and how large scores get, beside the ends of each dtype."""
    swept, called = views.curves(view), names(view, language)
    words = table(language, "saturation.limits")
    dtypes = ("float16", "bfloat16", "float32")
    levels = {
        "depth": {name: theory.underflow(name) for name in dtypes},
        "largest": {name: theory.overflow(name) for name in dtypes},
    }
    drawn = {}
    for part, field in (("depth", "depth_most"), ("largest", "largest")):
        dots = {key: swept.values[key][field] for key in SCALINGS}
        second = {key: swept.values[key]["depth"] for key in SCALINGS} if part == "depth" else None
        finite = np.concatenate([column[np.isfinite(column)] for column in dots.values()])
        # The nearest end of a range is in sight however far the scores are from it.
        high = max(1.6 * float(finite.max(initial=1.0)), 1.6 * min(levels[part].values()))
        high = max(high, 150.0) if part == "depth" else high
        figure = figures.curve(
            swept.d_k, dots, {}, names=called, x_title="d_k", now=view.d_k, symbols=_symbols(view), second=second,
            log=True, limits=(0.05, high), levels=levels[part], colours=COLOURS,
        )  # fmt: skip
        figure["layout"]["height"] = 340
        caption = f"{words[part]} · {words[f'{part}_line']}"
        drawn[part] = Drawn(figure, caption, _alternative(view, words[part], dots, language))
    return drawn
