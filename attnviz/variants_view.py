"""The variants page's settings: one layer, the model around it, and how its heads come to share keys and values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import cast

from attnviz import config, inputs
from attnviz.conversion import METHODS
from attnviz.knobs import Choice, Integer, Knob, Lengths, Words
from attnviz.presets import PRESETS, Preset
from attnviz.reading import Reader, Settled
from attnviz.settings import D_K_STOPS, DEFAULT_TEXT, MOST_HEADS, MOST_LETTERS
from attnviz.settings import KNOBS as ATTENTION_KNOBS
from attnviz.text import Text, same

# So many tokens can be told apart on every head's map, with all heads on one screen.
MOST_SHOWN = 24
MOST_D_K = 256
OWN = "own"
SHOWS: Mapping[str, Text] = MappingProxyType(
    {"weights": Text("Weights", "权重"), "change": Text("Difference to MHA", "与 MHA 之差")}
)
# What a published model sets, in the order of the view.
SIZES = ("heads", "kv_heads", "d_k", "width", "layers", "context")

_DIVIDE = Text(
    "kv_heads must divide heads: {heads} heads allow {options}, got {got}; using {used}.",
    "kv_heads 必须整除 heads：{heads} 个头可用 {options}，收到的是 {got}，改用 {used}。",
)
_CELL = Text("cell {got} lies outside the maps; nothing is selected.", "选中的格 {got} 在图外，已取消选择。")
_NO_MODEL = Text("– own sizes –", "– 自定义 –")


def _offered(preset: Preset) -> bool:
    """Say whether a model's heads are grouped, all of one kind, and few enough to be drawn."""
    return preset.variant != "mla" and preset.config.num_attention_heads <= MOST_HEADS


MODELS: Mapping[str, Preset] = MappingProxyType({key: preset for key, preset in PRESETS.items() if _offered(preset)})

KNOBS: Mapping[str, Knob] = MappingProxyType(
    {
        knob.name: knob
        for knob in (
            Choice(
                "model",
                Text("Published model", "已公布的模型"),
                OWN,
                Text("Sets heads, sizes, layers and context.", "按公布的数值设置头数、维度、层数和上下文。"),
                options={OWN: _NO_MODEL} | {key: preset.label for key, preset in MODELS.items()},
            ),
            replace(ATTENTION_KNOBS["heads"], default=8),
            ATTENTION_KNOBS["kv_heads"],
            Integer(
                "d_k",
                same("d_k (head_dim)"),
                64,
                Text("Width of a query, a key and a value.", "查询、键和值的维度。"),
                low=1,
                high=MOST_D_K,
                stops=tuple(stop for stop in D_K_STOPS if stop <= MOST_D_K),
            ),
            Integer(
                "width",
                Text("Width of a token vector", "token 向量的维度"),
                512,
                Text(
                    "hidden_size: counts for the parameters. The maps are drawn with vectors of 256.",
                    "即 hidden_size，用于计算参数量；权重图用 256 维的向量绘制。",
                ),
                low=1,
                high=65_536,
            ),
            Integer("layers", Text("Layers", "层数"), 32, low=1, high=1_000),
            Integer(
                "context",
                Text("Context", "上下文长度"),
                8_192,
                Text("Tokens of the one sequence that the cache holds.", "缓存所存的一条序列的 token 数。"),
                low=1,
                high=2**24,
            ),
            Choice(
                "dtype",
                Text("Data type of the cache", "缓存的数据类型"),
                "bfloat16",
                options={name: same(name) for name in config.DTYPES},
            ),
            Choice(
                "method",
                Text("A shared head is", "共用的头取自"),
                "mean",
                Text(
                    "How the key and value heads of a group, each with its own weights before, become one.",
                    "组内原本各有权重的键头和值头如何合成一个。",
                ),
                options={key: method.label for key, method in METHODS.items()},
            ),
            Choice("show", Text("Shown", "显示"), "weights", options=SHOWS),
            Words("text", Text("Sentence", "句子"), DEFAULT_TEXT, most=MOST_LETTERS),
            Integer("seed", Text("Seed", "随机种子"), 0, low=0, high=2**31 - 1),
            Lengths("cell", Text("Selected cell", "选中的格"), (0,), high=MOST_HEADS, most=3),
        )
    }
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """Hold every setting of the page, checked; names as in ``KNOBS``."""

    model: str
    heads: int
    kv_heads: int
    d_k: int
    width: int
    layers: int
    context: int
    dtype: str
    method: str
    show: str
    text: str
    seed: int
    cell: tuple[int, ...]

    @property
    def tokens(self) -> tuple[str, ...]:
        """Give the tokens drawn: the first of the sentence, one empty token where there is none."""
        return inputs.tokenize(self.text)[:MOST_SHOWN] or ("",)

    @property
    def preset(self) -> Preset | None:
        """Give the published model whose sizes all hold, or None."""
        preset = MODELS.get(self.model)
        own = {name: getattr(self, name) for name in SIZES}
        return preset if preset is not None and own == sizes(preset) else None


def sizes(preset: Preset) -> dict[str, int]:
    """Give what a published model sets; layers without keys and values are not among its layers."""
    shape = preset.config
    return {
        "heads": shape.num_attention_heads,
        "kv_heads": shape.num_key_value_heads,
        "d_k": shape.head_dim,
        "width": shape.hidden_size,
        "layers": preset.full_layers + preset.sliding_layers,
        "context": preset.max_context,
    }


def quarter(heads: int) -> int:
    """Give the KV heads that a GQA layer begins with: the largest divisor up to a quarter of the heads."""
    return max(n for n in config.divisors(heads) if n == 1 or n <= heads // 4)


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, frozenset(KNOBS))
    model = MODELS.get(cast("str", reader.read("model", KNOBS["model"])))
    published = {} if model is None else sizes(model)
    for name, knob in KNOBS.items():
        if name == "kv_heads":
            _read_kv_heads(reader, published)
        elif name != "model":
            reader.read(name, knob, () if name == "cell" else published.get(name))
    view = View(**{name: reader.values[name] for name in KNOBS})  # type: ignore[arg-type]
    limits = (view.heads, len(view.tokens), len(view.tokens))
    inside = all(index < limit for index, limit in zip(view.cell, limits, strict=False))
    if view.cell and (len(view.cell) < len(limits) or not inside):
        reader.follow("cell", (), _CELL)
        view = replace(view, cell=())
    return reader.settled(view)


def _read_kv_heads(reader: Reader, published: Mapping[str, int]) -> None:
    """Read the KV heads, which divide the heads that were read before."""
    heads = cast("int", reader.values["heads"])
    default = published["kv_heads"] if published.get("heads") == heads else quarter(heads)
    kv_heads = cast("int", reader.read("kv_heads", KNOBS["kv_heads"], default))
    options = config.divisors(heads)
    if kv_heads not in options:
        used = max((n for n in options if n <= kv_heads), default=1)
        reader.follow("kv_heads", used, _DIVIDE, heads=heads, options=", ".join(map(str, options)))
