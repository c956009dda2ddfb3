"""The flash page's riddle: tiled code that gives NaN, run beside the right one; which line is it?"""

import html
from collections.abc import Collection

import numpy as np
import streamlit as st

from attnviz import units
from attnviz.flash_view import bugs
from attnviz.flash_view.bugs import BUGS, Bug, Result
from attnviz.flash_view.view import View
from attnviz.masks import MASKS
from pages.ui import layout
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.heatmap import heatmap
from pages.ui.heatmap.frame import Axis, Grid, Map
from pages.ui.translate import say, table

OUTPUTS = "outputs"
HEIGHT = 330
# Colours that show on light and dark ground alike.
_STYLE = """<style>
.flash-code { margin: 0; padding: 0.5rem 0; overflow-x: auto; font: 0.75rem/1.7 "Source Code Pro", monospace;
  border: 1px solid rgba(128, 128, 128, 0.4); border-radius: 0.5rem; }
.flash-code div { padding: 0 0.75rem; white-space: pre; width: max-content; min-width: 100%; box-sizing: border-box; }
.flash-code b { display: inline-block; width: 1.5rem; font-weight: 400; opacity: 0.6; }
.flash-code .fault { background: rgba(255, 75, 75, 0.25); box-shadow: inset 4px 0 rgb(255, 75, 75); }
.flash-code .picked { background: rgba(255, 170, 0, 0.22); box-shadow: inset 4px 0 rgb(255, 170, 0); }
.flash-code .good { background: rgba(33, 195, 84, 0.22); box-shadow: inset 4px 0 rgb(33, 195, 84); }
</style>"""


def section(panel: Panel, group: Group) -> None:
    """Draw the code, what it gives, the question, and after an answer what is wrong with the line."""
    expanded = panel.settled.view.line != "none"
    opened = layout.fold(
        panel.title("bug.title"), icon=":material/bug_report:", key="flash.fold.bug", expanded=expanded
    )
    if opened is None:
        return
    view = panel.settled.view
    bug = BUGS[view.bug]
    found = bugs.run(view, view.bug)
    with opened:
        st.markdown(panel.title("bug.lead"))
        panel.control("bug", segmented=True, bare=True, sets=("line",))
        left, right = st.columns([1.45, 1], gap="medium")
        with left:
            st.html(_STYLE + code_html(bugs.code(bug.run), _marks(view, found)))
        with right:
            heatmap(
                outputs(found, panel.language), part=OUTPUTS, group=group, key="flash.outputs", height=HEIGHT,
                words=table(panel.language, "heatmap"),
            )  # fmt: skip
            st.markdown(_result(panel, found))
            if found.size != (view.length, view.key_length):
                st.caption(panel.title("bug.cut", rows=units.count(found.size[0]), cols=units.count(found.size[1])))
        numbers = [str(line) for line in range(1, len(bugs.code(bug.run)) + 1)]
        panel.control("line", segmented=True, options=["none", *numbers, "show"])
        _verdict(panel, view, bug, found)


def _is_found(view: View, found: Result) -> bool:
    return view.line == "show" or (view.line.isdigit() and int(view.line) in found.lines)


def _marks(view: View, found: Result) -> dict[int, str]:
    """Give the class of the lines that are marked: the faults once they are found, else the one that was picked."""
    if _is_found(view, found):
        return dict.fromkeys(found.lines, "fault")
    return {int(view.line): "picked"} if view.line.isdigit() else {}


def code_html(lines: Collection[str], marks: dict[int, str]) -> str:
    """Give numbered lines of code as HTML, some of them marked."""
    rows = (
        f'<div class="{marks.get(number, "")}"><b>{number}</b>{html.escape(line)}</div>'
        for number, line in enumerate(lines, 1)
    )
    return f'<div class="flash-code">{"".join(rows)}</div>'


def outputs(found: Result, language: str) -> Grid:
    """Give what both codes return: NaN is drawn as such."""
    rows, width = found.right.shape
    high = float(np.abs(found.right).max()) or 1.0
    axes = (
        Axis("query", say(language, "flash.weights.row"), rows),
        Axis("feature", say(language, "flash.weights.entry"), width),
    )
    maps = tuple(
        Map(name, say(language, f"flash.bug.{name}"), values, *axes, palette="diverging", low=-high, high=high)
        for name, values in (("wrong", found.wrong), ("right", found.right))
    )
    lost = units.count(int(found.lost.sum()))
    return Grid(maps, "", say(language, "flash.bug.alt", lost=lost, rows=units.count(rows)))


def _result(panel: Panel, found: Result) -> str:
    """Say how many rows are lost and how far the right code is off, or which mask brings the fault out."""
    view = panel.settled.view
    if not found.lost.any():
        masks = bugs.wakers(view, view.bug)
        word = "wakes" if masks else "sound"
        named = ", ".join(MASKS[mask].label.say(panel.language) for mask in masks)
        return f"{panel.title('bug.sleeps')} {panel.title(f'bug.{word}', masks=named)}"
    return panel.title("bug.lost", distance=units.number(found.distance, 2), **_rows(found))


def _rows(found: Result) -> dict[str, str]:
    """Count the rows: all of them, those with NaN, and those whose first tile is masked whole."""
    counted = {"rows": found.size[0], "lost": int(found.lost.sum()), "late": found.late}
    return {name: units.count(number) for name, number in counted.items()}


def reason(bug: Bug, found: Result, language: str) -> str:
    """Say why a NaN comes about, and what this mask has to do with it."""
    if not found.lost.any():
        word = "asleep"
    elif bug.key == "own":
        word = "tile_late" if found.late else "tile"
    else:
        word = "start"
    return f"{bug.why.say(language)} {say(language, f'flash.bug.here_{word}', **_rows(found))}"


def _verdict(panel: Panel, view: View, bug: Bug, found: Result) -> None:
    if view.line == "none":
        return
    if not _is_found(view, found):
        word = "not_here" if int(view.line) in bug.lines() else "not_this"
        st.warning(panel.title(f"bug.{word}", line=view.line), icon=":material/close:")
        return
    why = layout.escape(reason(bug, found, panel.language))
    lines = ", ".join(map(str, found.lines))
    if view.line == "show":
        st.info(f"{panel.title('bug.shown', lines=lines)} {why}", icon=":material/visibility:")
    else:
        st.success(f"{panel.title('bug.found', lines=lines)} {why}", icon=":material/check:")
    st.markdown(panel.title("bug.right_code"))
    right = bugs.right_lines()
    wrong = {line.strip() for line in bugs.code(bug.run)}
    st.html(code_html(right, {n: "good" for n, line in enumerate(right, 1) if line.strip() not in wrong}))
