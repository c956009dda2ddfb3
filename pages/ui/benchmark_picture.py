"""The benchmark page's bars as the live route sends them: what is predicted at once, before anything is measured."""

from collections.abc import Mapping

from attnviz.benchmark_view import settle
from pages.ui import asked
from pages.ui.heatmap.frame import pack
from pages.ui.measured_bars import draw_bars
from pages.ui.plot.spec import specs, with_figures

FIGURE = "benchmark"
TIME, MEMORY = "time", "memory"


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of both bar charts with what is predicted for the settings.

    Raises:
        Refusal: For settings that cannot be read.
    """
    view, language, given = asked.read(params, settle)
    request = view.quick()
    drawn = {part: draw_bars(language, request, None, memory=part == MEMORY) for part in (TIME, MEMORY)}
    return with_figures(
        pack(FIGURE, given, {}),
        specs(drawn),
    )
