"""The variants that the attention page takes apart: all whose core is softmax(q · k) over keys that can be shown.

What a family makes of token vectors is a query, a key and a value for every head; every stage behind them is the same.
Additive attention has no product of q and k, and linear forms have no softmax: neither is among them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from attnviz.knobs import Integer, Knob, checked
from attnviz.registry import Registry
from attnviz.text import Text, same


@dataclass(frozen=True)
class Family:
    """Describe one family of variants.

    Args:
        key: Plain key for links.
        label: What it is called on screen.
        help: One sentence on what it does.
        source: URL of the paper.
        variant: Gives the key of the variant from the heads and KV heads.
        shares: Whether query heads can share KV heads; otherwise there are as many.
        sizes: Gives what the variant's ``config`` takes beside width, heads and d_k, from the family's own settings.
        knobs: Those settings.
    """

    key: str
    label: Text
    help: Text
    source: str
    variant: Callable[[int, int], str]
    shares: bool
    sizes: Callable[..., Mapping[str, int]] = dict
    knobs: tuple[Knob, ...] = ()

    def build(self, **settings: Any) -> Mapping[str, int]:
        """Give what the variant's ``config`` takes beside width, heads and d_k.

        Raises:
            Refusal: If a value breaks its knob's rule.
            ValueError: If a setting is not one of the knobs.
        """
        return self.sizes(**checked(self.key, self.knobs, settings))


def variant_key(heads: int, kv_heads: int) -> str:
    """Say which variant a number of KV heads makes: as many as heads MHA, one MQA, between GQA."""
    return "mha" if kv_heads == heads else "mqa" if kv_heads == 1 else "gqa"


FAMILIES: Registry[Family] = Registry(
    "family",
    (
        Family(
            "grouped",
            same("MHA · GQA · MQA"),
            Text("KV heads decide which of the three it is.", "由 KV 头数决定是三者中的哪一种。"),
            "https://arxiv.org/abs/2305.13245",
            variant_key,
            shares=True,
        ),
        Family(
            "mla",
            same("MLA"),
            Text(
                "Keys and values of every head are made of one latent; Q and K shown are those that the scores are of, "
                "with the rotary part behind the rest.",
                "各头的键和值都由同一个潜向量算出；图中的 Q、K 就是实际用来算分数的，旋转部分排在后面。",
            ),
            "https://arxiv.org/abs/2405.04434",
            lambda heads, kv_heads: "mla",
            shares=False,
            sizes=lambda latent, rope: {"kv_lora_rank": latent, "qk_rope_head_dim": rope},
            knobs=(
                Integer(
                    "latent",
                    Text("Latent width", "潜向量维度"),
                    512,
                    Text(
                        "Numbers kept of each token. Another width draws other matrices.",
                        "每个 token 保存的数值个数。宽度不同，矩阵也另行生成。",
                    ),
                    low=1,
                    high=1024,
                    slider_high=512,
                    stops=(1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512),
                ),
                Integer(
                    "rope",
                    Text("Rotary part", "旋转部分"),
                    64,
                    Text(
                        "The last entries of d_k: only these are rotated by a position encoding, and all heads share "
                        "their key.",
                        "d_k 的最后若干个分量：只有它们会被位置编码旋转，且这部分的键所有头共用。",
                    ),
                    low=0,
                    high=1024,
                    slider_high=128,
                ),
            ),
        ),
    ),
)

_NO_SOFTMAX = Text(
    "It has no softmax, and so no such stages; it is at /linear.", "它没有 softmax，也就没有这些阶段；见 /linear。"
)
# Variants whose stages are others than those drawn here.
ELSEWHERE: Mapping[str, Text] = MappingProxyType(
    {
        "additive": Text(
            "Additive attention has no product of q and k, and so no such stages; it is at /variants?variant=additive.",
            "加性注意力没有 q 与 k 的乘积，也就没有这些阶段；见 /variants?variant=additive。",
        ),
        "linear": _NO_SOFTMAX,
        "delta": _NO_SOFTMAX,
    }
)
