"""The sizes of latent attention: what can be set, what follows from it, and what is refused."""

from collections.abc import Mapping
from dataclasses import dataclass

from attnviz.knobs import Choice, Integer
from attnviz.text import Text
from attnviz.variants.base import refuse
from attnviz.variants.sizes import HEAD_DIM, HEADS, HIDDEN_SIZE, V_HEAD_DIM, read_sizes

_KV_LORA_RANK = Integer(
    "kv_lora_rank",
    Text("Latent width (kv_lora_rank)", "潜向量宽度 (kv_lora_rank)"),
    512,
    Text(
        "Entries kept of each token, out of which all keys and values are made.",
        "每个 token 保存的分量数，所有键和值都由它还原。",
    ),
    low=1,
    high=8192,
    slider_high=1024,
)
_ROPE_DIM = Integer(
    "qk_rope_head_dim",
    Text("Rotary part (qk_rope_head_dim)", "旋转部分 (qk_rope_head_dim)"),
    64,
    Text(
        "Part of d_k that carries the position; its key is kept beside the latent and shared by all heads.",
        "d_k 中携带位置信息的部分；它的键与潜向量一起保存，所有头共用。",
    ),
    low=0,
    high=1024,
    slider_high=128,
)
_Q_LORA_RANK = Integer(
    "q_lora_rank",
    Text("Query latent (q_lora_rank)", "查询潜向量宽度 (q_lora_rank)"),
    0,
    Text(
        "Width of the vector that queries are made of; 0 makes them of the token.",
        "生成查询所用向量的宽度；0 表示直接由 token 生成。",
    ),
    low=0,
    high=8192,
    slider_high=2048,
)
_FORM = Choice(
    "form",
    Text("Form", "计算形式"),
    "auto",
    Text("Which of two equal ways is computed.", "两种等价算法中使用哪一种。"),
    options={
        "auto": Text("the one with fewer FLOPs", "FLOPs 较少者"),
        "expanded": Text("expanded: make every key and value", "展开：还原每个键和值"),
        "absorbed": Text("absorbed: attend over the latents", "吸收：直接在潜向量上计算注意力"),
    },
)
SIZES = (HIDDEN_SIZE, HEADS, HEAD_DIM, V_HEAD_DIM, _KV_LORA_RANK, _ROPE_DIM, _Q_LORA_RANK, _FORM)
_AT_MOST = Text("at most head_dim = {head_dim}", "不大于 head_dim = {head_dim} 的数")


@dataclass(frozen=True)
class LatentConfig:
    """Hold the sizes of one layer, named as published ``config.json`` files have them.

    Args:
        hidden_size: Width of a token vector.
        num_attention_heads: Query heads.
        head_dim: Width of a query and a key: ``qk_nope_head_dim`` made of the latent and ``qk_rope_head_dim``.
        v_head_dim: Width of a value.
        kv_lora_rank: Width of the latent.
        qk_rope_head_dim: Width of the rotary key.
        q_lora_rank: Width of what queries are made of; 0 is the token itself.
        form: ``auto``, ``expanded`` or ``absorbed``.
    """

    hidden_size: int
    num_attention_heads: int
    head_dim: int
    v_head_dim: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    q_lora_rank: int = 0
    form: str = "auto"

    @property
    def qk_nope_head_dim(self) -> int:
        """Width of the part of a key that is made of the latent and carries no position."""
        return self.head_dim - self.qk_rope_head_dim

    @property
    def kept(self) -> int:
        """Entries that one token keeps in the cache, for all heads together."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def expanded(self) -> int:
        """Entries of one token's keys and values once every head's are made."""
        return self.num_attention_heads * (self.head_dim + self.v_head_dim)


def read_config(sizes: Mapping[str, object]) -> LatentConfig:
    """Check the sizes given and fill in the others, see ``Latent.config``."""
    given = read_sizes(SIZES, sizes)
    width, heads = given.get("hidden_size", 512), given.get("num_attention_heads", 8)
    # RoPE turns pairs, so the default is even.
    usual = min(64, given["head_dim"] // 6 * 2) if "head_dim" in given else 64
    rope = given.get("qk_rope_head_dim", usual)
    head_dim = given.get("head_dim", max(1, width // heads) + rope)
    if rope > head_dim:
        raise refuse("qk_rope_head_dim", _AT_MOST.fill(head_dim=head_dim), rope)
    return LatentConfig(
        hidden_size=width,
        num_attention_heads=heads,
        head_dim=head_dim,
        v_head_dim=given.get("v_head_dim", max(1, head_dim - rope)),
        kv_lora_rank=given.get("kv_lora_rank", 512),
        qk_rope_head_dim=rope,
        q_lora_rank=given.get("q_lora_rank", 0),
        form=given.get("form", "auto"),
    )
