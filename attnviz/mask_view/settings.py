"""The settings of the masks page; the masks and the score change chosen add their own knobs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from attnviz.knobs import Choice, Flag, Integer, Knob, Lengths
from attnviz.masks import MASKS
from attnviz.masks.token_knobs import MOST_TOKENS, TOKENS
from attnviz.score_mods import SCORE_MODS
from attnviz.text import Text, same

HEADS = 8
MOST_SEQUENCES = 256
MOST_LAYERS = 64
LENGTH_STOPS = (*range(1, 65), *range(72, 129, 8), 256, 512, 1024, 2048, 4096)
TILE_STOPS = (*range(1, 17), 24, 32, 48, 64, 96, 128, 192, 256, 512)
# What the page's own batch looks like before anyone sets lengths: a short sequence first, so that padding shows.
LENGTHS: Mapping[str, tuple[int, ...]] = MappingProxyType({"padding": (20, 32, 9)})

SECTIONS = MappingProxyType(
    {
        "mask": Text("Mask", "掩码"),
        "blocks": Text("Blocks", "分块"),
        "reach": Text("Reach", "可达范围"),
        "conventions": Text("Conventions", "约定差异"),
        "code": Text("Code", "代码"),
    }
)
JOINS = MappingProxyType(
    {
        "none": Text("nothing", "不组合"),
        "and": Text("and", "且（and）"),
        "or": Text("or", "或（or）"),
        "and_not": Text("and not", "且非（and not）"),
    }
)
CONVENTIONS = MappingProxyType(
    {
        "fill": Text("What hides", "如何屏蔽"),
        "corner": Text("Which corner", "哪个角"),
        "window": Text("w or w + 1", "w 还是 w + 1"),
        "meaning": Text("True means", "True 的含义"),
        "floats": Text("0/1 floats", "0/1 浮点"),
    }
)
FORMS = MappingProxyType(
    {
        "sdpa": same("SDPA"),
        "mha": same("nn.MultiheadAttention"),
        "flex": same("FlexAttention"),
        "additive": Text("additive", "加性掩码"),
    }
)


@runtime_checkable
class _Labelled(Protocol):
    @property
    def label(self) -> Text: ...


def _labels(registry: Mapping[str, _Labelled]) -> Mapping[str, Text]:
    return MappingProxyType({key: entry.label for key, entry in registry.items()})


def _length(name: str, label: Text, help: Text) -> Integer:
    return Integer(name, label, 32, help, low=1, high=MOST_TOKENS, slider_high=4096, stops=LENGTH_STOPS)


_SHAPE = (
    Choice("section", Text("View", "视图"), "mask", options=SECTIONS),
    Choice("mask", Text("Mask", "掩码"), "causal", options=_labels(MASKS)),
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
            "Which corner the diagonal starts in when queries and keys differ in number: top-left unless chosen, as in "
            "torch. Decoding uses bottom-right.",
            "查询与键个数不同时，对角线从哪个角开始：默认与 torch 一样取左上角。解码时用右下角。",
        ),
        options={"top_left": Text("top-left", "左上"), "bottom_right": Text("bottom-right", "右下")},
    ),
    Flag("invert", Text("Not: swap allowed and hidden", "取反：可见与不可见互换"), False),
    Choice("join", Text("Combine with", "组合方式"), "none", options=JOINS),
    Choice("other", Text("Second mask", "第二个掩码"), "padding", options=_labels(MASKS)),
    Choice(
        "score_mod",
        Text("Score modification", "分数修正"),
        "none",
        Text(
            "Changes the scores before the mask takes pairs out: both can be seen apart and together.",
            "在掩码排除位置对之前修正分数：两者可分开看，也可一起看。",
        ),
        options=_labels(SCORE_MODS),
    ),
)

_PLACE = (
    Integer(
        "sequence",
        Text("Sequence", "序列"),
        0,
        Text("Which sequence of the batch is drawn, counted from 0.", "画批次中的哪个序列，从 0 数起。"),
        low=0,
        high=MOST_SEQUENCES - 1,
    ),
    Integer(
        "head",
        Text("Head", "头"),
        0,
        Text("Which head is drawn, counted from 0.", "画哪个头，从 0 数起。"),
        low=0,
        high=HEADS - 1,
    ),
    Integer(
        "tile",
        Text("Tile", "块的边长"),
        8,
        Text("Queries and keys of one tile of a tiled kernel.", "分块内核中一个块的查询数与键数。"),
        TOKENS,
        low=1,
        high=4096,
        slider_high=512,
        stops=TILE_STOPS,
    ),
    Integer(
        "layers",
        Text("Layers", "层数"),
        3,
        Text("How many layers with this mask are stacked.", "叠多少层，每层用同一个掩码。"),
        low=1,
        high=MOST_LAYERS,
    ),
    Choice("convention", Text("Compare", "比较"), "fill", options=CONVENTIONS),
    Flag(
        "empty",
        Text("Hide every key from the last query", "让最后一个查询看不到任何键"),
        True,
        Text(
            "So that the mask has a row without a key, where libraries differ most.",
            "造出一个无键的行，各库在此差别最大。",
        ),
    ),
    Choice("form", Text("For", "用于"), "sdpa", options=FORMS),
    Integer("seed", Text("Seed of the input", "输入的随机种子"), 0, low=0, high=2**31 - 1),
    Lengths("cell", Text("Selected cell", "选中的格"), (0,), high=MOST_TOKENS, most=2),
    Lengths("picked", Text("Selected tile", "选中的块"), (0,), high=MOST_TOKENS, most=2),
)

KNOBS: Mapping[str, Knob] = MappingProxyType({knob.name: knob for knob in (*_SHAPE, *_PLACE)})


def mask_knobs(mask: str, prefix: str = "") -> dict[str, Knob]:
    """Give one mask's knobs by their name in a link; ``mask_`` is put before a name that the page itself uses."""
    start = prefix or "mask_"
    return _named(MASKS[mask].knobs, lambda name: f"{start}{name}" if prefix or name in KNOBS else name)


def _named(knobs: Iterable[Knob], name: Callable[[str], str]) -> dict[str, Knob]:
    """Give knobs by another name, which is also what a sentence about them says."""
    return {name(knob.name): replace(knob, name=name(knob.name)) for knob in knobs}


def other_knobs(mask: str) -> dict[str, Knob]:
    """Give the knobs of the second mask by their name in a link."""
    return mask_knobs(mask, "other_")


def mod_knobs(score_mod: str) -> dict[str, Knob]:
    """Give the knobs of a score change by their name in a link."""
    return _named(SCORE_MODS[score_mod].knobs, lambda name: f"score_mod_{name}" if name in KNOBS else name)


def every_name() -> frozenset[str]:
    """Give every parameter name a link may carry, those of masks and changes not chosen included."""
    masks = (name for mask in MASKS for name in (*mask_knobs(mask), *other_knobs(mask)))
    return frozenset((*KNOBS, *masks, *(name for mod in SCORE_MODS for name in mod_knobs(mod))))
