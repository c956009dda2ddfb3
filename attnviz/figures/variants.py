"""Figure of the variants page, as the plain data and layout of a Plotly figure: it follows a slider."""

from typing import Any

Figure = dict[str, Any]

# The colours of the theme, one for each group in turn.
COLOURS = 8
HEIGHT = 330
# Above so many heads, their numbers would run into each other.
_NUMBERED = 16
_TOP, _BOTTOM = 1.0, 0.0


def wiring(heads: int, kv_heads: int, *, query: str, shared: str, hover: str) -> Figure:
    """Draw every query head above, every KV head below, and a line from each query head to the KV head it reads.

    Args:
        heads: Query heads.
        kv_heads: KV heads, a divisor of ``heads``; query head i reads KV head ``i // (heads // kv_heads)``.
        query: Name of the upper row.
        shared: Name of the lower row.
        hover: What the hover says of a query head, with the fields ``head`` and ``kv``.
    """
    group = heads // kv_heads
    places = [kv * group + (group - 1) / 2 for kv in range(kv_heads)]
    room = 400 / heads
    thick = max(1.0, min(4.0, room / 8))
    data: list[Figure] = []
    for colour in range(min(kv_heads, COLOURS)):
        xs: list[float | None] = []
        for head in range(heads):
            if head // group % COLOURS == colour:
                xs += [head, places[head // group], None]
        line = {"color": f"theme-{colour}", "width": thick}
        ys = [_TOP, _BOTTOM, None] * (len(xs) // 3)
        data.append({"type": "scatter", "mode": "lines", "x": xs, "y": ys, "line": line, "hoverinfo": "skip"})
    colours = [f"theme-{kv % COLOURS}" for kv in range(kv_heads)]
    data.append(
        _row(list(range(heads)), _TOP, [colours[head // group] for head in range(heads)], min(30.0, 0.72 * room))
    )
    data[-1] |= {"text": [hover.format(head=head, kv=head // group) for head in range(heads)]}
    data.append(_row(places, _BOTTOM, colours, min(36.0, 320 / kv_heads), "square"))
    data[-1] |= {"text": [f"{shared} {kv}" for kv in range(kv_heads)]}
    notes = [*_numbers(list(range(heads)), _TOP, 24), *_numbers(places, _BOTTOM, -27)]
    notes += [_name(query, heads, _TOP, 58), _name(shared, kv_heads, _BOTTOM, -62)]
    hidden = {"visible": False, "fixedrange": True}
    layout = {
        "showlegend": False, "height": HEIGHT, "margin": {"l": 0, "r": 0, "t": 0, "b": 0}, "annotations": notes,
        "xaxis": {**hidden, "range": [-0.75, heads - 0.25]}, "yaxis": {**hidden, "range": [-0.5, 1.5]},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _row(xs: list[Any], y: float, colours: list[str], size: float, symbol: str = "circle") -> Figure:
    marker = {"color": colours, "size": max(5.0, size), "symbol": symbol, "opacity": 1}
    return {
        "type": "scatter", "mode": "markers", "x": xs, "y": [y] * len(xs), "marker": marker,
        "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip


def _numbers(xs: list[Any], y: float, shift: int) -> list[Figure]:
    """Number the heads of a row, those of a long one here and there."""
    step = -(-len(xs) // _NUMBERED)
    common = {"y": y, "yshift": shift, "showarrow": False, "font": {"size": 17}}
    return [{**common, "x": xs[index], "text": str(index)} for index in range(0, len(xs), step)]


def _name(text: str, count: int, y: float, shift: int) -> Figure:
    return {
        "x": 0.5, "xref": "paper", "y": y, "yshift": shift, "showarrow": False, "text": f"<b>{count} {text}</b>",
        "font": {"size": 20},
    }  # fmt: skip
