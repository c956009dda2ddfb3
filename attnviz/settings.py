"""The settings of the attention view, in the order of its controls; masks and other choices add their own knobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from attnviz import config, device, inputs, pins
from attnviz.backends import BACKENDS
from attnviz.families import ELSEWHERE, FAMILIES
from attnviz.knobs import Choice, Flag, Integer, Knob, Lengths, Number, Words
from attnviz.masks import MASKS
from attnviz.masks.token_knobs import MOST_TOKENS
from attnviz.mistakes import MISTAKES
from attnviz.positions import POSITIONS
from attnviz.registry import Registry
from attnviz.score_mods import SCORE_MODS
from attnviz.stage_list import STAGES
from attnviz.text import Text, same

MOST_HEADS = 64
# Two sentences of so many Chinese characters, nine bytes each in an address, stay within what a server takes.
MOST_LETTERS = 2000
# One by one where a single token can be seen, doubling above.
LENGTH_STOPS = (*range(1, 65), 128, 256, 512, 1024, 2048, 4096)
D_K_STOPS = (*range(1, 33), *range(36, 65, 4), *range(80, 129, 16), 160, 192, 256, 320, 384, 512, 640, 768, 1024)

DEFAULT_TEXT = "the cat sat on the mat because the mat was warm ."
DEFAULT_CONTEXT = "那只猫坐在暖和的垫子上。"


@runtime_checkable
class _Labelled(Protocol):
    @property
    def label(self) -> Text: ...


class _Owner(Protocol):
    @property
    def knobs(self) -> tuple[Knob, ...]: ...
    def build(self, **settings: Any) -> object: ...


def _labels(registry: Mapping[str, _Labelled]) -> Mapping[str, Text]:
    return MappingProxyType({key: entry.label for key, entry in registry.items()})


def _length(name: str, label: Text, help: Text) -> Integer:
    return Integer(name, label, 32, help, low=1, high=MOST_TOKENS, slider_high=4096, stops=LENGTH_STOPS)


_INPUT = (
    Choice(
        "attention",
        Text("Attention", "注意力类型"),
        "self",
        Text(
            "Self: queries and keys come from the same tokens. Cross: keys and values come from other tokens.",
            "自注意力：查询和键来自同一组 token。交叉注意力：键和值来自另一组 token。",
        ),
        options={"self": Text("self", "自注意力"), "cross": Text("cross", "交叉注意力")},
    ),
    Choice("input", Text("Input", "输入"), "sentence", options=_labels(inputs.INPUTS)),
    Words(
        "text",
        Text("Sentence", "句子"),
        DEFAULT_TEXT,
        Text(
            "Split into words, Chinese into characters. It repeats where the length exceeds its tokens.",
            "按单词切分，中文按字切分。长度超过 token 数时循环重复。",
        ),
        most=MOST_LETTERS,
    ),
    Words("context", Text("Sentence of the keys", "键一侧的句子"), DEFAULT_CONTEXT, most=MOST_LETTERS),
    _length("length", Text("Length", "序列长度"), Text("Number of queries.", "查询的个数。")),
    _length("key_length", Text("Key length", "键的个数"), Text("Number of keys.", "键的个数。")),
)

_SHAPE = (
    Integer(
        "d_k",
        same("d_k (head_dim)"),
        64,
        Text("Width of a query and a key in one head.", "一个头里查询与键的维度。"),
        low=1,
        high=1024,
        stops=D_K_STOPS,
    ),
    Choice("variant", Text("Variant", "变体"), "grouped", options=_labels(FAMILIES), elsewhere=ELSEWHERE),
    Integer(
        "heads", Text("Heads", "头数"), 4, Text("Number of query heads.", "查询头的个数。"), low=1, high=MOST_HEADS
    ),
    Integer(
        "kv_heads",
        Text("KV heads", "KV 头数"),
        4,
        Text(
            "Heads of keys and values. As many as heads: MHA. One: MQA. Between: GQA. Must divide the heads.",
            "键和值的头数。与头数相同是 MHA，只有一个是 MQA，介于其间是 GQA。必须整除头数。",
        ),
        low=1,
        high=MOST_HEADS,
    ),
)

_RULE = (
    Choice("mask", Text("Mask", "掩码"), "causal", options=_labels(MASKS)),
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
    Choice("position", Text("Position encoding", "位置编码"), "none", options=_labels(POSITIONS)),
    Choice("score_mod", Text("Score modification", "分数修正"), "none", options=_labels(SCORE_MODS)),
    Choice(
        "scale",
        Text("Scale", "缩放"),
        "auto",
        Text("What the scores are multiplied by before softmax.", "softmax 之前分数所乘的系数。"),
        options={"auto": same("1/√d_k"), "one": Text("1 (none)", "1（不缩放）"), "custom": Text("custom", "自定义")},
    ),
    Choice(
        "mistake",
        Text("Mistake", "错误"),
        "none",
        Text(
            "What is done wrong on purpose. One more, dropout left on, is set under Scores.",
            "故意算错的地方。还有一种错误——忘记关闭 Dropout——在“分数”一栏中设置。",
        ),
        options=_labels(MISTAKES),
    ),
    # By typing it goes as far as float16 does not: scores beyond 65,504 are infinite there.
    Number(
        "scale_value",
        Text("Scale factor", "缩放系数"),
        0.125,
        low=0.0,
        high=100_000.0,
        slider_high=4.0,
        step=0.005,
    ),
    Number(
        "dropout",
        Text("Dropout", "Dropout（随机丢弃）"),
        0.0,
        Text(
            "Zeroes weights at random and multiplies the rest by 1/(1 − p): a row sums to 1 on average only, "
            "and may exceed it.",
            "随机将权重置零，其余乘以 1/(1 − p)：一行之和只在平均意义上等于 1，可能超过 1。",
        ),
        low=0.0,
        high=0.9,
        step=0.05,
    ),
)

_MACHINE = (
    Choice("backend", Text("Backend", "计算后端"), "eager", options=_labels(BACKENDS)),
    Choice("dtype", Text("Data type", "数据类型"), "float32", options={name: same(name) for name in config.DTYPES}),
    Choice(
        "device",
        Text("Device", "设备"),
        device.default_device(),
        options={name: same(name) for name in device.present()},
    ),
    Integer("seed", Text("Seed", "随机种子"), 0, low=0, high=2**31 - 1),
)

_PICTURE = (
    Choice("stage", Text("Large picture", "大图"), "weights", options=_labels(STAGES)),
    Choice(
        "head",
        Text("Heads shown", "显示的头"),
        "all",
        options={
            "all": Text("all heads", "所有头"),
            "mean": Text("average", "各头平均"),
            **{str(h): Text(f"head {h}", f"头 {h}") for h in range(MOST_HEADS)},
        },
    ),
    Flag("log", Text("Logarithmic colours", "对数色标"), False),
    Flag("own_range", Text("Colour range per head", "每个头用各自的色标范围"), False),
    Choice(
        "reduce",
        Text("Pooling of long maps", "长图的池化方式"),
        "max",
        options={"max": Text("farthest from 0", "绝对值最大"), "mean": Text("mean", "平均值")},
    ),
    Lengths("cell", Text("Selected cell", "选中的格"), (0,), high=MOST_TOKENS, most=3),
    Choice(
        "compare",
        Text("Shown", "显示"),
        "now",
        options={
            "now": Text("now", "当前"),
            "pinned": Text("pinned", "已固定"),
            "difference": Text("now − pinned", "当前 − 固定"),
        },
    ),
    Words("pin", Text("Pinned settings", "固定的设置"), "", most=pins.MOST_LETTERS),
)

KNOBS: Mapping[str, Knob] = MappingProxyType(
    {knob.name: knob for knob in (*_INPUT, *_SHAPE, *_RULE, *_MACHINE, *_PICTURE)}
)


# Choices whose entries bring knobs of their own.
OWNERS: Mapping[str, Mapping[str, _Owner]] = MappingProxyType(
    {"variant": FAMILIES, "mask": MASKS, "position": POSITIONS, "score_mod": SCORE_MODS}
)


def own_knobs(choice: str, key: str) -> dict[str, Knob]:
    """Give the knobs of one entry by their name in a link; the choice's name is put before one that the page uses.

    Args:
        choice: One of ``OWNERS``.
        key: Key of its entry.
    """
    return {f"{choice}_{knob.name}" if knob.name in KNOBS else knob.name: knob for knob in OWNERS[choice][key].knobs}


@dataclass(frozen=True)
class Role:
    """Name one of the three places of attention in a transformer, and the settings that make it."""

    key: str
    label: Text
    settings: Mapping[str, str]


ROLES: Registry[Role] = Registry(
    "role",
    (
        Role("encoder", Text("encoder", "编码器"), {"attention": "self", "mask": "full"}),
        Role("decoder", Text("decoder", "解码器"), {"attention": "self", "mask": "causal"}),
        Role("cross", Text("cross", "交叉"), {"attention": "cross", "mask": "full"}),
    ),
)


def mask_knobs(mask: str) -> dict[str, Knob]:
    """Give the knobs of one mask by their name in a link."""
    return own_knobs("mask", mask)


def every_name() -> frozenset[str]:
    """Give every parameter name a link may carry, those of entries not chosen included."""
    own = (own_knobs(choice, key) for choice, entries in OWNERS.items() for key in entries)
    return frozenset(KNOBS).union(*own)
