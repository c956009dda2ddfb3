"""Changes of the scores before the mask: a bias, a cap, a factor."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnviz.knobs import Flag, Integer, Knob, Number
from attnviz.registry import Registry
from attnviz.text import Refusal, Text, same

Span = tuple[int, int]
# Gives the bias of some heads from positions: (heads, distance = key - query) -> [heads, rows, cols].
Bias = Callable[[int, Tensor], Tensor]

_BAD = Text("{name} must be {rule}, got {value}.", "{name} 应为{rule}，收到的是 {value}。")
_ALIGN = Text("one of top_left, bottom_right", " top_left 或 bottom_right")


class Terms(NamedTuple):
    """Hold what a backend is given.

    ``bias`` is ``[1, heads, rows, cols]`` or None, ``softcap`` a bound or None, ``scale`` a factor on the scale.
    """

    bias: Tensor | None
    softcap: float | None
    scale: float


@dataclass(frozen=True)
class ScoreMod:
    """Change scores to softcap(score · scale) + bias.

    Args:
        key: Plain key of its kind.
        bias: Gives the bias from heads and distances, or None.
        softcap: Bound c > 0, as c · tanh(score / c), or None.
        scale: Factor on the scale of the scores.
    """

    key: str
    bias: Bias | None = None
    softcap: float | None = None
    scale: float = 1.0

    def terms(
        self,
        heads: int,
        q_len: int,
        kv_len: int,
        *,
        align: str = "top_left",
        rows: Span | None = None,
        cols: Span | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Terms:
        """Give bias, softcap and scale factor for a call, or for one region of its score matrix.

        Args:
            heads: Query heads.
            q_len: Queries.
            kv_len: Keys.
            align: Where query 0 stands: ``top_left`` at key 0, ``bottom_right`` at key kv_len - q_len.
            rows: First query of the region and the one after the last; None is all.
            cols: First key and the one after the last.
            dtype: Type of the bias.
            device: Device of the bias.

        Raises:
            Refusal: If ``align`` is neither of the two.
        """
        if align not in ("top_left", "bottom_right"):
            raise Refusal(_BAD.fill(name=same("align"), rule=_ALIGN, value=same(repr(align))))
        if self.bias is None:
            return Terms(None, self.softcap, self.scale)
        offset = kv_len - q_len if align == "bottom_right" else 0
        query = torch.arange(*(rows or (0, q_len)), device=device) + offset
        key = torch.arange(*(cols or (0, kv_len)), device=device)
        bias = self.bias(heads, key - query[:, None])
        return Terms(bias[None].to(dtype), self.softcap, self.scale)


@dataclass(frozen=True)
class ScoreModKind:
    """Describe one kind of change: what it is called, what can be set, and how it is built from the settings."""

    key: str
    label: Text
    help: Text
    source: str
    make: Callable[..., ScoreMod]
    knobs: tuple[Knob, ...] = ()

    def build(self, **settings: Any) -> ScoreMod:
        """Build the change from the values of its knobs; those not given take their default.

        Raises:
            Refusal: If a value breaks its knob's rule.
            ValueError: If a setting is not one of the knobs.
        """
        checked: Mapping[str, Any] = {
            knob.name: knob.parse(settings.pop(knob.name, knob.default)) for knob in self.knobs
        }
        if settings:
            raise ValueError(f"{self.key} has no setting {', '.join(settings)}")
        return self.make(**checked)


def alibi_slopes(heads: int) -> Float[Tensor, " heads"]:
    """Give the slope of each head: a geometric series from 2^(-8/n) to 2^-8.

    For n heads that are no power of two, the series of the power below comes first, then every second slope of the
    series of the power above.

    Source:
        ALiBi, section 3, https://arxiv.org/abs/2108.12409; other head counts: its released code,
        https://github.com/ofirpress/attention_with_linear_biases
    """
    whole = 2 ** int(math.log2(heads))
    exponents = [8 * (i + 1) / whole for i in range(whole)]
    exponents += [8 * (2 * i + 1) / (2 * whole) for i in range(heads - whole)]
    return torch.tensor([2.0**-e for e in exponents])


def t5_bucket(
    distance: Int[Tensor, "..."], *, buckets: int, max_distance: int, bidirectional: bool
) -> Int[Tensor, "..."]:
    """Give the bucket of each distance: one each while near, then logarithmic up to ``max_distance``, then the last.

    Args:
        distance: Key position less query position.
        buckets: Number of buckets; with ``bidirectional`` half of them are for keys behind, half for keys ahead.
        max_distance: Distance from which all share the last bucket.
        bidirectional: Without it, keys ahead share bucket 0 with the query itself.

    Source:
        T5, section 2.1, https://arxiv.org/abs/1910.10683
    """
    if bidirectional:
        buckets //= 2
        first, away = (distance > 0).to(torch.int64) * buckets, distance.abs()
    else:
        first, away = torch.zeros_like(distance), (-distance).clamp(min=0)
    near = max(1, buckets // 2)
    if max_distance <= near:
        return first + away.clamp(max=buckets - 1)
    share = (away.clamp(min=near) / near).log() / math.log(max_distance / near)
    far = near + (share * (buckets - near)).to(torch.int64)
    return first + torch.where(away < near, away, far).clamp(max=buckets - 1)


def _alibi() -> ScoreMod:
    return ScoreMod(
        "alibi", bias=lambda heads, distance: -alibi_slopes(heads).to(distance.device)[:, None, None] * distance.abs()
    )


def _t5_bias(buckets: int, max_distance: int, bidirectional: bool, seed: int) -> ScoreMod:
    def bias(heads: int, distance: Tensor) -> Tensor:
        # Each head's table is drawn from its own seed, so that more heads leave the first ones as they were.
        tables = [torch.randn(128, generator=torch.Generator().manual_seed(seed * 1009 + h)) for h in range(heads)]
        table = torch.stack(tables).to(distance.device)
        bucket = t5_bucket(distance, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
        return table[:, bucket]

    return ScoreMod("t5_bias", bias=bias)


SCORE_MODS: Registry[ScoreModKind] = Registry(
    "score mod",
    (
        ScoreModKind(
            "none",
            Text("None", "无"),
            Text("The scores are used as they are.", "分数原样使用。"),
            "https://arxiv.org/abs/1706.03762",
            lambda: ScoreMod("none"),
        ),
        ScoreModKind(
            "alibi",
            Text("ALiBi (linear distance)", "ALiBi（线性距离偏置）"),
            Text(
                "Takes slope × distance off each score; every head has its own slope. Nothing is learned.",
                "每个分数减去“斜率 × 距离”，每个头有自己的斜率，不含可学习参数。",
            ),
            "https://arxiv.org/abs/2108.12409",
            _alibi,
        ),
        ScoreModKind(
            "softcap",
            Text("Soft cap", "软上限 (softcap)"),
            Text(
                "Bends scores so that none exceeds the cap: cap · tanh(score / cap), before the mask.",
                "让分数不超过上限：cap · tanh(分数 / cap)，在掩码之前。",
            ),
            "https://arxiv.org/abs/2408.00118",
            lambda cap: ScoreMod("softcap", softcap=cap),
            (
                Number(
                    "cap",
                    Text("Cap", "上限"),
                    50.0,
                    Text("Gemma 2 uses 50.", "Gemma 2 用 50。"),
                    low=0.1,
                    high=1000.0,
                    step=0.1,
                ),
            ),
        ),
        ScoreModKind(
            "t5_bias",
            Text("T5 relative bias", "T5 相对位置偏置"),
            Text(
                "Adds one number per head and bucket of distances. A model learns them; here they are random. "
                "T5 itself uses scale 1.",
                "每个头、每个距离桶加上一个数。模型中它们由学习得到，这里是随机数。T5 本身的缩放系数为 1。",
            ),
            "https://arxiv.org/abs/1910.10683",
            _t5_bias,
            (
                Integer("buckets", Text("Buckets", "桶数"), 32, low=2, high=128),
                Integer(
                    "max_distance",
                    Text("Largest distance", "最大距离"),
                    128,
                    Text("Farther keys share the last bucket.", "更远的键共用最后一个桶。"),
                    Text("tokens", "token"),
                    low=1,
                    high=4096,
                ),
                Flag(
                    "bidirectional",
                    Text("Keys ahead have buckets of their own", "后方的键使用单独的桶"),
                    True,
                    Text("On in T5's encoder, off in its decoder.", "T5 编码器中开启，解码器中关闭。"),
                ),
                Integer("seed", Text("Seed of the table", "偏置表的随机种子"), 0, low=0, high=2**20),
            ),
        ),
        ScoreModKind(
            "temperature",
            Text("Temperature", "温度"),
            Text(
                "Divides the scores: above 1 the weights spread out, below 1 they sharpen.",
                "分数除以温度：大于 1 时权重更平均，小于 1 时更集中。",
            ),
            "https://arxiv.org/abs/1503.02531",
            lambda temperature: ScoreMod("temperature", scale=1.0 / temperature),
            (Number("temperature", Text("Temperature", "温度"), 1.0, low=0.01, high=100.0, step=0.01),),
        ),
    ),
)
