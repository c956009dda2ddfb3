"""The KV cache page's settings: a layer that answers token by token, and a published model whose cache is weighed."""

from collections.abc import Mapping
from types import MappingProxyType

from attnviz.knobs import Choice, Flag, Integer, Knob, Lengths, Words
from attnviz.kv_cache import LAYOUTS, STORAGES
from attnviz.presets import PARAMETERS, PRESETS, Preset
from attnviz.settings import DEFAULT_CONTEXT, DEFAULT_TEXT, MOST_LETTERS
from attnviz.settings import KNOBS as ATTENTION_KNOBS
from attnviz.text import Text, same
from attnviz.variants import VARIANTS

# So many tokens can be told apart on two maps that stand beside each other.
MOST_SHOWN = 20
MOST_HEADS, MOST_D_K = 16, 64
MOST_CONTEXT, MOST_BATCH = 2**24, 2**16
MOST_SEQUENCES, MOST_SLOTS = 32, 4096
VARIANT_KEYS = ("mha", "gqa", "mqa", "mla")
LAYOUT_KEYS = ("full", "sliding_window", "attention_sinks")
# Every published model with a cache; an encoder has none.
MODELS: Mapping[str, Preset] = MappingProxyType({key: PRESETS[key] for key in PRESETS if key in PARAMETERS})
# Bits of one number of the cache and of a weight, by the key in a link.
CACHE_BITS: Mapping[str, int] = MappingProxyType(
    {"float32": 32, "bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "int4": 4}
)
WEIGHT_BITS = ("16", "8", "4")

_TOKENS = Text("tokens", "token")

_DECODE: tuple[Knob, ...] = (
    Integer(
        "step",
        Text("Token generated", "第几个生成的 token"),
        5,
        Text("0 is the prompt, all of it at once (prefill).", "0 表示一次处理整个提示（prefill）。"),
        low=0,
        high=MOST_SHOWN,
    ),
    Integer("prompt", Text("Prompt", "提示长度"), 4, None, _TOKENS, low=1, high=MOST_SHOWN),
    Choice("variant", Text("Variant", "变体"), "gqa", options={key: VARIANTS[key].label for key in VARIANT_KEYS}),
    Integer("heads", Text("Heads", "头数"), 8, low=1, high=MOST_HEADS),
    ATTENTION_KNOBS["kv_heads"],
    Integer("d_k", same("d_k (head_dim)"), 16, low=2, high=MOST_D_K, stops=tuple(range(2, MOST_D_K + 1, 2))),
    Choice(
        "layout",
        Text("What stays in the cache", "缓存保留什么"),
        "full",
        options={key: LAYOUTS[key].label for key in LAYOUT_KEYS},
    ),
    Integer("window", Text("Window", "窗口"), 4, None, _TOKENS, low=1, high=MOST_SHOWN),
    Integer("sinks", Text("Sinks", "汇聚点"), 2, None, _TOKENS, low=0, high=MOST_SHOWN),
    Choice(
        "storage",
        Text("Cache kept as", "缓存的存储方式"),
        "plain",
        options={key: storage.label for key, storage in STORAGES.items()},
    ),
    Choice(
        "show",
        Text("Shown", "显示"),
        "work",
        options={
            "work": Text("What is computed", "计算了什么"),
            "weights": Text("Weights", "权重"),
            "vectors": Text("Q, K, V", "Q、K、V"),
        },
    ),
    Integer("head", Text("Head", "头"), 0, low=0, high=MOST_HEADS - 1),
    Words("text", Text("Sentence", "句子"), DEFAULT_TEXT, most=MOST_LETTERS),
    Integer("seed", Text("Seed", "随机种子"), 0, low=0, high=2**31 - 1),
    Lengths("cell", Text("Selected cell", "选中的格"), (0,), high=2**12, most=3),
)

_MEMORY: tuple[Knob, ...] = (
    Choice(
        "model",
        Text("Published model", "已公布的模型"),
        "llama-3-1-8b",
        Text("Sets the context to the one that it is published for.", "上下文长度设为该模型公布的值。"),
        options={key: preset.label for key, preset in MODELS.items()},
    ),
    Integer(
        "context",
        Text("Context", "上下文长度"),
        131_072,
        None,
        _TOKENS,
        low=1,
        high=MOST_CONTEXT,
        slider_high=2**20,
        stops=tuple(2**power for power in range(8, 21)),
    ),
    Integer(
        "batch",
        Text("Batch", "batch"),
        1,
        low=1,
        high=MOST_BATCH,
        slider_high=2**10,
        stops=tuple(2**power for power in range(11)),
    ),
    Choice(
        "cache_dtype",
        Text("Data type of the cache", "缓存的数据类型"),
        "bfloat16",
        Text(
            "Scales of fp8, int8 and int4 are not counted: engines differ in how many vectors share one.",
            "不计 fp8、int8、int4 的缩放系数：多少个向量共用一个系数因引擎而异。",
        ),
        options={key: same(key) for key in CACHE_BITS},
    ),
    Choice(
        "weight_bits",
        Text("Bits per weight", "每个权重的位数"),
        "16",
        options={key: same(key) for key in WEIGHT_BITS},
    ),
    Integer(
        "gpus",
        Text("GPUs", "GPU 数量"),
        1,
        Text(
            "Their memory is added up. With more GPUs than KV heads engines keep copies, which is not counted.",
            "显存直接相加。GPU 多于 KV 头时引擎会保存副本，此处未计。",
        ),
        low=1,
        high=1024,
        slider_high=16,
    ),
    Flag(
        "windows",
        Text("Sliding layers keep their window only", "滑动窗口层只保留窗口"),
        True,
        Text("Some engines reserve every token on every layer.", "有些引擎在每一层都为全部 token 预留空间。"),
    ),
)

_LESSONS: tuple[Knob, ...] = (
    Lengths(
        "lengths",
        Text("Lengths of the sequences", "各序列的长度"),
        (37, 5, 90, 18, 61, 12),
        low=1,
        high=MOST_SLOTS,
        most=MOST_SEQUENCES,
    ),
    Integer(
        "block",
        Text("Tokens in a block", "每块容纳的 token 数"),
        16,
        low=1,
        high=MOST_SLOTS,
        slider_high=128,
        stops=(1, 2, 4, 8, 16, 32, 64, 128),
    ),
    Integer("reserve", Text("Reserved for each", "为每个序列预留"), 128, None, _TOKENS, low=1, high=MOST_SLOTS),
    Choice(
        "decode_context",
        Text("Tokens in the cache", "缓存中的 token 数"),
        "8192",
        options={str(size): same(f"{size:,}") for size in (512, 2048, 8192)},
    ),
    Words("source", Text("Sentence of the encoder", "编码器的句子"), DEFAULT_CONTEXT, most=MOST_LETTERS),
)

KNOBS: Mapping[str, Knob] = MappingProxyType({knob.name: knob for knob in (*_DECODE, *_MEMORY, *_LESSONS)})
