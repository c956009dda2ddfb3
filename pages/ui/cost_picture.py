"""The cost page's roofline with its words: what the page shows and what the live route sends."""

from collections.abc import Mapping, Sequence

from attnviz import units
from attnviz.benchmark import Measurement, Probe, Request, Result, desk, predict
from attnviz.benchmark.pairs import PAIRS
from attnviz.cost_view import SCENARIOS, View, priced, settle
from attnviz.figures.roofline import Roof, roofline
from attnviz.hardware import HARDWARE
from pages.ui import asked
from pages.ui.heatmap.frame import pack
from pages.ui.plot.spec import Drawn, specs, with_figures
from pages.ui.translate import say

FIGURE, ROOFS = "cost", "roofs"


def names(language: str) -> dict[str, str]:
    """Give the scenarios' short names."""
    return {name: say(language, f"cost.way.{name}") for name in SCENARIOS}


def roofs(view: View, language: str, reached: float = 0.0) -> list[Roof]:
    """Give the roofs asked for that have a peak for the data type, and this machine's in float32 once it is known.

    Args:
        view: The view.
        language: Language of the names.
        reached: The highest FLOP/s that was measured: a roof found while the machine was busy is raised to it.
    """
    entries = [HARDWARE[key] for key in view.hardware.split(",")]
    found = [
        Roof(entry.label.say(language), entry.peak[view.dtype], entry.bandwidth)
        for entry in entries
        if view.dtype in entry.peak
    ]
    speed = desk().speed(Probe("float32"))
    own = [] if speed is None else [Roof(say(language, "cost.own"), max(speed.flops, reached), speed.bandwidth, True)]
    return [*found, *own]


def draw(view: View, language: str, requests: Sequence[Request] = (), shown: Sequence[Result] = ()) -> Drawn:
    """Give the roofline with the four ways of calling the layer on it, and what was measured of them."""
    called = names(language)
    work = {called[name]: priced(view, name).intensity for name in SCENARIOS}
    points = {}
    for name, request, result in zip(SCENARIOS, requests, shown, strict=False):
        taken = result.latency_s if isinstance(result, Measurement) else None
        if taken is not None:
            expected = predict(request.contestants[0], request)
            points[called[name]] = (expected.intensity, expected.flops / taken.minimum)
    reached = max((speed for _, speed in points.values()), default=0.0)
    figure = roofline(
        roofs(view, language, reached), work, points, x_title=say(language, "cost.axis.intensity"),
        measured_name=say(language, "cost.measured"),
    )  # fmt: skip
    each = ", ".join(f"{name} {units.number(intensity)}" for name, intensity in work.items())
    caption = say(language, "cost.caption", pair=PAIRS[view.pair].name, context=units.count(view.context), each=each)
    return Drawn(figure, caption, caption)


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of a view's roofline.

    Raises:
        Refusal: For settings that cannot be read.
    """
    view, language, given = asked.read(params, settle)
    drawn = draw(view, language)
    return with_figures(pack(FIGURE, given, {}), specs({ROOFS: drawn}))
