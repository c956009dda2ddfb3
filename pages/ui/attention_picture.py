"""The attention view as grids of maps with their words: what the page shows and what the live route sends."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from attnviz import guard, pictures, stages, units
from attnviz.backends import BACKENDS
from attnviz.stage_list import STAGES
from attnviz.stages import Fused
from attnviz.text import Refusal, Text
from attnviz.view import View, settle
from attnviz.view_run import run
from pages.ui import asked, attention_compare, attention_rules
from pages.ui.attention_compare import Large
from pages.ui.attention_requests import MAIN, STRIP, map_keys, names, requests, strip_head
from pages.ui.heatmap.frame import Axis, Grid, Map, pack
from pages.ui.translate import kernel, say

FIGURE = "attention"
# From so many keys on, equal shares are hardly seen on a linear scale.
LONG_ROW = 256

_NOTHING = Text("There is nothing to compare with the pinned settings here.", "这里没有可与固定设置比较的内容。")


def _axis(view: View, dim: str, span: tuple[int, int], language: str) -> Axis:
    named = names(view).get(dim)
    tokens = None if named is None else named[span[0] : span[1]]
    return Axis(dim, say(language, f"attention.axis.{dim}"), span[1] - span[0], span[0], tokens)


def _maps(large: Large, titles: tuple[str, ...], language: str) -> tuple[Map, ...]:
    """Turn a picture's arrays into maps with axes, colours and ranges."""
    view, keys, picture, signed = large
    stage, request = STAGES[picture.request.stage], picture.request
    assert request.rows is not None and request.cols is not None
    row_axis, col_axis = (
        _axis(view, dim, span, language) for dim, span in ((stage.rows, request.rows), (stage.cols, request.cols))
    )
    log = view.log and not signed
    shared = _range(picture.values, picture.state, signed=signed, log=log)
    maps = []
    for index, (key, title) in enumerate(zip(keys, titles, strict=True)):
        values = picture.values[index]
        state = None if picture.state is None else picture.state[index]
        low, high = _range(values, state, signed=signed, log=log) if view.own_range else shared
        maps.append(
            Map(
                key, title, values, row_axis, col_axis, state, picture.pool, request.reduce,
                "diverging" if signed else "sequential", log, low, high,
            )
        )  # fmt: skip
    return tuple(maps)


def _range(values: np.ndarray, state: np.ndarray | None, *, signed: bool, log: bool) -> tuple[float, float]:
    """Give the range of the colours: symmetric where values have a sign, from 0 for weights, from the least for log."""
    counted = values[np.isfinite(values)] if state is None else values[(state == stages.VALUE) & np.isfinite(values)]
    if counted.size == 0:
        return (-1.0, 1.0) if signed else (0.0, 1.0)
    if signed:
        reach = float(np.abs(counted).max()) or 1.0
        return -reach, reach
    high = float(counted.max()) or 1.0
    if not log:
        return 0.0, high
    positive = counted[counted > 0]
    low = float(positive.min()) if positive.size else high
    return max(min(low, high / 10), high * 1e-12), high


