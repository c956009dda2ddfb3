"""The knobs of the variants page: one layer, the model around it, and how its heads come to share keys and values."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import cast

from attnviz import config
from attnviz.conversion import METHODS
from attnviz.knobs import Choice, Integer, Knob, Lengths, Words
from attnviz.presets import PRESETS, Preset
from attnviz.settings import D_K_STOPS, DEFAULT_TEXT, MOST_HEADS, MOST_LETTERS
from attnviz.settings import KNOBS as ATTENTION_KNOBS
from attnviz.text import Text, same

# So many heads are large enough side by side, each of them three times.
ABREAST = 4
# So many maps of one layer fit a screen; of more heads than that, as many as stay large enough to read.
MOST_MAPS, PAGE = 64, 32
# Side by side stand MHA, the layer with the slider's KV heads, and MQA.
LAYERS = 3
# So many tokens can be told apart on every head's map, with all heads on one screen.
MOST_SHOWN = 24
MOST_D_K = 256
# Falcon-180B has so many; a slider goes to what the other pages draw, and more can be typed.
MOST_OF_MODELS = max(preset.config.num_attention_heads for preset in PRESETS.values())
# Of DeepSeek-V2 and V3; a narrower latent or rotary key is the beginning of this one.
LATENT, ROTARY = 512, 64
OWN = "own"
VARIANTS: Mapping[str, Text] = MappingProxyType(
    {"grouped": same("MHA · GQA · MQA"), "mla": same("MLA"), "additive": Text("Additive", "加性")}
)
_CHANGES = {
    "grouped": Text("Difference from MHA", "与 MHA 之差"),
    "mla": Text("Difference from the whole latent", "与完整潜向量之差"),
    "additive": Text("Difference from the dot product", "与点积之差"),
}
# What a published model sets, in the order of the view.
SIZES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "grouped": ("variant", "heads", "kv_heads", "d_k", "width", "layers", "context"),
        "mla": ("variant", "heads", "latent", "rope", "d_k", "width", "layers", "context"),
    }
)

_SHOWN = Text("Shown", "显示")
_NO_MODEL = Text("– own sizes –", "– 自定义 –")


def variant_of(preset: Preset) -> str:
    """Give the page's variant that a model is."""
    return "mla" if preset.variant == "mla" else "grouped"


def _heads(name: str) -> Integer:
    """Give the attention page's slider of heads, which here takes the largest models' heads by typing."""
    return replace(cast("Integer", ATTENTION_KNOBS[name]), high=MOST_OF_MODELS, slider_high=MOST_HEADS)


def shows(variant: str) -> Choice:
    """Give what the maps can show of a variant: its weights, what it changes, or three layers side by side."""
    options = {"weights": Text("Weights", "权重"), "change": _CHANGES[variant]}
    if variant != "grouped":
        return Choice("show", _SHOWN, "weights", options=options)
    options |= {"weights": Text("Every head", "所有头")}
    return Choice("show", _SHOWN, "compare", options={"compare": Text("Side by side", "并排比较"), **options})


KNOBS: Mapping[str, Knob] = MappingProxyType(
    {
        knob.name: knob
        for knob in (
            Choice(
                "model",
                Text("Published model", "已公布的模型"),
                OWN,
                Text("Sets heads, sizes, layers and context.", "按公布的数值设置头数、维度、层数和上下文。"),
                options={OWN: _NO_MODEL} | {key: preset.label for key, preset in PRESETS.items()},
            ),
            Choice("variant", Text("Variant", "变体"), "grouped", options=VARIANTS),
            replace(_heads("heads"), default=8),
            _heads("kv_heads"),
            Integer(
                "latent",
                Text("Latent width", "潜向量维度"),
                LATENT,
                Text(
                    "kv_lora_rank: numbers kept of each token, out of which every head makes its keys and values.",
                    "即 kv_lora_rank：每个 token 保存的数值个数，各头的键和值都由它还原。",
                ),
                low=1,
                high=LATENT,
                stops=(1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512),
            ),
            Integer(
                "rope",
                Text("Rotary key width", "旋转键维度"),
                ROTARY,
                Text(
                    "qk_rope_head_dim: the part of every key that carries the position, kept once for all heads.",
                    "即 qk_rope_head_dim：键中携带位置的部分，所有头共用，只存一份。",
                ),
                low=0,
                high=ROTARY,
                stops=(0, 2, 4, 8, 16, 32, 64),
            ),
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
            shows("grouped"),
            Words("text", Text("Sentence", "句子"), DEFAULT_TEXT, most=MOST_LETTERS),
            Integer("seed", Text("Seed", "随机种子"), 0, low=0, high=2**31 - 1),
            Choice(
                "wanted",
                Text("Positions needed at once", "同时需要的位置数"),
                "2",
                options={"1": same("1"), "2": same("2"), "4": same("4")},
            ),
            Choice(
                "timed",
                Text("Length measured", "测量的长度"),
                "256",
                options={text: same(text) for text in ("64", "128", "256", "512", "1024")},
            ),
            Lengths("cell", Text("Selected cell", "选中的格"), (0,), high=MOST_OF_MODELS, most=4),
            Integer(
                "first",
                Text("First head shown", "显示的第一个头"),
                0,
                low=0,
                high=MOST_OF_MODELS - 1,
            ),
        )
    }
)  # fmt: skip
