"""The mistake that is switched on, or dropout: said where it is not overlooked, with the numbers that give it away."""

import math

import streamlit as st

from attnviz import units
from attnviz.census import Comparison
from attnviz.mistakes import MISTAKES
from attnviz.view import View
from attnviz.view_run import comparison
from pages.ui import layout
from pages.ui.controls import Panel


def banner(panel: Panel) -> None:
    """Say above the picture that a mistake is switched on, what it is and what gives it away; nothing without one."""
    view = panel.settled.view
    mistake = MISTAKES[view.mistake]
    if mistake.key == "none":
        return
    name, done, sign = (layout.escape(text.say(panel.language)) for text in (mistake.label, mistake.help, mistake.sign))
    source = f"[{panel.title('rules.source')}]({mistake.source})"
    said = panel.title("mistake.on", name=name, done=done, sign=sign, source=source)
    if view.dropout > 0:
        said += "\n\n" + panel.title("mistake.on_average")
    st.error(said, icon=":material/report:")


def signs(panel: Panel) -> None:
    """Show beside the picture how the computation with a mistake or dropout differs from the right one, in numbers."""
    view = panel.settled.view
    if view.mistake == "none" and view.dropout == 0:
        return
    compared = comparison(view)
    if view.dropout > 0:
        st.markdown("  \n".join(_dropout(panel, view, compared)))
    if compared is None:
        st.caption(panel.title("mistake.too_long"))
        return
    lines = []
    for name in ("row_sums", "column_sums"):
        here, right = (_span(getattr(sums, name)) for sums in (compared.mistaken, compared.right))
        lines.append(panel.title(f"mistake.{name}", here=here, right=right))
    lines.append(panel.title("mistake.cosine", here=_number(compared.cosine)))
    lines.append(panel.title("mistake.difference", here=_number(compared.difference)))
    st.markdown("  \n".join(lines), help=panel.title("mistake.cosine_help"))


def _dropout(panel: Panel, view: View, compared: Comparison | None) -> list[str]:
    """Say that dropout is on, and what it does beside what is expected of it."""
    lines = [panel.title("mistake.dropout")]
    if compared is None:
        return lines
    here, expected = (units.percent(share) for share in (compared.dropped, view.dropout))
    lines.append(panel.title("mistake.dropped", here=here, expected=expected))
    if view.mistake == "none":  # of a mistake's row sums nothing is expected
        lines.append(panel.title("mistake.mean_sum", here=_number(compared.mean_sum)))
    return lines


def _span(bounds: tuple[float, float] | None) -> str:
    """Give the least and the largest, or one number where they are the same to the digits shown."""
    if bounds is None:
        return "–"
    low, high = map(_number, bounds)
    return low if low == high else f"{low} … {high}"


def _number(value: float) -> str:
    return units.number(value) if math.isfinite(value) else "NaN"
