"""Figures of the variants page, as the plain data and layout of a Plotly figure: they follow a slider."""

from collections.abc import Mapping, Sequence
from typing import Any

Figure = dict[str, Any]

# The colours of the theme, one for each group in turn.
COLOURS = 8
HEIGHT = 330
# Above so many heads, their numbers would run into each other.
_NUMBERED = 16
_TOP, _MIDDLE, _BOTTOM = 1.0, 0.5, 0.0
# What all heads share has no head's colour.
_LATENT, _ROTARY = "rgb(120,126,137)", "rgb(165,170,180)"


def wiring(
    heads: int, kv_heads: int, *, query: str, shared: str, kv: str, hover: str, scorer: str | None = None
) -> Figure:
    """Draw every query head above, every KV head below, and a line from each query head to the KV head it reads.

    Args:
        heads: Query heads.
        kv_heads: KV heads, a divisor of ``heads``; query head i reads KV head ``i // (heads // kv_heads)``.
        query: Name of the upper row, with the number of its heads.
        shared: Name of the lower row, likewise.
        kv: What the hover says of a KV head, with the field ``kv``.
        hover: What the hover says of a query head, with the fields ``head`` and ``kv``.
        scorer: What the hover says of the network on a head's line, with the field ``head``; None draws none.
    """
    group = heads // kv_heads
    places = [place * group + (group - 1) / 2 for place in range(kv_heads)]
    ends = [places[head // group] for head in range(heads)]
    owners = [head // group for head in range(heads)]
    data = _lines(heads, (_TOP, _BOTTOM), ends, owners)
    if scorer is not None:
        colours = [f"theme-{head % COLOURS}" for head in range(heads)]
        data.append(_row(list(range(heads)), _MIDDLE, colours, min(22.0, 0.5 * _room(heads)), "diamond"))
        data[-1] |= {"text": [scorer.format(head=head) for head in range(heads)]}
    colours = [f"theme-{place % COLOURS}" for place in range(kv_heads)]
    data.append(_queries(heads, [hover.format(head=head, kv=owners[head]) for head in range(heads)], owners))
    data.append(_row(places, _BOTTOM, colours, min(36.0, 320 / kv_heads), "square"))
    data[-1] |= {"text": [kv.format(kv=place) for place in range(kv_heads)]}
    notes = [*_numbers(list(range(heads)), _TOP, 24), *_numbers(places, _BOTTOM, -27)]
    notes += [_name(query, _TOP, 58), _name(shared, _BOTTOM, -62)]
    return {"data": data, "layout": _layout(heads, notes)}


def latent_wiring(
    heads: int, latent: int, rope: int, *, query: str, hover: str, made: str, kept: str, rotary: str
) -> Figure:
    """Draw query heads above, the keys and values that each has made for it, and the one latent they are made of.

    Latent and rotary key are as wide as their share of what is kept. A head's own keys and values are hollow: they
    are not kept. A dotted line is the rotary part, which every head's keys have in common; those of many heads are
    one surface.

    Args:
        heads: Query heads.
        latent: Numbers in the latent.
        rope: Numbers in the rotary key; 0 is none.
        query: Name of the upper row, with the number of its heads.
        hover: What the hover says of a query head, with the field ``head``.
        made: What it says of a head's keys and values, likewise.
        kept: Name of the latent.
        rotary: Name of the rotary key.
    """
    heads_at, low, high = list(range(heads)), -0.45, heads - 0.55
    gap = 0.03 * (high - low) if rope else 0.0
    edge = low + (high - low - gap) * latent / (latent + rope)
    colours = [f"theme-{head % COLOURS}" for head in heads_at]

    def spread(start: float, end: float) -> list[float]:
        """Give each head its place along a bar."""
        return [start + (head + 0.5) / heads * (end - start) for head in heads_at]

    data = _lines(heads, (_TOP, _MIDDLE), list(map(float, heads_at)), heads_at)
    data += _lines(heads, (_MIDDLE, _BOTTOM), spread(low, edge), heads_at)
    if rope:
        if heads <= _NUMBERED:
            data += _lines(heads, (_MIDDLE, _BOTTOM), spread(edge + gap, high), heads_at, "dot")
        else:
            data.insert(0, _fan((low, high), (edge + gap, high)))
        data.append(_bar(edge + gap, high, f"{rotary} {rope}", _ROTARY))
    data.append(_bar(low, edge, f"{kept} {latent}", _LATENT))
    data.append(_queries(heads, [hover.format(head=head) for head in heads_at], heads_at))
    data.append(_row(heads_at, _MIDDLE, colours, min(26.0, 0.6 * _room(heads)), "square-open"))
    data[-1]["marker"] |= {"line": {"width": 3 if heads <= _NUMBERED else 1.5}}
    data[-1] |= {"text": [made.format(head=head) for head in heads_at]}
    notes = [*_numbers(heads_at, _TOP, 24), _name(query, _TOP, 58)]
    notes.append(_name(f"{kept} {latent}", _BOTTOM, -36) | {"x": 0, "xanchor": "left"})
    notes += [_name(f"{rotary} {rope}", _BOTTOM, -36) | {"x": 1, "xanchor": "right"}] if rope else []
    return {"data": data, "layout": _layout(heads, notes)}


def missing(
    heads: Sequence[int],
    measured: Sequence[float],
    predicted: Sequence[float],
    *,
    wanted: int,
    names: Mapping[str, str],
) -> Figure:
    """Draw what is missing of what was wanted against the number of heads: measured dots, a predicted line.

    Args:
        heads: Numbers of heads, each twice the one before.
        measured: Share of the wanted norm that is missing, 0 to 1.
        predicted: The same of averaging alone.
        wanted: Positions wanted at once; a vertical line stands at as many heads.
        names: ``heads`` and ``missing`` of the axes, ``measured`` and ``predicted`` of the legend, ``wanted`` of the
            vertical line.
    """
    places = list(range(len(heads)))
    common = {"type": "scatter", "x": places, "hovertemplate": "%{y:.1%}<extra>%{fullData.name}</extra>"}
    dots = {
        "mode": "markers",
        "y": list(measured),
        "name": names["measured"],
        "marker": {"color": "theme-1", "size": 12},
    }
    line = {"mode": "lines", "y": list(predicted), "name": names["predicted"], "line": {"color": "theme-0", "width": 3}}
    at = heads.index(wanted)
    rule = {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": "rgba(128,128,128,0.9)", "dash": "dot", "width": 1.5}}  # fmt: skip
    note = {"x": at, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "text": names["wanted"],
            "font": {"size": 14}}  # fmt: skip
    layout = {
        "height": 300, "margin": {"l": 8, "r": 8, "t": 24, "b": 8}, "shapes": [rule], "annotations": [note],
        "xaxis": {"title": {"text": names["heads"]}, "tickvals": places, "ticktext": list(map(str, heads))},
        "yaxis": {"title": {"text": names["missing"]}, "range": [-0.04, 1.08], "tickformat": ".0%"},
        "legend": {"orientation": "h", "x": 0, "y": -0.28, "yanchor": "top"},
    }  # fmt: skip
    return {"data": [common | line, common | dots], "layout": layout}


def _room(heads: int) -> float:
    """Give how many pixels a head has of the figure's width."""
    return 400 / heads


def _lines(heads: int, rows: tuple[float, float], ends: list[float], owners: list[int], dash: str = "solid") -> Any:
    """Draw a line from each head's place in the upper of two rows to its end in the lower, in its owner's colour."""
    # Close together, dots of many colours would hide the lines that matter.
    faint = dash != "solid"
    line = {"width": 1.0 if faint else max(1.0, min(4.0, _room(heads) / 8)), "dash": dash}
    opacity = min(1.0, 12 / heads) if faint else 1.0
    data = []
    for colour in range(min(max(owners) + 1, COLOURS)):
        xs: list[float | None] = []
        for head in range(heads):
            if owners[head] % COLOURS == colour:
                xs += [head, ends[head], None]
        ys = [*rows, None] * (len(xs) // 3)
        own = {**line, "color": f"theme-{colour}"}
        data.append(
            {"type": "scatter", "mode": "lines", "x": xs, "y": ys, "line": own, "hoverinfo": "skip", "opacity": opacity}
        )
    return data


def _queries(heads: int, texts: list[str], owners: list[int]) -> Figure:
    colours = [f"theme-{owner % COLOURS}" for owner in owners]
    return _row(list(range(heads)), _TOP, colours, min(30.0, 0.72 * _room(heads))) | {"text": texts}


def _fan(above: tuple[float, float], below: tuple[float, float]) -> Figure:
    """Draw what many lines from the middle row to a stretch of the lowest would cover, behind everything else."""
    return {
        "type": "scatter", "mode": "lines", "x": [*above, *reversed(below)],
        "y": [_MIDDLE, _MIDDLE, _BOTTOM, _BOTTOM], "fill": "toself", "fillcolor": _ROTARY, "line": {"width": 0},
        "opacity": 0.35, "hoverinfo": "skip",
    }  # fmt: skip


def _bar(start: float, end: float, text: str, colour: str) -> Figure:
    """Draw a bar of the lowest row, from one place to another."""
    half = 0.09
    return {
        "type": "scatter", "mode": "lines", "x": [start, end, end, start, start],
        "y": [_BOTTOM - half, _BOTTOM - half, _BOTTOM + half, _BOTTOM + half, _BOTTOM - half], "fill": "toself",
        "fillcolor": colour, "line": {"color": colour, "width": 1}, "hoveron": "fills", "text": text,
        "hoverinfo": "text",
    }  # fmt: skip


def _layout(heads: int, notes: list[Figure]) -> Figure:
    hidden, edge = {"visible": False, "fixedrange": True}, 0.75 + heads / 80
    return {
        "showlegend": False, "height": HEIGHT, "margin": {"l": 0, "r": 0, "t": 0, "b": 0}, "annotations": notes,
        "xaxis": {**hidden, "range": [-edge, heads - 1 + edge]}, "yaxis": {**hidden, "range": [-0.5, 1.5]},
    }  # fmt: skip


def _row(xs: list[Any], y: float, colours: list[str], size: float, symbol: str = "circle") -> Figure:
    marker = {"color": colours, "size": max(5.0, size), "symbol": symbol, "opacity": 1}
    return {
        "type": "scatter", "mode": "markers", "x": xs, "y": [y] * len(xs), "marker": marker,
        "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip


def _numbers(xs: list[Any], y: float, shift: int) -> list[Figure]:
    """Number the heads of a row, those of a long one here and there."""
    # Three digits need more room than two.
    step = -(-len(xs) // (_NUMBERED if len(xs) <= 100 else 10))
    common = {"y": y, "yshift": shift, "showarrow": False, "font": {"size": 17}}
    return [{**common, "x": xs[index], "text": str(index)} for index in range(0, len(xs), step)]


def _name(text: str, y: float, shift: int) -> Figure:
    return {
        "x": 0.5, "xref": "paper", "y": y, "yshift": shift, "showarrow": False, "text": f"<b>{text}</b>",
        "font": {"size": 20},
    }  # fmt: skip
