"""The mistake that is switched on: said where it cannot be overlooked, with the numbers that give it away."""

import math

import streamlit as st

from attnviz import units
from attnviz.mistakes import MISTAKES
from attnviz.view_run import comparison
from pages.ui import layout
from pages.ui.controls import Panel


def banner(panel: Panel) -> None:
    """Say above the picture that a mistake is switched on, what it is and what gives it away; nothing without one."""
    mistake = MISTAKES[panel.settled.view.mistake]
    if mistake.key == "none":
        return
    name, done, sign = (layout.escape(text.say(panel.language)) for text in (mistake.label, mistake.help, mistake.sign))
    source = f"[{panel.title('rules.source')}]({mistake.source})"
    st.error(panel.title("mistake.on", name=name, done=done, sign=sign, source=source), icon=":material/report:")


def signs(panel: Panel) -> None:
    """Show beside the picture how the mistaken computation and the right one differ, in numbers."""
    view = panel.settled.view
    if view.mistake == "none":
        return
    compared = comparison(view)
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


def _span(bounds: tuple[float, float] | None) -> str:
    """Give the least and the largest, or one number where they are the same to the digits shown."""
    if bounds is None:
        return "–"
    low, high = map(_number, bounds)
    return low if low == high else f"{low} … {high}"


def _number(value: float) -> str:
    return units.number(value) if math.isfinite(value) else "NaN"
