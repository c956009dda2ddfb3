"""The attention view as grids of maps with their words: what the page shows and what the live route sends."""

import json
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from attnviz import guard, pictures, stages, units
from attnviz.backends import BACKENDS
from attnviz.pictures import Picture
from attnviz.stage_list import STAGES
from attnviz.stages import Fused
from attnviz.text import Refusal, Text
from attnviz.view import View, settle
from attnviz.view_run import run
from pages.ui import attention_rules
from pages.ui.heatmap.frame import MOST_BYTES, Axis, Grid, Map, pack
from pages.ui.translate import say

FIGURE = "attention"
MAIN, STRIP = "main", "stages"
STRIP_SIDE = 64
MAIN_CELLS = 1024 * 1024
# What a frame holds besides codes and names: the description of each map, settings with caption, words of the page.
MAP_BYTES, SETTING_BYTES, PAGE_BYTES = 512, 2_000, 12_000
# Names that would take more than this are left out; the maps then show indices.
NAME_BYTES = 600_000
_OF_CELL = ("lang", "part", "map", "row", "col")
_OF_REGION = ("lang", "part", "map", "rows", "cols")

_REGION = Text("{name} must be two whole numbers start-stop inside the map, got {value}.",
               "{name} 应为图内的两个整数 start-stop，收到的是 {value}。")  # fmt: skip
_INDEX = Text("{name} must be a whole number from 0 to {high}, got {value}.",
              "{name} 应为 0 到 {high} 之间的整数，收到的是 {value}。")  # fmt: skip
_ONE_OF = Text("{name} must be one of {options}, got {value}.", "{name} 应为以下之一：{options}，收到的是 {value}。")


def map_keys(view: View) -> tuple[str, ...]:
    """Give the keys of the main picture's maps: one for each head drawn, or the average."""
    return ("mean",) if view.head == "mean" else tuple(str(head) for head in view.drawn_heads)


def strip_head(view: View) -> int:
    """Give the head whose stages the strip shows: the selected cell's, else the one drawn, else the first."""
    if view.cell:
        return view.cell[0]
    return view.drawn_heads[0] if view.head not in ("all", "mean") else 0


