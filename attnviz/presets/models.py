"""The published models: their shapes, each with the file that it was read from."""

from typing import Any

from attnviz.presets.base import Preset, Published
from attnviz.text import Text, same

_LITGPT = "https://github.com/Lightning-AI/litgpt/blob/main/litgpt/config.py"
_GEMMA = "https://github.com/google/gemma_pytorch/blob/main/gemma/config.py"
_LLAMA_2 = Text(
    "MHA, not GQA: of Llama 2 only the 70B model shares KV heads.", "是 MHA 而非 GQA：Llama 2 中只有 70B 共用 KV 头。"
)
_GPT_OSS = Text(
    "64 heads of 64 are wider than the token vector of 2,880.", "64 个 64 维的头比 2,880 维的 token 向量更宽。"
)
_DEEPSEEK = Text(
    "MLA, not GQA: one latent of 512 and one rotary key of 64 per token, for all heads.",
    "是 MLA 而非 GQA：每个 token 只存一个 512 维潜向量和一个 64 维旋转键，所有头共用。",
)

_FP8 = Text(
    "Its weights are published in FP8: about half of what they take at 16 bits.",
    "其权重以 FP8 公布：约为 16 位时的一半。",
)


def _mxfp4(size: str) -> Published:
    """Say what the published weights of gpt-oss take."""
    text = Text(
        "Its weights are published with the experts in MXFP4, 4.25 bits each, and the rest in bfloat16: {size} in all.",
        "其权重公布时，专家部分为 MXFP4（每个 4.25 位），其余为 bfloat16，共 {size}。",
    )
    return Published(text.fill(size=size), "https://arxiv.org/abs/2508.10925")


def _grouped(
    key: str, name: str, full_layers: int, sizes: tuple[int, int, int, int], context: int, source: str, **more: Any
) -> Preset:
    """Give a model whose query heads share KV heads; ``sizes`` are hidden size, heads, KV heads, head_dim."""
    names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    _, heads, kv_heads, _ = sizes
    variant = "mha" if kv_heads == heads else "mqa" if kv_heads == 1 else "gqa"
    given: dict[str, int] = dict(zip(names, sizes, strict=True))
    return Preset(key, same(name), variant, given, full_layers, source, context, **more)


def _latent(
    key: str, name: str, layers: int, sizes: tuple[int, int, int, int, int, int], context: int, source: str, **more: Any
) -> Preset:
    """Give a model with latents; ``sizes`` are hidden size, heads, head_dim, v_head_dim, latent, rotary part."""
    names = ("hidden_size", "num_attention_heads", "head_dim", "v_head_dim", "kv_lora_rank", "qk_rope_head_dim")
    # Both sizes of DeepSeek make their queries of a vector of 1,536.
    given = dict(zip(names, sizes, strict=True)) | {"q_lora_rank": 1536}
    return Preset(key, same(name), "mla", given, layers, source, context, **more)


