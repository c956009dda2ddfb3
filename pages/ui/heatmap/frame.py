"""The bytes that a heatmap draws: a header that says what is there, then two bytes for each cell.

``uint32 header length | header JSON, padded so that the cells start at a multiple of 8 | cells``. A cell is a code from
0 to ``TOP``, linear between the map's ``low`` and ``high`` (in log10 on a log scale), or one of the marks above it. The
browser colours codes by table look-up; colours and theme are its own business. Token names stand once in the header,
however many axes carry them.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

TOP = 65_529
BELOW, MASKED, NO_KEY, NAN, INF = 65_531, 65_532, 65_533, 65_534, 65_535
# A message to the browser stays below this; larger maps are pooled before they come here.
MOST_BYTES = 2_200_000
VALUE_STATE, MASKED_STATE, NO_KEY_STATE = 0, 1, 2
PALETTES, REDUCTIONS = ("sequential", "diverging"), ("max", "mean")
# Within these the arithmetic of codes stays exact enough in float32.
_NARROWEST, _WIDEST = 1e-30, 1e30


@dataclass(frozen=True)
class Axis:
    """Describe one side of a map.

    Args:
        dim: What it counts: ``query``, ``key`` or ``feature``; a selection marks every map by it.
        label: Its title on screen.
        length: Number of tokens or entries that the map covers.
        start: Index of the first of them.
        tokens: Their names, or None where only the index is shown.
    """

    dim: str
    label: str
    length: int
    start: int = 0
    tokens: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Map:
    """Hold one map to draw.

    Args:
        key: Its key within the grid.
        title: Its title on screen.
        values: ``[rows, cols]``, any float type; drawn as float32.
        row_axis: The vertical axis.
        col_axis: The horizontal axis.
        state: uint8 ``[rows, cols]``: 0 value, 1 masked, 2 row without a key; None where all are values.
        pool: Cells that one drawn cell stands for, along rows and columns.
        reduce: How they were pooled: ``max`` or ``mean``.
        palette: ``sequential`` or ``diverging``.
        log: Whether colours follow the logarithm.
        low: Value of the first colour; None takes it from the map.
        high: Value of the last colour; None takes it from the map.
        kinds: Values that have a name, with it: they stand in the legend, and there is no colour bar.
    """

    key: str
    title: str
    values: np.ndarray
    row_axis: Axis
    col_axis: Axis
    state: np.ndarray | None = None
    pool: tuple[int, int] = (1, 1)
    reduce: str = "max"
    palette: str = "sequential"
    log: bool = False
    low: float | None = None
    high: float | None = None
    kinds: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Grid:
    """Hold maps that are drawn together, the line under them and their description for those who do not see them.

    Args:
        maps: The maps, in reading order.
        caption: The line under them.
        alt: What they show, in words and numbers.
        lines: Name and note of every line of maps, where each has a heading; all lines are equally long then.
    """

    maps: tuple[Map, ...]
    caption: str = ""
    alt: str = ""
    lines: tuple[tuple[str, str], ...] = ()


def check(drawn: Map) -> None:
    """Refuse a map that says two things at once.

    Raises:
        ValueError: Naming the argument, the rule and what came.
    """
    shape = np.shape(drawn.values)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"values of map {drawn.key!r} must be [rows, cols], got {shape}")
    if drawn.state is not None and drawn.state.shape != shape:
        raise ValueError(f"state of map {drawn.key!r} must be {shape} as its values, got {drawn.state.shape}")
    if drawn.palette not in PALETTES:
        raise ValueError(f"palette must be one of {', '.join(PALETTES)}, got {drawn.palette!r}")
    if drawn.reduce not in REDUCTIONS:
        raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, got {drawn.reduce!r}")
    for name, axis, cells, pool in zip(
        ("row", "col"), (drawn.row_axis, drawn.col_axis), shape, drawn.pool, strict=True
    ):
        if pool < 1 or cells != -(-axis.length // pool):
            raise ValueError(
                f"{name}s of map {drawn.key!r} must be {name}_axis.length over pool, rounded up, "
                f"got {cells} for {axis.length} over {pool}"
            )
        if axis.tokens is not None and len(axis.tokens) != axis.length:
            raise ValueError(f"tokens of {name}_axis must be {axis.length}, got {len(axis.tokens)}")
    for name, limit in (("low", drawn.low), ("high", drawn.high)):
        if limit is not None and not (math.isfinite(limit) and (limit > 0 or not drawn.log)):
            raise ValueError(f"{name} must be finite{', above 0 on a log scale' if drawn.log else ''}, got {limit!r}")


def _single(values: np.ndarray) -> np.ndarray:
    """Give values as float32; what it cannot hold is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float32)


def limits(drawn: Map) -> tuple[float, float]:
    """Give the values of code 0 and code ``TOP``: those asked for, else the map's own finite ones."""
    low, high = drawn.low, drawn.high
    if low is None or high is None:
        values = _single(drawn.values)
        counted = np.isfinite(values)
        if drawn.state is not None:
            counted &= drawn.state == VALUE_STATE
        if drawn.log:
            counted &= values > 0
        own = values[counted]
        empty = 1.0 if drawn.log else 0.0
        low = low if low is not None else float(own.min()) if own.size else empty
        high = high if high is not None else float(own.max()) if own.size else max(low, 1.0)
    return float(low), max(float(low), float(high))


