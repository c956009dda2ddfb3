"""Rows of bars that follow a live group, drawn without a chart library, which takes a browser half a second to read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

from pages.ui.bus import Group, following, with_bus
from pages.ui.plot.asset import PATH
from pages.ui.plot.spec import spec
from pages.ui.translate import needed

# Fields: {name}, {first} and {last} key, {value}.
WORD_KEYS = ("tip", "tip_pooled", "keys_help")

_HTML = """
<div data-part="root" class="attnviz-strips">
  <p data-part="caption" class="attnviz-strips-caption"></p>
  <div data-part="figure" role="figure" class="attnviz-strips-figure">
    <div data-part="rows" class="attnviz-strips-rows" role="group" tabindex="0"></div>
    <div data-part="ticks" class="attnviz-strips-ticks" aria-hidden="true"></div>
    <div data-part="tip" class="attnviz-strips-tip" role="status" hidden></div>
  </div>
  <p data-part="problem" class="attnviz-strips-problem" role="alert"></p>
</div>
"""

# A row is 80 px high: five of them and the sliders above fit a projector.
_CSS = """
.attnviz-strips { color: var(--st-text-color); font-family: var(--st-font); }
.attnviz-strips-caption { margin: 0 0 0.25rem; font-variant-numeric: tabular-nums; }
.attnviz-strips-caption:empty, .attnviz-strips-problem:empty, .attnviz-strips-tip[hidden] { display: none; }
.attnviz-strips-figure { position: relative; padding-left: 0.875rem; }
.attnviz-strips-rows { outline: none; border-radius: 2px; cursor: crosshair; }
.attnviz-strips-rows:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; }
.attnviz-strips-row { position: relative; }
.attnviz-strips-head {
  display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; line-height: 1.375rem;
  font-size: 0.9375rem; font-variant-numeric: tabular-nums;
}
.attnviz-strips-head strong { font-size: 1rem; }
.attnviz-strips-head span { margin-left: auto; }
.attnviz-strips-track {
  display: block; width: 100%; height: 3.5rem; margin-bottom: 0.125rem; overflow: visible;
  border-block: 1px solid color-mix(in srgb, var(--st-text-color) 20%, transparent);
}
/* The first row's scale is everyone's. */
.attnviz-strips-row:first-child::before, .attnviz-strips-row:first-child::after {
  position: absolute; left: -0.875rem; font-size: 0.8125rem; line-height: 1rem;
}
.attnviz-strips-row:first-child::before { content: "1"; bottom: 3.125rem; }
.attnviz-strips-row:first-child::after { content: "0"; bottom: -0.375rem; }
.attnviz-strips-ticks { position: relative; height: 1.125rem; font-size: 0.8125rem; line-height: 1.125rem; }
.attnviz-strips-tick { position: absolute; transform: translateX(-50%); }
.attnviz-strips-tip {
  position: absolute; z-index: 5; pointer-events: none; width: max-content; max-width: 100%; padding: 0.125rem 0.5rem;
  background: var(--st-secondary-background-color); border: 1px solid var(--st-border-color);
  border-radius: var(--st-base-radius); font-size: 0.9375rem; font-variant-numeric: tabular-nums;
}
/* The names alone, for charts that use the same colours further down. */
.attnviz-strips-names :is(
  .attnviz-strips-caption, .attnviz-strips-head span, .attnviz-strips-track, .attnviz-strips-ticks,
  .attnviz-strips-problem
) { display: none; }
.attnviz-strips-names .attnviz-strips-figure { padding: 0; }
.attnviz-strips-names .attnviz-strips-rows { display: flex; flex-wrap: wrap; gap: 0 1.5rem; cursor: auto; }
.attnviz-strips-names .attnviz-strips-row:first-child::before,
.attnviz-strips-names .attnviz-strips-row:first-child::after { content: none; }
.attnviz-strips-problem { margin: 0; font-size: 0.875rem; color: var(--st-red-text-color, var(--st-red-color)); }
"""

_COMPONENT = component(
    "attnviz_strips",
    html=_HTML,
    css=_CSS,
    js=with_bus((Path(__file__).parent / "strips.js").read_text(encoding="utf-8")),
    isolate_styles=False,
)


def strips(
    figure: Mapping[str, Any],
    *,
    key: str,
    alt: str,
    words: Mapping[str, str],
    caption: str = "",
    group: Group | None = None,
    part: str | None = None,
    charts: bool = False,
    names_only: bool = False,
) -> None:
    """Draw rows of bars.

    Args:
        figure: The rows as ``attnviz.figures.strips.strips`` gives them.
        key: Key of the element in the session.
        alt: The text alternative, with the numbers that matter.
        words: Texts in the page's language under ``WORD_KEYS``.
        caption: Plain text above the rows; a live frame brings its own.
        group: The live group that they follow, or None.
        part: Their name among the figures of a live frame.
        charts: Whether charts come after them, whose library the browser then loads once the rows are painted.
        names_only: Whether only the names are drawn, in their colours: a legend for charts that use the same.

    Raises:
        ValueError: If a word is missing, or only one of group and part is given.
    """
    data = {
        **following(group, part),
        "figure": spec(figure, alt=alt, caption=caption),
        "charts": PATH if charts else None,
        "names_only": names_only,
        "words": needed(words, WORD_KEYS),
    }
    _COMPONENT(key=key, data=data)
