"""The benchmark page's bars as the live route sends them: what is predicted at once, before anything is measured."""

from collections.abc import Mapping

from attnviz.benchmark_view import settle
from attnviz.text import LANGUAGES, Refusal
from pages.ui.heatmap.frame import pack
from pages.ui.measured import draw_bars
from pages.ui.plot.spec import spec, with_figures

FIGURE = "benchmark"
TIME, MEMORY = "time", "memory"


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of both bar charts with what is predicted for the settings.

    Raises:
        Refusal: For settings that cannot be read.
    """
    given = {name: text for name, text in params.items() if name != "lang"}
    settled = settle(given)
    if settled.problems:
        raise Refusal(settled.problems[0])
    language = params["lang"] if params.get("lang") in LANGUAGES else LANGUAGES[0]
    request = settled.view.quick()
    drawn = {part: draw_bars(language, request, None, memory=part == MEMORY) for part in (TIME, MEMORY)}
    return with_figures(
        pack(FIGURE, given, {}),
        {part: spec(one.figure, alt=one.alt, caption=one.caption) for part, one in drawn.items()},
    )