def encode(drawn: Map, low: float, high: float) -> tuple[np.ndarray, dict[str, bool]]:
    """Turn a map's values into codes.

    Args:
        drawn: The map.
        low: Value of code 0.
        high: Value of code ``TOP``; values outside take the nearer end.

    Returns:
        Codes, uint16 ``[rows, cols]``, and which of the marks ``masked, no_key, nan, inf, below`` are among them.
    """
    values = _single(drawn.values)
    position, first, last = values, low, high
    there = {"masked": False, "no_key": False, "nan": False, "inf": False, "below": False}
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # A sum is NaN or infinite as soon as one cell is: the usual map needs no second look.
        odd = not math.isfinite(values.sum(dtype=np.float64))
        if drawn.log:
            position, first, last = np.log10(values), math.log10(low), math.log10(high)
        reach = last - first
        if not _NARROWEST < reach < _WIDEST:
            position = position.astype(np.float64)
        scaled = position - position.dtype.type(first)
        scaled *= position.dtype.type(TOP / reach if reach > 0 and math.isfinite(TOP / reach) else 0)
        scaled += position.dtype.type(0.5)
        np.clip(scaled, 0, TOP, out=scaled)
        if odd or drawn.log:
            np.nan_to_num(scaled, copy=False, nan=0.0)
    codes = scaled.astype(np.uint16)
    marks: list[tuple[str, int, np.ndarray]] = []
    if drawn.log:
        marks.append(("below", BELOW, values <= 0))
    if odd:
        marks += [("nan", NAN, np.isnan(values)), ("inf", INF, np.isinf(values))]
    if drawn.state is not None:
        marks += [("masked", MASKED, drawn.state == MASKED_STATE), ("no_key", NO_KEY, drawn.state == NO_KEY_STATE)]
    for name, code, where in marks:
        if where.any():
            np.copyto(codes, np.uint16(code), where=where)
            there[name] = True
    if drawn.state is not None and any(there[name] for name in ("nan", "inf", "below")):
        there |= {name: bool((codes == code).any()) for name, code in (("nan", NAN), ("inf", INF), ("below", BELOW))}
    return codes, there


class _Names:
    """Collect the token names of a frame, each list of them once."""

    def __init__(self) -> None:
        self.lists: list[tuple[str, ...]] = []
        self._index: dict[tuple[str, ...], int] = {}

    def axis(self, axis: Axis) -> dict[str, object]:
        """Give an axis as the header has it: its names by their place in ``lists``."""
        at = None
        if axis.tokens is not None:
            at = self._index.setdefault(axis.tokens, len(self.lists))
            if at == len(self.lists):
                self.lists.append(axis.tokens)
        return {"dim": axis.dim, "label": axis.label, "start": axis.start, "length": axis.length, "tokens": at}


def pack(
    figure: str, params: Mapping[str, str], parts: Mapping[str, Grid], config: Mapping[str, object] | None = None
) -> bytes:
    """Give the bytes of one frame.

    Args:
        figure: Which figure it is.
        params: The parameters it answers, as they stand in a link.
        parts: The grids by name.
        config: What a component needs besides, when the frame is its data.

    Returns:
        At most ``MOST_BYTES`` bytes.

    Raises:
        ValueError: If the frame would be larger, or a map is not as ``Map`` says.
    """
    payload: list[bytes] = []
    offset = 0
    names = _Names()
    described: dict[str, object] = {}
    for name, grid in parts.items():
        if grid.lines and (not grid.maps or len(grid.maps) % len(grid.lines)):
            raise ValueError(f"maps of {name!r} must fill {len(grid.lines)} lines evenly, got {len(grid.maps)}")
        maps = []
        for drawn in grid.maps:
            check(drawn)
            low, high = limits(drawn)
            codes, there = encode(drawn, low, high)
            maps.append(
                {
                    "key": drawn.key, "title": drawn.title, "rows": codes.shape[0], "cols": codes.shape[1],
                    "pool": list(drawn.pool), "reduce": drawn.reduce, "offset": offset, "low": low, "high": high,
                    "log": drawn.log, "palette": drawn.palette, "row_axis": names.axis(drawn.row_axis),
                    "col_axis": names.axis(drawn.col_axis), "kinds": drawn.kinds, **there,
                }
            )  # fmt: skip
            payload.append(codes.tobytes())
            offset += codes.nbytes
        described[name] = {"maps": maps, "caption": grid.caption, "alt": grid.alt, "lines": grid.lines}
    header: dict[str, object] = {"figure": figure, "params": dict(params), "parts": described, "tokens": names.lists}
    if config is not None:
        header["config"] = config
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    head = text.encode("utf-8", "surrogatepass")
    head += b" " * (-(4 + len(head)) % 8)
    size = 4 + len(head) + offset
    if size > MOST_BYTES:
        raise ValueError(f"a frame must be at most {MOST_BYTES} bytes, got {size}")
    return b"".join((struct.pack("<I", len(head)), head, *payload))


def unpack(frame: bytes) -> tuple[dict, dict[str, list[np.ndarray]]]:
    """Take a frame apart again.

    Returns:
        The header, its axes with their token names, and each part's codes, uint16 ``[rows, cols]`` per map.
    """
    (size,) = struct.unpack_from("<I", frame)
    header = json.loads(frame[4 : 4 + size].decode("utf-8", "surrogatepass"))
    codes: dict[str, list[np.ndarray]] = {}
    for name, part in header["parts"].items():
        codes[name] = []
        for drawn in part["maps"]:
            shape = drawn["rows"], drawn["cols"]
            cells = np.frombuffer(frame, "<u2", shape[0] * shape[1], 4 + size + drawn["offset"])
            codes[name].append(cells.reshape(shape))
            for axis in (drawn["row_axis"], drawn["col_axis"]):
                axis["tokens"] = None if axis["tokens"] is None else header["tokens"][axis["tokens"]]
    return header, codes