def _side(view: View, maps: int) -> int:
    """Give the largest side of a main map, so that all maps, their names and the strip stay within one message."""
    settings = _json_bytes((view.text, view.context)) + SETTING_BYTES
    # The route sends the strip along; the page sends its words, and the settings once more, but the strip apart.
    beside = max(len(view.stages) * (2 * STRIP_SIDE**2 + MAP_BYTES), PAGE_BYTES + settings)
    names = sum(map(_json_bytes, set(_names(view).values())))
    room = MOST_BYTES - beside - settings - names - maps * MAP_BYTES
    return max(16, min(pictures.MAX_SIDE, int((min(MAIN_CELLS, room // 2) / maps) ** 0.5)))


def _names(view: View) -> dict[str, tuple[str, ...]]:
    """Give the tokens of both sides by dimension; none for random input and where they are too much for a message."""
    found = {dim: tokens for dim in ("query", "key") if (tokens := view.tokens(dim)) is not None}
    return found if sum(map(_json_bytes, found.values())) <= NAME_BYTES else {}


@lru_cache(maxsize=8)
def _json_bytes(words: tuple[str, ...]) -> int:
    return len(json.dumps(words, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def requests(view: View) -> list[pictures.Request]:
    """List the pictures of a view: the large one, then every stage of one head."""
    heads, average = view.drawn_heads, view.head == "mean"
    side = _side(view, 1 if average else len(heads))
    main = pictures.Request(view.stage, heads, side, view.reduce, average=average)
    # The largest of many signed values is positive: a thumbnail of them would show one colour.
    reduces = {key: "mean" if STAGES[key].signed else "max" for key in view.stages}
    return [main, *(pictures.Request(key, (strip_head(view),), STRIP_SIDE, reduces[key]) for key in view.stages)]


def _axis(view: View, dim: str, span: tuple[int, int], language: str) -> Axis:
    names = _names(view).get(dim)
    tokens = None if names is None else names[span[0] : span[1]]
    return Axis(dim, say(language, f"attention.axis.{dim}"), span[1] - span[0], span[0], tokens)


def _maps(
    view: View, picture: Picture, keys: tuple[str, ...], titles: tuple[str, ...], language: str
) -> tuple[Map, ...]:
    """Turn a picture's arrays into maps with axes, colours and ranges."""
    stage, request = STAGES[picture.request.stage], picture.request
    assert request.rows is not None and request.cols is not None
    row_axis, col_axis = (
        _axis(view, dim, span, language) for dim, span in ((stage.rows, request.rows), (stage.cols, request.cols))
    )
    log = view.log and not stage.signed
    shared = _range(picture.values, picture.state, signed=stage.signed, log=log)
    maps = []
    for index, (key, title) in enumerate(zip(keys, titles, strict=True)):
        values = picture.values[index]
        state = None if picture.state is None else picture.state[index]
        low, high = _range(values, state, signed=stage.signed, log=log) if view.own_range else shared
        maps.append(
            Map(
                key, title, values, row_axis, col_axis, state, picture.pool, request.reduce,
                "diverging" if stage.signed else "sequential", log, low, high,
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


def title(view: View, head: int, language: str) -> str:
    """Name one head's map, with the KV head it reads where heads share."""
    if view.kv_heads == view.heads:
        return say(language, "attention.head", head=head)
    return say(language, "attention.head_kv", head=head, kv=head // (view.heads // view.kv_heads))


def grids(view: View, language: str) -> dict[str, Grid]:
    """Compute the view and give its two grids: the large picture and the strip of stages.

    Args:
        view: A settled view that passed ``guard.check``.
        language: Language of the words.
    """
    call, ran = run(view)
    drawn = pictures.draw(call, requests(view), ran)
    main, *strip = drawn.pictures
    if view.head == "mean":
        titles: tuple[str, ...] = (say(language, "attention.mean", heads=view.heads),)
    else:
        titles = tuple(title(view, head, language) for head in view.drawn_heads)
    caption = _caption(view, ran, drawn, language)
    head = strip_head(view)
    strip_maps = tuple(
        _maps(view, picture, (key,), (STAGES[key].label.say(language),), language)[0]
        for key, picture in zip(view.stages, strip, strict=True)
    )
    return {
        MAIN: Grid(_maps(view, main, map_keys(view), titles, language), caption, _alt(view, main, language)),
        STRIP: Grid(strip_maps, "", say(language, "attention.strip_alt", head=head)),
    }


def _caption(view: View, ran: Fused | None, drawn: pictures.Drawn, language: str) -> str:
    """Say what ran, where, how long it took and what it holds."""
    prediction = guard.predict(view)
    return say(
        language,
        "attention.caption",
        variant=view.variant.upper(),
        heads=view.heads,
        kv_heads=view.kv_heads,
        shape=f"{units.count(view.length)} × {units.count(view.key_length)}",
        d_k=view.d_k,
        dtype=view.dtype,
        device=view.device,
        backend=BACKENDS[view.backend].label if ran is None else ran.kernel,
        seconds=units.seconds(drawn.seconds),
        bytes=units.binary_bytes(prediction.total),
        blocks=drawn.blocks,
    ) + "".join(f" · {label}" for label in attention_rules.labels(view, language))


def _alt(view: View, picture: Picture, language: str) -> str:
    """Describe the large picture in words and numbers."""
    counted = np.isfinite(picture.values)
    if picture.state is not None:
        counted &= picture.state == stages.VALUE
    stage, request = STAGES[view.stage], picture.request
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
        high=f"{flat[index, row, col]:.4g}",
        low=f"{np.where(counted, picture.values, np.inf).min():.4g}",
        row=request.rows[0] + row * picture.pool[0],
        col=request.cols[0] + col * picture.pool[1],
        head=map_keys(view)[index],
        empty=picture.no_key_rows,
    )


def read(params: Mapping[str, str], own: tuple[str, ...]) -> tuple[View, str, dict[str, str]]:
    """Read a live request, ``own`` names aside: the view, the language, and the settings as they came.

    Raises:
        Refusal: For the first setting that cannot be read, and for a view that is too large.
    """
    given = {name: text for name, text in params.items() if name not in own}
    settled = settle(given)
    if settled.problems:
        raise Refusal(settled.problems[0])
    guard.check(settled.view)
    return settled.view, "zh" if params.get("lang") == "zh" else "en", given


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of both grids, or of one map's region where ``part``, ``rows`` and ``cols`` ask for it.

    Raises:
        Refusal: For settings that cannot be read and views that are too large.
    """
    is_region = bool({"rows", "cols"} & params.keys())
    view, language, given = read(params, _OF_REGION if is_region else ("lang",))
    if is_region:
        _check_part(params, (MAIN,))
        return pack(FIGURE, given, {MAIN: _region(view, params, language)})
    return pack(FIGURE, given, grids(view, language))


def _span(params: Mapping[str, str], name: str, length: int) -> tuple[int, int]:
    parts = params.get(name, f"0-{length}").split("-")
    if len(parts) == 2 and all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        start, stop = int(parts[0]), int(parts[1])
        if 0 <= start < stop <= length:
            return start, stop
    raise Refusal(_REGION.fill(name=name, value=repr(params.get(name, "")[:40])))


def _region(view: View, params: Mapping[str, str], language: str) -> Grid:
    """Give the main picture of a region, as exact as its size allows."""
    call, ran = run(view)
    whole = requests(view)[0]
    rows, cols = call.extent(view.stage)
    asked = pictures.Request(
        whole.stage, whole.heads, whole.max_side, whole.reduce, whole.average,
        _span(params, "rows", rows), _span(params, "cols", cols),
    )  # fmt: skip
    drawn = pictures.draw(call, [asked], ran)
    return Grid(_maps(view, drawn.pictures[0], map_keys(view), map_keys(view), language), "", "")


def cell(params: Mapping[str, str]) -> dict[str, object]:
    """Give the exact value of one cell: ``part``, ``map``, ``row`` and ``col`` say which.

    Raises:
        Refusal: For settings that cannot be read and cells outside the map.
    """
    view, _, _ = read(params, _OF_CELL)
    _check_part(params, (MAIN, STRIP))
    strip = params.get("part") == STRIP
    stage = params.get("map", "") if strip else view.stage
    keys = view.stages if strip else map_keys(view)
    if params.get("map") not in keys:
        raise Refusal(_ONE_OF.fill(name="map", options=", ".join(keys), value=repr(params.get("map", "")[:40])))
    call, ran = run(view)
    row, col = (_index(params, *each) for each in zip(("row", "col"), call.extent(stage), strict=True))
    heads = (strip_head(view),) if strip else view.drawn_heads if view.head == "mean" else (int(params["map"]),)
    asked = pictures.Request(stage, heads, 1, "max", view.head == "mean" and not strip, (row, row + 1), (col, col + 1))
    picture = pictures.draw(call, [asked], ran).pictures[0]
    state = stages.VALUE if picture.state is None else int(picture.state[0, 0, 0])
    return {"value": np.format_float_positional(picture.values[0, 0, 0], trim="-") if state == stages.VALUE else "",
            "state": state, "row": row, "col": col}  # fmt: skip


def _check_part(params: Mapping[str, str], parts: tuple[str, ...]) -> None:
    """Refuse a part that has no such cells; the large picture is meant where none is named."""
    if params.get("part", MAIN) not in parts:
        raise Refusal(_ONE_OF.fill(name="part", options=", ".join(parts), value=repr(params["part"][:40])))


def _index(params: Mapping[str, str], name: str, length: int) -> int:
    text = params.get(name, "")
    if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) < length:
        return int(text)
    raise Refusal(_INDEX.fill(name=name, high=length - 1, value=repr(text[:40])))
