"""The settings of the flash page; the mask chosen adds its own knobs."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from attnviz.knobs import Choice, Integer, Knob, Number
from attnviz.masks import MASKS
from attnviz.settings import D_K_STOPS
from attnviz.text import Text, same

MOST_LENGTH = 4096
# Lines of the code in which a fault is to be found.
MOST_LINES = 18
# Tiles along one side: beyond, they cannot be told apart, and a rule is asked about too many of them.
MOST_TILES = 64
LENGTH_STOPS = (*range(1, 17), 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 384, 512, 768, 1024, 2048, 4096)
TILE_STOPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)


def _length(name: str, label: Text, help: Text) -> Integer:
    return Integer(name, label, 128, help, low=1, high=MOST_LENGTH, stops=LENGTH_STOPS)


def _tile(name: str, label: Text, help: Text) -> Integer:
    return Integer(name, label, 16, help, low=1, high=MOST_LENGTH, slider_high=1024, stops=TILE_STOPS)


_KNOBS = (
    Choice(
        "mask",
        Text("Mask", "掩码"),
        "causal",
        Text("A tile in which no pair may attend is never loaded.", "一个块里没有任何可见的位置对时，根本不会载入。"),
        options={key: kind.label for key, kind in MASKS.items()},
    ),
    _length("length", Text("Length", "序列长度"), Text("Number of queries.", "查询的个数。")),
    _length(
        "key_length",
        Text("Key length", "键的个数"),
        Text("Number of keys; as many as queries until it is set.", "键的个数；未设置时与查询相同。"),
    ),
    Choice(
        "align",
        Text("Alignment", "对齐方式"),
        "top_left",
        Text(
            "Which corner the diagonal starts in when queries and keys differ in number. Decoding uses bottom-right.",
            "查询与键个数不同时，对角线从哪个角开始。解码时用右下角。",
        ),
        options={"top_left": Text("top-left", "左上"), "bottom_right": Text("bottom-right", "右下")},
    ),
    _tile("tile_rows", Text("Tile rows", "块高"), Text("Queries in a tile, B_r.", "一个块里的查询数，即 B_r。")),
    _tile("tile_cols", Text("Tile keys", "块宽"), Text("Keys in a tile, B_c.", "一个块里的键数，即 B_c。")),
    Integer(
        "step",
        Text("Step", "步数"),
        0,
        Text("Tiles worked off so far, in the order of the computation.", "按计算顺序，到目前为止已完成的块数。"),
        low=0,
        high=MOST_TILES**2,
    ),
    Integer(
        "row",
        Text("Row", "行"),
        15,
        Text(
            "Which query of the current block of queries is followed, counted from 0.",
            "跟踪当前这块查询中的第几个，从 0 数起。",
        ),
        low=0,
        high=MOST_LENGTH - 1,
    ),
    Integer(
        "d_k",
        same("d_k (head_dim)"),
        64,
        Text("Width of a query, a key and a value.", "查询、键和值的维度。"),
        low=1,
        high=1024,
        slider_high=256,
        stops=D_K_STOPS,
    ),
    Number(
        "sharpness",
        Text("Sharpness", "尖锐程度"),
        1.0,
        Text(
            "Multiplies the scores beyond 1/√d_k. Sharp rows move the running maximum more often.",
            "在 1/√d_k 之外再乘到分数上。行越尖锐，当前最大值变动越多。",
        ),
        low=0.0,
        high=1000.0,
        slider_high=16.0,
        step=0.25,
    ),
    Integer("seed", Text("Seed", "随机种子"), 0, low=0, high=2**31 - 1),
    Choice(
        "tokens",
        Text("Tokens of the count", "计数所用的 token 数"),
        "1024",
        Text(
            "Bytes are counted for so many queries and keys, with the mask and d_k of this page.",
            "按这么多查询和键来计数字节，掩码与 d_k 同本页设置。",
        ),
        options={str(tokens): same(f"{tokens:,}") for tokens in (512, 1024, 4096)},
    ),
    Choice(
        "bug",
        Text("Version", "版本"),
        "own",
        options={"own": Text("Version A", "版本 A"), "first": Text("Version B", "版本 B")},
    ),
    Choice(
        "line",
        Text("Which line makes the NaN?", "哪一行产生了 NaN？"),
        "none",
        options={
            "none": same("?"),
            **{str(line): same(str(line)) for line in range(1, MOST_LINES + 1)},
            "show": Text("show me", "给我看"),
        },
    ),
)

KNOBS: Mapping[str, Knob] = MappingProxyType({knob.name: knob for knob in _KNOBS})


def mask_knobs(mask: str) -> dict[str, Knob]:
    """Give one mask's knobs by their name in a link; ``mask_`` is put before a name that the page itself uses."""
    named = {f"mask_{knob.name}" if knob.name in KNOBS else knob.name: knob for knob in MASKS[mask].knobs}
    return {name: replace(knob, name=name) for name, knob in named.items()}


def every_name() -> frozenset[str]:
    """Give every parameter name a link may carry, those of masks not chosen included."""
    return frozenset(KNOBS).union(*(mask_knobs(mask) for mask in MASKS))
