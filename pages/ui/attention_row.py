"""The selected row: its weights as bars with their sum and spread, on the page and beside the maps of a live frame."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from attnviz.census import RowDetail, row_detail
from attnviz.figures.attention import row_bars
from attnviz.view import View
from attnviz.view_run import run
from pages.ui import attention_picture, layout
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.plot.spec import spec, with_figures
from pages.ui.translate import counted, say, table

PART = "row"


def row(panel: Panel, group: Group) -> None:
    """Show the selected row's weights as bars, with their sum, entropy and effective number of keys."""
    view = panel.settled.view
    if not view.cell:
        st.info(panel.title("row.hint"), icon=":material/touch_app:")
        return
    head, query = view.cell[:2]
    st.markdown(
        "**" + layout.escape(panel.title("row.title", query=query, head=head)) + "**",
        help=panel.title("row.effective_help"),
    )
    if view.compare != "now":
        st.caption(panel.title("row.of_now"))
    figure, alt, caption = _figure(view, panel.language)
    plot(
        figure,
        key="attention.row",
        label=panel.title("row.title", query=query, head=head),
        alt=alt,
        caption=caption,
        words=table(panel.language, "plot"),
        group=group,
        part=PART,
    )
    st.button(panel.title("row.clear"), on_click=lambda: panel.set("cell", None), key="attention.clear")


def frame(params: Mapping[str, str]) -> bytes:
    """Give the maps of a view, and the selected row's figure where a cell is selected.

    Raises:
        Refusal: For settings that cannot be read and views that are too large.
    """
    maps = attention_picture.frame(params)
    if "cell" not in params or {"rows", "cols"} & params.keys():
        return maps
    view, language, _ = attention_picture.read(params, ("lang",))
    if view.cell:
        figure, alt, caption = _figure(view, language)
    else:
        # The slider went below the selected query or key; on release the selection is cleared.
        figure, alt, caption = go.Figure(), "", say(language, "attention.row.gone")
    return with_figures(maps, {PART: spec(figure, alt=alt, caption=caption)})


def _figure(view: View, language: str) -> tuple[go.Figure, str, str]:
    """Give the bars of the selected row, their text alternative, and the lines above them."""
    head, query = view.cell[:2]
    call, ran = run(view)
    detail = row_detail(call, head, query, ran)
    weights, allowed = detail.weights.numpy(), detail.allowed.numpy()
    tokens = view.tokens("key") or tuple(str(index) for index in range(view.key_length))
    words = table(language, "attention.row")
    figure = row_bars(
        weights,
        tokens,
        allowed=allowed,
        selected=view.cell[2] if len(view.cell) > 2 else None,
        x_title=words["weight"],
        y_title=words["key"],
        masked_word=words["masked"],
        selected_word=words["selected"],
    )
    lines = _lines(view, detail, language)
    finite = np.where(allowed & np.isfinite(weights), weights, -1.0)
    alt = say(
        language,
        "attention.row.alt",
        query=query,
        head=head,
        keys=counted(language, "key", view.key_length),
        high=f"{max(0.0, finite.max()):.4g}",
        best=int(finite.argmax()),
        summary=lines[0],
    )
    return figure, alt, "\n".join(lines)


def _lines(view: View, detail: RowDetail, language: str) -> list[str]:
    """Say what the row adds up to, and what went wrong or was changed in it."""
    lines = [
        say(
            language,
            "attention.row.summary",
            sum=f"{detail.total:.6g}",
            entropy=f"{detail.entropy:.4g}",
            effective=f"{detail.effective_keys:.4g}",
        )
    ]
    if not detail.allowed.any():
        lines.append(say(language, "attention.row.no_key"))
    elif not np.isfinite(detail.total):
        lines.append(say(language, "attention.row.not_finite", dtype=view.dtype))
    if view.dropout > 0:
        lines.append(say(language, "attention.row.dropout", factor=f"{1 / (1 - view.dropout):.4g}"))
    return lines
