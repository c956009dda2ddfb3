"""Position encodings: rotations of queries and keys, and waves added to the token vectors."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz.knobs import Choice, Knob, Number, checked
from attnviz.registry import Registry
from attnviz.text import Refusal, Text, same

LAYOUTS = ("half_split", "interleaved")

_BAD = Text("{name} must be {rule}, got {value}.", "{name} 应为{rule}，收到的是 {value}。")
_LAYOUT = Text("one of half_split, interleaved", " half_split 或 interleaved")
_WIDTH = Text("at least twice the {pairs} angles wide", "宽度至少为 {pairs} 个角度的两倍的张量")

# (positions [len], width) -> what is added to token vectors, [len, width].
Waves = Callable[[Tensor, int], Tensor]
# (positions [len], head_dim) -> angles [len, pairs].
Angles = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class Position:
    """Encode positions; each part that a kind does not use leaves its input as it is.

    Args:
        key: Plain key of its kind.
        waves: Gives what is added to the token vectors, or None.
        angles: Gives the angle of each pair of a head's entries, or None.
        layout: Which entries make a pair: ``half_split`` (i and i + pairs) or ``interleaved`` (2i and 2i + 1).
    """

    key: str
    waves: Waves | None = None
    angles: Angles | None = None
    layout: str = "half_split"

    def add(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Add the encoding to token vectors ``[..., len, width]`` whose first one stands at ``start``."""
        if self.waves is None:
            return tokens
        waves = self.waves(_places(start, tokens.shape[-2]), tokens.shape[-1])
        return tokens + waves.to(device=tokens.device, dtype=tokens.dtype)

    def turn(self, heads: Tensor, start: int = 0) -> Tensor:
        """Rotate queries or keys ``[..., len, head_dim]`` whose first one stands at ``start``."""
        if self.angles is None:
            return heads
        angles = self.angles(_places(start, heads.shape[-2]), heads.shape[-1])
        cos, sin = (wave.to(device=heads.device, dtype=heads.dtype) for wave in (angles.cos(), angles.sin()))
        return rotate(heads, cos, sin, layout=self.layout)


@dataclass(frozen=True)
class PositionKind:
    """Describe one kind of encoding: what it is called, what can be set, and how it is built from the settings.

    ``code`` gives plain PyTorch that defines ``waves(places)`` or ``turn(x, places)``, as the kind has them.
    """

    key: str
    label: Text
    help: Text
    source: str
    make: Callable[..., Position]
    knobs: tuple[Knob, ...] = ()
    code: Callable[..., str] | None = None

    def build(self, **settings: Any) -> Position:
        """Build the encoding from the values of its knobs; those not given take their default.

        Raises:
            Refusal: If a value breaks its knob's rule.
            ValueError: If a setting is not one of the knobs.
        """
        return self.make(**self.read(**settings))

    def read(self, **settings: Any) -> dict[str, Any]:
        """Give the checked value of every knob, see ``build``."""
        return checked(self.key, self.knobs, settings)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, *, layout: str = "half_split") -> Tensor:
    """Rotate pairs of entries, (a, b) → (a cos − b sin, b cos + a sin); entries past the pairs stay as they are.

    The two layouts pair different entries: weights trained with one give wrong scores with the other.

    Args:
        x: ``[..., len, width]``.
        cos: ``[..., len, pairs]``, broadcastable; 2 · pairs ≤ width.
        sin: As ``cos``.
        layout: ``half_split`` or ``interleaved``.

    Returns:
        Like ``x``.

    Raises:
        Refusal: If the layout is unknown or there are more pairs than entries.

    Source:
        RoFormer, section 3.4.2, https://arxiv.org/abs/2104.09864
    """
    if layout not in LAYOUTS:
        raise Refusal(_BAD.fill(name=same("layout"), rule=_LAYOUT, value=same(repr(layout))))
    pairs = cos.shape[-1]
    if 2 * pairs > x.shape[-1]:
        raise Refusal(_BAD.fill(name=same("x"), rule=_WIDTH.fill(pairs=pairs), value=same(str(list(x.shape)))))
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if layout == "half_split":
        first, second = turned[..., :pairs], turned[..., pairs:]
        halves = (first * cos - second * sin, second * cos + first * sin)
        return torch.cat((*halves, rest), dim=-1)
    first, second = turned[..., 0::2], turned[..., 1::2]
    mixed = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
    return torch.cat((mixed, rest), dim=-1)


