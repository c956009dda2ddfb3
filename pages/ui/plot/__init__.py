"""A Plotly figure that follows a live group and keeps its node and zoom, where ``st.plotly_chart`` builds a new one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from streamlit.components.v2 import component

from pages.ui.bus import Group, following, with_bus
from pages.ui.plot.asset import PATH
from pages.ui.plot.spec import spec
from pages.ui.translate import needed

WORD_KEYS = ("download", "zoom", "pan", "reset", "zoom_out", "no_chart")

_HTML = """
<div data-part="root" class="attnviz-plot">
  <p data-part="caption" class="attnviz-plot-caption"></p>
  <div data-part="figure" role="figure">
    <div data-part="chart" class="attnviz-plot-chart"></div>
    <div data-part="fallback" class="attnviz-plot-fallback" hidden></div>
  </div>
  <p data-part="problem" class="attnviz-plot-problem" role="alert"></p>
</div>
"""

_CSS = """
.attnviz-plot { color: var(--st-text-color); font-family: var(--st-font); }
.attnviz-plot-caption { margin: 0 0 0.25rem; white-space: pre-line; font-variant-numeric: tabular-nums; }
.attnviz-plot-caption:empty { display: none; }
.attnviz-plot-chart { width: 100%; }
/* In the line of the caption, where it covers nothing of the figure. */
.attnviz-plot-caption:not(:empty) ~ div .modebar-container { top: -1.75rem !important; }
.attnviz-plot-problem { margin: 0; font-size: 0.875rem; color: var(--st-red-text-color, var(--st-red-color)); }
.attnviz-plot-problem:empty { display: none; }
.attnviz-plot-fallback { max-height: 24rem; overflow: auto; font-size: 0.875rem; }
.attnviz-plot-fallback table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.attnviz-plot-fallback :is(th, td) { padding: 0.125rem 0.75rem 0.125rem 0; text-align: left; }
"""

# Not isolated: plotly.js puts its own style sheet into the document, which does not reach into a shadow root.
_COMPONENT = component(
    "attnviz_plot",
    html=_HTML,
    css=_CSS,
    js=with_bus((Path(__file__).parent / "plot.js").read_text(encoding="utf-8")),
    isolate_styles=False,
)


def plot(
    figure: go.Figure | Mapping[str, Any],
    *,
    key: str,
    label: str,
    alt: str,
    caption: str = "",
    words: Mapping[str, str],
    height: int = 320,
    group: Group | None = None,
    part: str | None = None,
) -> None:
    """Draw a figure.

    Args:
        figure: The figure; it needs no colours, fonts or background, which come from the page's theme.
        key: Its key in the session; the same key keeps the node and the zoom.
        label: Its name, also of a downloaded image.
        alt: The text alternative, with the numbers that matter.
        caption: Plain text above the figure; a live frame brings its own.
        words: Texts in the page's language under ``WORD_KEYS``.
        height: Height in CSS pixels.
        group: The live group that it follows, or None.
        part: Its name among the figures of a live frame.

    Raises:
        ValueError: If a word is missing, or only one of group and part is given.
    """
    data = {
        **following(group, part),
        "figure": spec(figure, alt=alt, caption=caption),
        "asset": PATH,
        "label": label,
        "height": height,
        "words": needed(words, WORD_KEYS),
    }
    _COMPONENT(key=key, data=data)
