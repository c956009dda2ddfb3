"""The bytes that a heatmap draws: what goes in comes out, and every odd cell keeps its mark."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from pages.ui.heatmap.frame import (
    BELOW,
    INF,
    MASKED,
    MOST_BYTES,
    NAN,
    NO_KEY,
    TOP,
    Axis,
    Grid,
    Map,
    limits,
    pack,
    unpack,
)

RNG = np.random.default_rng(2)


def drawn(values: object, **more: object) -> Map:
    array = np.asarray(values, dtype=more.pop("dtype", np.float32))  # pyright: ignore[reportArgumentType, reportCallIssue]
    axes = Axis("query", "query", array.shape[0]), Axis("key", "key", array.shape[1])
    return Map("0", "head 0", array, *axes, **more)  # pyright: ignore[reportArgumentType]


def sent(*maps: Map) -> tuple[list[dict], list[np.ndarray]]:
    """Pack maps, unpack them, and give their entries and codes."""
    header, codes = unpack(pack("figure", {}, {"main": Grid(maps)}))
    return header["parts"]["main"]["maps"], codes["main"]


def read(entry: dict, codes: np.ndarray) -> np.ndarray:
    """Give the values that codes stand for, as the browser reads them."""
    share = codes.astype(np.float64) / TOP
    if entry["log"]:
        return 10 ** (np.log10(entry["low"]) * (1 - share) + np.log10(entry["high"]) * share)
    return entry["low"] * (1 - share) + entry["high"] * share


def marks(entry: dict) -> set[str]:
    return {name for name in ("masked", "no_key", "nan", "inf", "below") if entry[name]}


def test_lines_of_maps_have_headings_and_are_equally_long() -> None:
    maps, lines = tuple(replace(drawn([[1.0]]), key=str(i)) for i in range(6)), (("A", "one"), ("B", "two"))
    header, _ = unpack(pack("figure", {}, {"main": Grid(maps, lines=lines)}))
    assert header["parts"]["main"]["lines"] == [["A", "one"], ["B", "two"]]
    for count in (0, 5):
        with pytest.raises(ValueError, match=f"maps of 'main' must fill 2 lines evenly, got {count}"):
            pack("figure", {}, {"main": Grid(maps[:count], lines=lines)})


@pytest.mark.parametrize("shape", [(1, 1), (7, 9), (18, 79), (256, 64)])
@pytest.mark.parametrize("size", [1e-12, 1.0, 3e4, 1e20])
def test_values_come_back_within_half_a_step(shape: tuple[int, int], size: float) -> None:
    values = (RNG.standard_normal(shape) * size).astype(np.float32)
    (entry,), (codes,) = sent(drawn(values))
    assert codes.shape == shape
    step = (entry["high"] - entry["low"]) / TOP
    assert np.abs(read(entry, codes) - values).max() <= 0.51 * step + 1e-6 * np.abs(values).max()
    assert marks(entry) == set()


def test_the_ends_of_the_range_are_the_ends_of_the_codes() -> None:
    (entry,), (codes,) = sent(drawn([[-3.0, 0.0, 5.0]]))
    assert (entry["low"], entry["high"]) == (-3.0, 5.0)
    assert codes.tolist() == [[0, round(TOP * 3 / 8), TOP]]


def test_values_beyond_a_given_range_take_its_ends() -> None:
    (entry,), (codes,) = sent(drawn([[-7.0, 0.25, 9.0, 3e38]], low=0.0, high=1.0))
    assert (entry["low"], entry["high"]) == (0.0, 1.0)
    assert codes.tolist() == [[0, round(TOP / 4), TOP, TOP]]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("value", [0.25, 1e-30, 3e38])
def test_a_constant_map_is_its_own_range(value: float, log: bool) -> None:
    (entry,), (codes,) = sent(drawn([[value, value]], log=log))
    assert entry["low"] == entry["high"] == pytest.approx(value)
    assert codes.tolist() == [[0, 0]]


def test_a_log_scale_counts_in_powers() -> None:
    (entry,), (codes,) = sent(drawn([[1e-4, 1e-2, 1.0, 0.0, -1.0]], log=True))
    assert entry["low"] == pytest.approx(1e-4)
    assert codes[0, :3].tolist() == pytest.approx([0, TOP / 2, TOP], abs=1)
    assert codes[0, 3:].tolist() == [BELOW, BELOW]
    assert marks(entry) == {"below"}


def test_log_values_come_back_at_one_relative_precision() -> None:
    values = np.exp(RNG.uniform(-60, 0, (40, 40))).astype(np.float32)
    (entry,), (codes,) = sent(drawn(values, log=True))
    assert np.abs(read(entry, codes) / values - 1).max() < 1e-3


def test_every_odd_cell_keeps_its_mark() -> None:
    values = [[np.nan, np.inf, -np.inf, 0.5], [np.nan, 1.0, 0.0, 0.25], [np.nan] * 4]
    state = np.array([[0, 0, 0, 1], [1, 0, 0, 0], [2] * 4], np.uint8)
    (entry,), (codes,) = sent(drawn(values, state=state))
    assert codes.tolist() == [[NAN, INF, INF, MASKED], [MASKED, TOP, 0, TOP // 4], [NO_KEY] * 4]
    assert marks(entry) == {"nan", "inf", "masked", "no_key"}
    assert (entry["low"], entry["high"]) == (0.0, 1.0)


def test_marks_that_the_mask_hides_are_not_in_the_legend() -> None:
    state = np.array([[1, 0], [2, 2]], np.uint8)
    (entry,), (codes,) = sent(drawn([[np.nan, 0.5], [np.inf, 0.0]], state=state))
    assert marks(entry) == {"masked", "no_key"}
    assert codes.tolist() == [[MASKED, 0], [NO_KEY, NO_KEY]]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("fill", [np.nan, np.inf, 3.0])
def test_a_map_without_any_value_has_a_range_all_the_same(fill: float, log: bool) -> None:
    (entry,), (codes,) = sent(drawn(np.full((3, 3), fill), state=np.ones((3, 3), np.uint8), log=log))
    assert np.isfinite([entry["low"], entry["high"]]).all()
    assert entry["low"] <= entry["high"]
    assert (codes == MASKED).all()


@pytest.mark.parametrize(
    ("low", "high"), [(-3.4e38, 3.4e38), (-3e38, 3e38), (0.0, 3.4e38), (1e-45, 1e-44), (-1e-40, 1e-40), (1e30, 2e31)]
)
def test_huge_and_tiny_ranges_keep_their_middle(low: float, high: float) -> None:
    values = np.linspace(low, high, 9).astype(np.float32)[None]
    (_,), (codes,) = sent(drawn(values, low=float(values[0, 0]), high=float(values[0, -1])))
    reach = float(values[0, -1]) - float(values[0, 0])
    expected = (values.astype(np.float64) - float(values[0, 0])) / reach * TOP
    assert np.abs(codes - expected).max() <= 1


def test_a_range_below_all_arithmetic_is_a_constant() -> None:
    _, (codes,) = sent(drawn([[0.0, 0.0]], low=0.0, high=1e-310))
    assert codes.tolist() == [[0, 0]]


def test_values_that_float32_cannot_hold_are_infinite() -> None:
    (entry,), (codes,) = sent(drawn([[1e300, 1.0, 0.0]], dtype=np.float64))
    assert codes.tolist() == [[INF, TOP, 0]]
    assert entry["high"] == 1.0


def test_a_range_of_a_small_spread_on_a_large_value() -> None:
    values = np.float32(1e6) + np.arange(8, dtype=np.float32)[None]
    (entry,), (codes,) = sent(drawn(values))
    assert np.abs(read(entry, codes) - values).max() < 1e-4


def test_limits_of_which_one_is_given() -> None:
    assert limits(drawn([[2.0, 5.0]], low=0.0)) == (0.0, 5.0)
    assert limits(drawn([[2.0, 5.0]], high=9.0)) == (2.0, 9.0)
    assert limits(drawn([[2.0, 5.0]], low=7.0)) == (7.0, 7.0)


def test_the_layout_of_the_bytes() -> None:
    maps = (drawn([[0.0, 1.0, 0.5]]), replace(drawn([[0.0], [1.0]]), key="b"))
    frame = pack("figure", {"d": "3", "text": "a&b 猫"}, {"one": Grid(maps, "cap", "alt")}, {"height": 3})
    (size,) = struct.unpack_from("<I", frame)
    assert (4 + size) % 8 == 0
    header = json.loads(frame[4 : 4 + size])
    assert header["figure"] == "figure"
    assert header["params"] == {"d": "3", "text": "a&b 猫"}
    assert header["config"] == {"height": 3}
    assert header["parts"]["one"]["caption"] == "cap"
    assert header["parts"]["one"]["alt"] == "alt"
    assert [entry["offset"] for entry in header["parts"]["one"]["maps"]] == [0, 6]
    assert np.frombuffer(frame[4 + size :], "<u2").tolist() == [0, TOP, (TOP + 1) // 2, 0, TOP]


def test_tokens_stand_once_and_come_back_as_they_were() -> None:
    tokens = ("the", "the", "<b>", "a\tb\n", "猫", "🙂", "\ud800", "")
    axes = Axis("query", "query", 8, 0, tokens), Axis("key", "key", 8, 4, tokens)
    one = Map("0", "head 0", np.eye(8), *axes)
    frame = pack("figure", {}, {"main": Grid((one, replace(one, key="1"))), "more": Grid((one,))})
    assert frame.count("猫".encode()) == 1
    header, _ = unpack(frame)
    for part, index in (("main", 0), ("main", 1), ("more", 0)):
        entry = header["parts"][part]["maps"][index]
        assert entry["row_axis"] == {"dim": "query", "label": "query", "start": 0, "length": 8, "tokens": list(tokens)}
        assert entry["col_axis"]["start"] == 4
    assert json.dumps(header["tokens"]) == json.dumps([list(tokens)])


def test_a_grid_without_maps() -> None:
    header, codes = unpack(pack("figure", {}, {"main": Grid(())}))
    assert header["parts"]["main"]["maps"] == []
    assert codes == {"main": []}


def test_a_pooled_map_says_how_much_a_cell_stands_for() -> None:
    axes = Axis("query", "query", 10), Axis("key", "key", 7)
    (entry,), _ = sent(Map("0", "", np.ones((3, 4)), *axes, pool=(4, 2), reduce="mean"))
    assert (entry["pool"], entry["reduce"]) == ([4, 2], "mean")


def test_a_frame_keeps_below_the_limit() -> None:
    side = 1024
    assert len(pack("figure", {}, {"main": Grid((drawn(np.zeros((side, side))),))})) < MOST_BYTES
    with pytest.raises(ValueError, match=r"at most 2200000 bytes, got 2\d{6}"):
        pack("figure", {}, {"main": Grid((drawn(np.zeros((side, side + 100))),))})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"values": np.zeros(4)}, r"\[rows, cols\], got \(4,\)"),
        ({"values": np.zeros((0, 3))}, r"\[rows, cols\], got \(0, 3\)"),
        ({"values": np.zeros((2, 3))}, "got 3 for 2 over 1"),
        ({"state": np.zeros((1, 2), np.uint8)}, r"state of map '0' must be \(2, 2\)"),
        ({"pool": (1, 0)}, "col_axis.length over pool"),
        ({"palette": "rainbow"}, "palette must be one of sequential, diverging, got 'rainbow'"),
        ({"reduce": "median"}, "reduce must be one of max, mean, got 'median'"),
        ({"low": float("nan")}, "low must be finite, got nan"),
        ({"high": float("inf")}, "high must be finite, got inf"),
        ({"low": 0.0, "log": True}, "low must be finite, above 0 on a log scale, got 0.0"),
        ({"row_axis": Axis("query", "query", 2, 0, ("a",))}, "tokens of row_axis must be 2, got 1"),
    ],
)
def test_a_map_that_contradicts_itself_is_refused(more: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pack("figure", {}, {"main": Grid((replace(drawn([[0.0, 1.0], [1.0, 0.0]]), **more),))})
