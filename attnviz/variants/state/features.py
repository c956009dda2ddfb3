"""Feature maps: what queries and keys go through before they meet in a product instead of a softmax."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz.registry import Registry
from attnviz.text import Text, same
from attnviz.variants.drawing import draw

_STREAM = 301


@dataclass(frozen=True)
class FeatureMap:
    """Describe a feature map φ; the weight of a pair is then φ(q) · φ(k).

    Args:
        key: Plain key for links and registries.
        label: What it is called on screen.
        help: One sentence on what it gives.
        formula: The map as LaTeX.
        apply: Gives ``[..., features]`` of ``[..., width]`` and of the drawn directions ``[features, width]``, where
            the map has some.
        source: URL of the paper.
        is_random: It has drawn directions, and its weights are an estimate of exp(scale · q·k).
        is_positive: No weight is negative.
        is_never_zero: Every feature is above 0; one that is 0 was too small for the precision.
    """

    key: str
    label: Text
    help: Text
    formula: str
    apply: Callable[[Tensor, Tensor | None], Tensor] = field(repr=False)
    source: str
    is_random: bool = False
    is_positive: bool = True
    is_never_zero: bool = False

    def maps(
        self, scale: float, directions: Float[Tensor, "features width"] | None = None
    ) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
        """Give the map of queries and the map of keys.

        Only a random map knows of a scale, inside the exponential that it estimates; for the others a scale is a factor
        of every weight.

        Args:
            scale: Factor of the scores.
            directions: What the random map draws; of ``directions``.
        """
        if not self.is_random:
            return (lambda query: self.apply(query, None)), (lambda key: self.apply(key, None))
        size = math.sqrt(abs(scale))
        return (
            lambda query: self.apply(query * math.copysign(size, scale), directions),
            lambda key: self.apply(key * size, directions),
        )


def directions(features: int, width: int, *, seed: int) -> Float[Tensor, "features width"]:
    """Draw the directions of the random map: rows that stand at right angles in blocks of ``width``.

    Each row alone is as a row of independent normals, so the estimate stays unbiased; together they spread better.

    Source:
        Choromanski et al. 2020, section 2.4, https://arxiv.org/abs/2009.14794
    """
    blocks = range(math.ceil(features / width))
    squares = torch.stack([draw(seed, _STREAM, 2 * block, width, width) for block in blocks]).double()
    drawn = torch.stack([draw(seed, _STREAM, 2 * block + 1, width, width) for block in blocks]).double()
    # The signs of the diagonal make the rotations uniform, which QR alone does not.
    rotations, triangles = torch.linalg.qr(squares)
    rotations = rotations * triangles.diagonal(dim1=1, dim2=2).sign()[:, None]
    return (drawn.norm(dim=2, keepdim=True) * rotations.mT).flatten(0, 1)[:features].float()


def _elu(x: Tensor, _: Tensor | None) -> Tensor:
    return torch.nn.functional.elu(x).add_(1)


def _random(x: Tensor, rows: Tensor | None) -> Tensor:
    assert rows is not None
    rows = rows.to(x.dtype)
    exponent = x @ rows.mT - x.square().sum(-1, keepdim=True) / 2
    return exponent.exp_() * rows.shape[0] ** -0.5


FEATURE_MAPS: Registry[FeatureMap] = Registry(
    "feature map",
    (
        FeatureMap(
            "elu",
            Text("elu + 1", "elu + 1"),
            Text(
                "x + 1 above zero and exp(x) below: always positive.", "大于零时取 x + 1，小于零时取 exp(x)：恒为正。"
            ),
            r"\varphi(x) = \mathrm{elu}(x) + 1",
            _elu,
            "https://arxiv.org/abs/2006.16236",
            is_never_zero=True,
        ),
        FeatureMap(
            "relu",
            Text("ReLU", "ReLU"),
            Text(
                "Cuts what is negative: many products are zero, and a row may see nothing.",
                "截去负的部分：许多乘积为零，有的行可能什么都看不到。",
            ),
            r"\varphi(x) = \max(x, 0)",
            lambda x, _: torch.relu(x),
            "https://arxiv.org/abs/2103.13076",
        ),
        FeatureMap(
            "squared_relu",
            Text("ReLU²", "ReLU²"),
            Text("ReLU squared: large entries count more.", "ReLU 的平方：大的分量更占优势。"),
            r"\varphi(x) = \max(x, 0)^2",
            lambda x, _: torch.relu(x).square(),
            "https://arxiv.org/abs/2109.08668",
        ),
        FeatureMap(
            "softmax",
            Text("Softmax over features", "特征维 softmax"),
            Text(
                "A softmax over the entries of one vector, not over the keys.",
                "在一个向量的各维之间做 softmax，而不是在各个键之间。",
            ),
            r"\varphi(x) = \mathrm{softmax}(x)",
            lambda x, _: torch.softmax(x, dim=-1),
            "https://arxiv.org/abs/1812.01243",
            is_never_zero=True,
        ),
        FeatureMap(
            "identity",
            Text("Identity", "恒等"),
            Text(
                "The vectors as they are: weights may be negative, and a row's sum may be close to zero.",
                "向量保持原样：权重可能为负，一行之和可能接近零。",
            ),
            r"\varphi(x) = x",
            lambda x, _: x,
            "https://arxiv.org/abs/2102.11174",
            is_positive=False,
        ),
        FeatureMap(
            "performer",
            same("Performer"),
            Text(
                "Exponentials of random directions: on average exactly softmax's exp(q·k); the more features, the "
                "closer.",
                "随机方向上的指数：期望恰好等于 softmax 的 exp(q·k)；特征越多越接近。",
            ),
            r"\varphi(x) = \tfrac{1}{\sqrt{m}}\,\exp\!\left(Wx - \tfrac{1}{2}\lVert x\rVert^2\right)",
            _random,
            "https://arxiv.org/abs/2009.14794",
            is_random=True,
            is_never_zero=True,
        ),
    ),
)