def _title(view: View, key: str, language: str) -> str:
    """Name one map: the average, or a head with the KV head it reads where heads share."""
    if key == "mean":
        return say(language, "attention.mean", heads=view.heads)
    if view.kv_heads == view.heads:
        return say(language, "attention.head", head=key)
    return say(language, "attention.head_kv", head=key, kv=int(key) // (view.heads // view.kv_heads))


def grids(view: View, language: str) -> dict[str, Grid]:
    """Compute the view and give its two grids: the large picture and the strip of stages.

    Args:
        view: A settled view that passed ``guard.check``.
        language: Language of the words.
    """
    call, ran = run(view)
    apart = view.compare != "now"
    # One pass over the rows serves both grids, unless the large one is of other settings.
    drawn = pictures.draw(call, requests(view)[1:] if apart else requests(view), ran)
    strip = drawn.pictures if apart else drawn.pictures[1:]
    strip_maps = tuple(
        _maps(Large(view, (key,), picture, STAGES[key].signed), (STAGES[key].label.say(language),), language)[0]
        for key, picture in zip(view.stages, strip, strict=True)
    )
    if apart:
        main = _compared(view, language)
    else:
        large = Large(view, map_keys(view), drawn.pictures[0], STAGES[view.stage].signed)
        main = _large(large, _caption(view, ran, drawn, language), language)
    return {MAIN: main, STRIP: Grid(strip_maps, "", say(language, "attention.strip_alt", head=strip_head(view)))}


def _large(large: Large, caption: str, language: str) -> Grid:
    titles = tuple(_title(large.view, key, language) for key in large.keys)
    return Grid(_maps(large, titles, language), caption, _alt(large, language))


def _compared(view: View, language: str) -> Grid:
    """Give the pinned picture, or the difference to it; one sentence where there is nothing to compare."""
    if not attention_compare.keys(view):
        missing = say(language, "attention.compare.missing")
        return Grid((), missing, missing)
    large = attention_compare.large(view)
    changed = " · ".join(attention_compare.changed(view, language)) or say(language, "attention.compare.same")
    if view.compare == "pinned":
        return _large(large, say(language, "attention.compare.pinned", changed=changed), language)
    values = large.picture.values
    finite = values[np.isfinite(values)]
    most = units.number(float(np.abs(finite).max()), 4) if finite.size else "–"
    return _large(large, say(language, "attention.compare.difference", most=most, changed=changed), language)


def _caption(view: View, ran: Fused | None, drawn: pictures.Drawn, language: str) -> str:
    """Say what ran, where, how long it took and what it holds."""
    prediction = guard.predict(view)
    said = say(
        language,
        "attention.caption",
        variant=view.layer.upper(),
        heads=view.heads,
        kv_heads=view.kv_heads,
        shape=f"{units.count(view.length)} × {units.count(view.key_length)}",
        d_k=view.d_k,
        dtype=view.dtype,
        device=view.device,
        backend=BACKENDS[view.backend].label if ran is None else kernel(language, ran.kernel),
        seconds=units.seconds(drawn.seconds),
        bytes=units.binary_bytes(prediction.total),
        blocks=drawn.blocks,
    )
    extra = attention_rules.labels(view, language)
    # The first rows of a causal map have weights near 1; against them, a long row's shares near 1/length look empty.
    if view.stage == "weights" and not view.log and view.key_length >= LONG_ROW:
        extra = [*extra, say(language, "attention.try_log")]
    return " · ".join((said, *extra))


def _alt(large: Large, language: str) -> str:
    """Describe the large picture in words and numbers."""
    picture = large.picture
    counted = np.isfinite(picture.values)
    if picture.state is not None:
        counted &= picture.state == stages.VALUE
    stage, request = STAGES[picture.request.stage], picture.request
    assert request.rows is not None and request.cols is not None
    common = {
        "stage": stage.label,
        "maps": picture.values.shape[0],
        "rows": request.rows[1] - request.rows[0],
        "cols": request.cols[1] - request.cols[0],
    }
    if not counted.any():
        return say(language, "attention.alt_empty", **common)
    flat = np.where(counted, picture.values, -np.inf)
    index, row, col = (int(i) for i in np.unravel_index(int(flat.argmax()), flat.shape))
    return say(
        language,
        "attention.alt",
        **common,
        row_axis=say(language, f"attention.axis.{stage.rows}"),
        col_axis=say(language, f"attention.axis.{stage.cols}"),
        high=units.number(float(flat[index, row, col]), 4),
        low=units.number(float(np.where(counted, picture.values, np.inf).min()), 4),
        row=request.rows[0] + row * picture.pool[0],
        col=request.cols[0] + col * picture.pool[1],
        head=large.keys[index],
        empty=picture.no_key_rows,
    )


def read(params: Mapping[str, str], own: tuple[str, ...]) -> tuple[View, str, dict[str, str]]:
    """Read a live request, see ``asked.read``; a view that is too large is refused."""
    return asked.read(params, settle, own, guard.check)


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of both grids, or of one map's region where ``part``, ``rows`` and ``cols`` ask for it.

    Raises:
        Refusal: For settings that cannot be read and views that are too large.
    """
    is_region = bool({"rows", "cols"} & params.keys())
    view, language, given = read(params, asked.OF_REGION if is_region else ("lang",))
    if is_region:
        asked.one_of(params, "part", (MAIN,), MAIN)
        return pack(FIGURE, given, {MAIN: _region(view, params, language)})
    return pack(FIGURE, given, grids(view, language))


def _region(view: View, params: Mapping[str, str], language: str) -> Grid:
    """Give the main picture of a region, as exact as its size allows."""
    if not attention_compare.keys(view):
        raise Refusal(_NOTHING)
    rows, cols = attention_compare.extent(view)
    large = attention_compare.large(view, asked.span(params, "rows", rows), asked.span(params, "cols", cols))
    return Grid(_maps(large, large.keys, language), "", "")


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Give the exact value of one cell: ``part``, ``map``, ``row`` and ``col`` say which.

    Raises:
        Refusal: For settings that cannot be read and cells outside the map.
    """
    view, _, _ = read(params, asked.OF_CELL)
    asked.one_of(params, "part", (MAIN, STRIP), MAIN)
    if params.get("part") == STRIP:
        key = asked.one_of(params, "map", view.stages)
        view = replace(view, stage=key, head=str(strip_head(view)), compare="now")
    else:
        asked.one_of(params, "map", attention_compare.keys(view))
    row, col = asked.place(params, attention_compare.extent(view))
    wanted = view.head if params.get("part") == STRIP else params["map"]
    picture = attention_compare.large(view, (row, row + 1), (col, col + 1), wanted).picture
    state = stages.VALUE if picture.state is None else int(picture.state[0, 0, 0])
    return {"value": np.format_float_positional(picture.values[0, 0, 0], trim="-") if state == stages.VALUE else "",
            "state": state, "row": row, "col": col}  # fmt: skip
