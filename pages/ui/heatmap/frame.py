"""The bytes that a heatmap draws: a header that says what is there, then two bytes for each cell.

``uint32 header length | header JSON, padded so that the cells start at a multiple of 8 | cells``. A cell is a code from
0 to ``TOP``, linear between the map's ``low`` and ``high`` (in log10 on a log scale), or one of the marks above ``TOP``.
The browser colours codes by table look-up; colours and theme are its own business.
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

    def header(self) -> dict[str, object]:
        """Give the axis as the header has it."""
        return {
            "dim": self.dim,
            "label": self.label,
            "start": self.start,
            "length": self.length,
            "tokens": None if self.tokens is None else list(self.tokens),
        }


@dataclass(frozen=True)
class Map:
    """Hold one map to draw.

    Args:
        key: Its key within the grid.
        title: Its title on screen.
        values: ``[rows, cols]``, any float type.
        row_axis: The vertical axis.
        col_axis: The horizontal axis.
        state: uint8 ``[rows, cols]``: 0 value, 1 masked, 2 row without a key; None where all are values.
        pool: Cells that one drawn cell stands for, along rows and columns.
        reduce: How they were pooled: ``max`` or ``mean``.
        palette: ``sequential`` or ``diverging``.
        log: Whether colours follow the logarithm.
        low: Value of the first colour; None takes it from the map.
        high: Value of the last colour; None takes it from the map.
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


@dataclass(frozen=True)
class Grid:
    """Hold maps that are drawn together, the line under them and their description for those who do not see them."""

    maps: tuple[Map, ...]
    caption: str = ""
    alt: str = ""


def _limits(drawn: Map) -> tuple[float, float]:
    """Give the values of code 0 and code ``TOP``: those asked for, else the map's own."""
    if drawn.low is not None and drawn.high is not None:
        return float(drawn.low), float(drawn.high)
    counted = np.isfinite(drawn.values)
    if drawn.state is not None:
        counted &= drawn.state == VALUE_STATE
    if drawn.log:
        counted &= drawn.values > 0
    own = drawn.values[counted]
    low = float(own.min()) if own.size else (1.0 if drawn.log else 0.0)
    high = float(own.max()) if own.size else 1.0
    return low if drawn.low is None else float(drawn.low), high if drawn.high is None else float(drawn.high)


def encode(drawn: Map, low: float, high: float) -> np.ndarray:
    """Turn a map's values into codes, uint16 ``[rows, cols]``."""
    values = np.asarray(drawn.values, dtype=np.float32)
    below = None
    if drawn.log:
        below = values <= 0
        with np.errstate(divide="ignore", invalid="ignore"):
            position = np.log10(values, dtype=np.float32)
        first, last = math.log10(low), math.log10(high)
    else:
        position, first, last = values, low, high
    reach = last - first
    if not math.isfinite(reach):
        # Limits at both ends of the float range: work in halves.
        position, first, reach = position / 2, first / 2, last / 2 - first / 2
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = position - np.float32(first)
        scaled *= np.float32(TOP / reach) if reach > 0 and math.isfinite(TOP / reach) else np.float32(0)
        scaled += np.float32(0.5)
        # A sum is NaN or infinite as soon as one cell is: the usual map needs no second look.
        odd = not np.isfinite(scaled.sum(dtype=np.float64)) or not np.isfinite(values.sum(dtype=np.float64))
        np.clip(scaled, 0, TOP, out=scaled)
        if odd:
            np.nan_to_num(scaled, copy=False, nan=0.0)
    codes = scaled.astype(np.uint16)
    if below is not None:
        codes[below] = BELOW
    if odd:
        codes[np.isnan(values)] = NAN
        codes[np.isinf(values)] = INF
    if drawn.state is not None:
        np.copyto(codes, np.uint16(MASKED), where=drawn.state == MASKED_STATE)
        np.copyto(codes, np.uint16(NO_KEY), where=drawn.state == NO_KEY_STATE)
    return codes


def _entry(drawn: Map, codes: np.ndarray, offset: int, low: float, high: float) -> dict[str, object]:
    state = drawn.state
    return {
        "key": drawn.key,
        "title": drawn.title,
        "rows": codes.shape[0],
        "cols": codes.shape[1],
        "pool": list(drawn.pool),
        "reduce": drawn.reduce,
        "offset": offset,
        "low": low,
        "high": high,
        "log": drawn.log,
        "palette": drawn.palette,
        "row_axis": drawn.row_axis.header(),
        "col_axis": drawn.col_axis.header(),
        "masked": bool(state is not None and (state == MASKED_STATE).any()),
        "no_key": bool(state is not None and (state == NO_KEY_STATE).any()),
        **{name: bool((codes == code).any()) for name, code in (("nan", NAN), ("inf", INF), ("below", BELOW))},
    }


def pack(
    figure: str, params: Mapping[str, str], parts: Mapping[str, Grid], config: Mapping[str, object] | None = None
) -> bytes:
    """Give the bytes of one frame.

    Args:
        figure: Which figure it is.
        params: The parameters it answers, as they stand in a link.
        parts: The grids by name.
        config: What a component needs besides, when the frame is its data.

    Raises:
        ValueError: If the frame would be larger than ``MOST_BYTES``, or a map is not two-dimensional.
    """
    payload: list[bytes] = []
    offset = 0
    described: dict[str, object] = {}
    for name, grid in parts.items():
        maps = []
        for drawn in grid.maps:
            if drawn.values.ndim != 2 or not drawn.values.size:
                raise ValueError(f"values of map {drawn.key!r} must be [rows, cols], got {drawn.values.shape}")
            low, high = _limits(drawn)
            codes = encode(drawn, low, high)
            maps.append(_entry(drawn, codes, offset, low, high))
            payload.append(codes.tobytes())
            offset += codes.nbytes
        described[name] = {"maps": maps, "caption": grid.caption, "alt": grid.alt}
    header: dict[str, object] = {"figure": figure, "params": dict(params), "parts": described}
    if config is not None:
        header["config"] = config
    text = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )
    text += b" " * (-(4 + len(text)) % 8)
    size = 4 + len(text) + offset
    if size > MOST_BYTES:
        raise ValueError(f"a frame must be at most {MOST_BYTES} bytes, got {size}")
    return b"".join((struct.pack("<I", len(text)), text, *payload))


def unpack(frame: bytes) -> tuple[dict, dict[str, list[np.ndarray]]]:
    """Take a frame apart again.

    Returns:
        The header, and each part's codes, uint16 ``[rows, cols]`` per map.
    """
    (size,) = struct.unpack_from("<I", frame)
    header = json.loads(frame[4 : 4 + size].decode("utf-8", "surrogatepass"))
    codes = {
        name: [
            np.frombuffer(frame, np.uint16, m["rows"] * m["cols"], 4 + size + m["offset"]).reshape(m["rows"], m["cols"])
            for m in part["maps"]
        ]
        for name, part in header["parts"].items()
    }
    return header, codes
