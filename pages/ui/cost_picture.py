"""The cost page's roofline with its words: what the page shows and what the live route sends."""

from collections.abc import Mapping, Sequence

from attnviz import units
from attnviz.benchmark import Measurement, Request, Result, desk, predict
from attnviz.benchmark.pairs import PAIRS
from attnviz.cost_view import SCENARIOS, View, priced, probe, settle, whole
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
    """Give the roofs asked for, and this machine's once it is known.

    A device whose maker publishes no peak at all has its slope; one that has a peak for other data types is left out.

    Args:
        view: The view.
        language: Language of the names.
        reached: The highest FLOP/s that was measured: a roof found while the machine was busy is raised to it.
    """
    entries = [HARDWARE[key] for key in view.hardware.split(",")]
    found = []
    for entry in entries:
        if not entry.peak:
            found.append(Roof(say(language, "cost.no_peak", name=entry.short), None, entry.bandwidth))
        elif view.dtype in entry.peak:
            found.append(Roof(entry.short, entry.peak[view.dtype], entry.bandwidth))
    asked = probe(view)
    speed = desk().speed(asked)
    if speed is not None:
        called = names(language)
        work = {called[name]: priced(view, name, asked.dtype).intensity for name in SCENARIOS}
        own = say(language, "cost.own", dtype=asked.dtype)
        found.append(Roof(own, max(speed.flops, reached), speed.bandwidth, True, work))
    return found


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
        measured_name=say(language, "cost.measured", dtype=probe(view).dtype),
    )  # fmt: skip
    each = ", ".join(f"{name} {units.number(intensity)}" for name, intensity in work.items())
    model = "" if view.preset is None else f"{view.preset.label.say(language)} · "
    fields = {"pair": f"{model}{PAIRS[view.pair].name}", "context": units.count(view.context), "dtype": view.dtype}
    caption = say(language, "cost.caption", **fields, kept=_kept(view, language), each=each)
    if points:
        tokens = units.count(max(request.kv_len or request.q_len for request in requests))
        caption += f" {say(language, 'cost.marked', dtype=probe(view).dtype, tokens=tokens)}"
    return Drawn(figure, caption, caption)


def _kept(view: View, language: str) -> str:
    """Say what one layer and all of them keep, and which layer is drawn where there could be another."""
    one, every = whole(view, layers=1), whole(view)
    name = keeps(view)
    if name == "cache" and view.preset is not None and view.preset.sliding_layers:
        name = "every" if view.window is None else "window"
    sizes = {"one": units.binary_bytes(one.cache_bytes), "all": units.binary_bytes(every.cache_bytes)}
    return say(language, f"cost.kept.{name}", **sizes, layers=every.layers, window=units.count(view.window or 0))


def keeps(view: View) -> str:
    """Give the key of the words for what a layer keeps: keys and values, or a state."""
    return "cache" if view.variant.grows(view.sizes) else "state"


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of a view's roofline.

    Raises:
        Refusal: For settings that cannot be read.
    """
    view, language, given = asked.read(params, settle)
    drawn = draw(view, language)
    return with_figures(pack(FIGURE, given, {}), specs({ROOFS: drawn}))