def _places(start: int, length: int) -> Float[Tensor, " length"]:
    # In float32 the angle of position 131,072 would be off by 0.008.
    return torch.arange(start, start + length, dtype=torch.float64)


def _rates(pairs: int, base: float) -> Float[Tensor, " pairs"]:
    """Give the angle per step of each pair, base^(−i/pairs)."""
    return torch.exp(torch.arange(pairs, dtype=torch.float64) * (-math.log(base) / max(pairs, 1)))


def _rope(base: float, layout: str, partial_rotary_factor: float) -> Position:
    def angles(places: Tensor, width: int) -> Tensor:
        pairs = int(width * partial_rotary_factor) // 2
        return places[:, None] * _rates(pairs, base)

    return Position("rope", angles=angles, layout=layout)


def _rope_code(base: float, layout: str, partial_rotary_factor: float) -> str:
    pairs = "x.shape[-1]" if partial_rotary_factor == 1.0 else f"int(x.shape[-1] * {partial_rotary_factor!r})"
    if layout == "half_split":
        parts = "a, b = x[..., :pairs], x[..., pairs : 2 * pairs]"
        joined = "torch.cat((a * cos - b * sin, b * cos + a * sin, x[..., 2 * pairs :]), dim=-1)"
    else:
        parts = "a, b = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]"
        joined = (
            "torch.cat((torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2), x[..., 2 * pairs :]), -1)"
        )
    return f'''\
def turn(x, places):
    """Rotate pairs of entries, each by place times its own rate."""
    pairs = {pairs} // 2
    rates = torch.exp(torch.arange(pairs).double() * ({-math.log(base)!r} / max(pairs, 1)))
    angles = places[:, None] * rates
    cos, sin = angles.cos().float(), angles.sin().float()
    {parts}
    return {joined}
'''


def _sinusoidal_code(base: float) -> str:
    return f'''\
def waves(places):
    """Give sines and cosines of the places, [length, width]."""
    rates = torch.exp(torch.arange(0, width, 2).double() * ({-math.log(base)!r} / width))
    angles = places[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[:, :width].float()
'''


def _sinusoidal(base: float) -> Position:
    def waves(places: Tensor, width: int) -> Tensor:
        angles = places[:, None] * torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(base) / width))
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[:, :width]

    return Position("sinusoidal", waves=waves)


_BASE = Number(
    "base",
    Text("Base", "基数"),
    10000.0,
    Text("A larger base turns the slow pairs more slowly.", "基数越大，慢的分量转得越慢。"),
    low=2.0,
    high=1e8,
    slider_high=20000.0,
    step=2.0,
)

POSITIONS: Registry[PositionKind] = Registry(
    "position encoding",
    (
        PositionKind(
            "none",
            Text("None", "无"),
            Text("Attention does not see the order of the tokens.", "注意力看不到 token 的顺序。"),
            "https://arxiv.org/abs/1706.03762",
            lambda: Position("none"),
        ),
        PositionKind(
            "rope",
            Text("RoPE (rotary)", "RoPE（旋转位置编码）"),
            Text(
                "Rotates queries and keys by their position, so that a score depends on their distance.",
                "按位置旋转查询和键，使分数取决于两者的距离。",
            ),
            "https://arxiv.org/abs/2104.09864",
            _rope,
            (
                _BASE,
                Choice(
                    "layout",
                    Text("Layout", "排列方式"),
                    "half_split",
                    Text("Which entries are rotated together.", "哪些分量成对旋转。"),
                    options={
                        "half_split": Text("half-split (i, i + d/2)", "前后两半配对 (i, i + d/2)"),
                        "interleaved": Text("interleaved (2i, 2i + 1)", "相邻配对 (2i, 2i + 1)"),
                    },
                ),
                Number(
                    "partial_rotary_factor",
                    Text("Rotated share", "旋转的比例"),
                    1.0,
                    Text("Share of a head's entries that are rotated.", "一个头中参与旋转的分量比例。"),
                    low=0.0,
                    high=1.0,
                    step=0.05,
                ),
            ),
            _rope_code,
        ),
        PositionKind(
            "sinusoidal",
            Text("Sinusoidal", "正弦位置编码"),
            Text(
                "Adds sines and cosines of the position to the token vectors before projection.",
                "投影之前，把位置的正弦和余弦加到 token 向量上。",
            ),
            "https://arxiv.org/abs/1706.03762",
            _sinusoidal,
            (_BASE,),
            _sinusoidal_code,
        ),
    ),
)