MODELS = (
    _grouped(
        "gpt-2-small",
        "GPT-2 small",
        12,
        (768, 12, 12, 64),
        1_024,
        "https://github.com/openai/gpt-2/blob/master/src/model.py",
    ),
    _grouped(
        "gpt-2-xl",
        "GPT-2 XL",
        48,
        (1600, 25, 25, 64),
        1_024,
        "https://huggingface.co/openai-community/gpt2-xl/blob/main/config.json",
    ),
    _grouped(
        "all-minilm-l6-v2",
        "all-MiniLM-L6-v2",
        6,
        (384, 12, 12, 32),
        512,
        "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/blob/main/config.json",
        note=Text(
            "An encoder: it sees both sides at once and keeps no cache in use.",
            "编码器：同时看到左右两侧，实际使用时不保留缓存。",
        ),
    ),
    _grouped("falcon-7b", "Falcon-7B", 32, (4544, 71, 1, 64), 2_048, _LITGPT),
    _grouped("falcon-40b", "Falcon-40B", 60, (8192, 128, 8, 64), 2_048, _LITGPT),
    _grouped("falcon-180b", "Falcon-180B", 80, (14848, 232, 8, 64), 2_048, _LITGPT),
    _grouped("llama-2-7b", "Llama-2-7B", 32, (4096, 32, 32, 128), 4_096, _LITGPT, note=_LLAMA_2),
    _grouped("llama-2-13b", "Llama-2-13B", 40, (5120, 40, 40, 128), 4_096, _LITGPT, note=_LLAMA_2),
    _grouped("llama-2-70b", "Llama-2-70B", 80, (8192, 64, 8, 128), 4_096, _LITGPT),
    _grouped("llama-3-8b", "Llama-3-8B", 32, (4096, 32, 8, 128), 8_192, _LITGPT),
    _grouped("llama-3-1-8b", "Llama-3.1-8B", 32, (4096, 32, 8, 128), 131_072, _LITGPT),
    _grouped("llama-3-1-70b", "Llama-3.1-70B", 80, (8192, 64, 8, 128), 131_072, _LITGPT),
    _grouped("llama-3-1-405b", "Llama-3.1-405B", 126, (16384, 128, 8, 128), 131_072, _LITGPT),
    _grouped("llama-3-2-1b", "Llama-3.2-1B", 16, (2048, 32, 8, 64), 131_072, _LITGPT),
    _grouped("llama-3-2-3b", "Llama-3.2-3B", 28, (3072, 24, 8, 128), 131_072, _LITGPT),
    _grouped(
        "mistral-7b-v0-1",
        "Mistral-7B-v0.1",
        0,
        (4096, 32, 8, 128),
        32_768,
        "https://huggingface.co/mistralai/Mistral-7B-v0.1/blob/main/config.json",
        window=4_096,
        sliding_layers=32,
        note=Text("Only v0.1 has a window.", "只有 v0.1 有窗口。"),
    ),
    _grouped(
        "mistral-7b-v0-3",
        "Mistral-7B-v0.3",
        32,
        (4096, 32, 8, 128),
        32_768,
        _LITGPT,
        note=Text("No window: only v0.1 has one.", "没有窗口：只有 v0.1 有。"),
    ),
    _grouped("mixtral-8x7b", "Mixtral-8x7B", 32, (4096, 32, 8, 128), 32_768, _LITGPT),
    _grouped("mixtral-8x22b", "Mixtral-8x22B", 56, (6144, 48, 8, 128), 65_536, _LITGPT),
    _grouped("qwen2-5-0-5b", "Qwen2.5-0.5B", 24, (896, 14, 2, 64), 32_768, _LITGPT),
    _grouped("qwen2-5-7b", "Qwen2.5-7B", 28, (3584, 28, 4, 128), 131_072, _LITGPT),
    _grouped("qwen2-5-72b", "Qwen2.5-72B", 80, (8192, 64, 8, 128), 131_072, _LITGPT),
    _grouped(
        "qwen3-0-6b",
        "Qwen3-0.6B",
        28,
        (1024, 16, 8, 128),
        40_960,
        _LITGPT,
        note=Text(
            "16 heads of 128 are wider than the token vector of 1,024: head_dim is a setting of its own.",
            "16 个 128 维的头比 1,024 维的 token 向量更宽：head_dim 是独立的设置。",
        ),
    ),
    _grouped("qwen3-8b", "Qwen3-8B", 36, (4096, 32, 8, 128), 40_960, _LITGPT),
    _grouped("qwen3-32b", "Qwen3-32B", 64, (5120, 64, 8, 128), 40_960, _LITGPT),
    _grouped("qwen3-30b-a3b", "Qwen3-30B-A3B", 48, (2048, 32, 4, 128), 40_960, _LITGPT),
    _grouped("qwen3-235b-a22b", "Qwen3-235B-A22B", 94, (4096, 64, 4, 128), 40_960, _LITGPT),
    _grouped(
        "qwen3-next-80b-a3b",
        "Qwen3-Next-80B-A3B",
        12,
        (2048, 16, 2, 256),
        262_144,
        "https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct/blob/main/config.json",
        linear_layers=36,
        note=Text(
            "Its layers with a state are gated DeltaNet. Numbers leave out the gate on attention's output, which a "
            "matrix as large as the queries' makes.",
            "其中带状态的层是门控 DeltaNet。注意力输出上的门由一个与查询矩阵同样大的矩阵算出，未计入。",
        ),
    ),
    _grouped("gemma-2-2b", "Gemma-2-2B", 13, (2304, 8, 4, 256), 8_192, _GEMMA, window=4_096, sliding_layers=13),
    _grouped("gemma-2-9b", "Gemma-2-9B", 21, (3584, 16, 8, 256), 8_192, _GEMMA, window=4_096, sliding_layers=21),
    _grouped(
        "gemma-2-27b",
        "Gemma-2-27B",
        23,
        (4608, 32, 16, 128),
        8_192,
        _GEMMA,
        window=4_096,
        sliding_layers=23,
        note=Text("Scores are divided by √144, not √128.", "分数除以 √144，而不是 √128。"),
    ),
    _grouped("gemma-3-1b", "Gemma-3-1B", 4, (1152, 4, 1, 256), 32_768, _GEMMA, window=512, sliding_layers=22),
    _grouped("gemma-3-4b", "Gemma-3-4B", 5, (2560, 8, 4, 256), 131_072, _GEMMA, window=1_024, sliding_layers=29),
    _grouped("gemma-3-12b", "Gemma-3-12B", 8, (3840, 16, 8, 256), 131_072, _GEMMA, window=1_024, sliding_layers=40),
    _grouped(
        "gemma-3-27b",
        "Gemma-3-27B",
        10,
        (5376, 32, 16, 128),
        131_072,
        _GEMMA,
        window=1_024,
        sliding_layers=52,
        note=Text("Scores are divided by √168, not √128.", "分数除以 √168，而不是 √128。"),
    ),
    _grouped(
        "gpt-oss-20b",
        "gpt-oss-20b",
        12,
        (2880, 64, 8, 64),
        131_072,
        "https://huggingface.co/openai/gpt-oss-20b/blob/main/config.json",
        window=128,
        sliding_layers=12,
        note=_GPT_OSS,
        published=_mxfp4("12.8 GiB"),
    ),
    _grouped(
        "gpt-oss-120b",
        "gpt-oss-120b",
        18,
        (2880, 64, 8, 64),
        131_072,
        "https://github.com/openai/gpt-oss/blob/main/gpt_oss/torch/model.py",
        window=128,
        sliding_layers=18,
        note=_GPT_OSS,
        published=_mxfp4("60.8 GiB"),
    ),
    _latent(
        "deepseek-v2-236b",
        "DeepSeek-V2 (236B)",
        60,
        (5120, 128, 192, 128, 512, 64),
        131_072,
        "https://github.com/deepseek-ai/DeepSeek-V3/blob/main/inference/configs/config_236B.json",
        note=_DEEPSEEK,
    ),
    _latent(
        "deepseek-v3-r1-671b",
        "DeepSeek-V3/R1 (671B)",
        61,
        (7168, 128, 192, 128, 512, 64),
        131_072,
        "https://github.com/deepseek-ai/DeepSeek-V3/blob/main/inference/configs/config_671B.json",
        note=_DEEPSEEK,
        published=Published(_FP8, "https://github.com/deepseek-ai/DeepSeek-V3/blob/main/README_WEIGHTS.md"),
    ),
    _latent(
        "deepseek-v3-1",
        "DeepSeek-V3.1",
        61,
        (7168, 128, 192, 128, 512, 64),
        163_840,
        "https://huggingface.co/deepseek-ai/DeepSeek-V3.1/blob/main/config.json",
        note=_DEEPSEEK,
        published=Published(_FP8, "https://huggingface.co/deepseek-ai/DeepSeek-V3.1/blob/main/config.json"),
    ),
    _grouped(
        "phi-3-mini-4k",
        "Phi-3-mini-4k",
        0,
        (3072, 32, 32, 96),
        4_096,
        "https://huggingface.co/microsoft/Phi-3-mini-4k-instruct/blob/main/config.json",
        window=2_048,
        sliding_layers=32,
        note=Text(
            "sliding_window is 2,047 in the published file: so many keys back, and the query’s own.",
            "公布的 sliding_window 为 2,047：向前这么多个键，再加查询自身。",
        ),
    ),
)
