"""What every variant does with the arguments of a call: checks, where its tokens stand, what changes its scores."""

import torch
from torch import Tensor

from attnviz.score_mods import ScoreMod, Terms
from attnviz.text import Text, same
from attnviz.variants.base import Tensors, Variant, refuse

_AXES = Text("a floating-point tensor with axes [batch, length, {width}]", "浮点张量，各轴为 [批, 长度, {width}]")
_BATCH = Text("of batch {batch}, as x is", "与 x 的批大小 {batch} 相同的张量")
_PAST = Text(
    "a cache of this configuration and batch: {shapes}, with any number of tokens",
    "由同一配置、同一批大小产生的缓存：{shapes}，token 数任意",
)


def check_tokens(name: str, tokens: Tensor, width: int, batch: int | None = None) -> None:
    """Check that token vectors have the axes and the width that the weights expect.

    Raises:
        Refusal: If not, or if the batch differs from ``batch``.
    """
    if (
        not isinstance(tokens, Tensor)
        or tokens.dim() != 3
        or not tokens.is_floating_point()
        or tokens.shape[2] != width
    ):
        got = list(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
        raise refuse(name, _AXES.fill(width=width), got)
    if batch is not None and tokens.shape[0] != batch:
        raise refuse(name, _BATCH.fill(batch=batch), list(tokens.shape))


def past_tokens(variant: Variant, config: object, cache: Tensors | None, batch: int) -> int:
    """Check a cache against what the variant declares, and count its tokens; None has none.

    Raises:
        Refusal: If it is not a cache of this configuration and batch.
    """
    if cache is None:
        return 0
    # A cache may be empty, so the axis of the tokens is where the declarations for two lengths differ.
    shapes, longer = variant.cache(config, 1), variant.cache(config, 2)
    patterns: dict[str, list[int | None]] = {
        name: [batch, *(size if size == other else None for size, other in zip(shape, longer[name], strict=True))]
        for name, shape in shapes.items()
    }
    lengths: set[int] = set()
    for name, pattern in patterns.items():
        got = tuple(cache[name].shape) if name in cache else ()
        lengths.update(size for size, want in zip(got, pattern, strict=False) if want is None)
        if (
            len(got) != len(pattern)
            or len(lengths) != 1
            or any(w not in (None, g) for w, g in zip(pattern, got, strict=True))
        ):
            words = ", ".join(f"{key} {str(axes).replace('None', 'tokens')}" for key, axes in patterns.items())
            raise refuse(f'cache["{name}"]', _PAST.fill(shapes=same(words)), got or None)
    return lengths.pop()


def behind(past: Tensor | None, new: Tensor, axis: int) -> Tensor:
    """Put new tokens behind those of a cache; without new ones the cache is given as it is, uncopied."""
    if past is None:
        return new
    return torch.cat((past, new), dim=axis) if new.shape[axis] else past


def query_start(q_len: int, past: int, context: Tensor | None, align: str) -> int:
    """Give where the first query stands: after the past in self attention, as ``align`` says in cross attention."""
    if context is None:
        return past
    return past + context.shape[1] - q_len if align == "bottom_right" else 0


def changes(
    score_mod: ScoreMod | None,
    shape: tuple[int, int, int],
    scale: float,
    *,
    align: str,
    dtype: torch.dtype,
    device: torch.device,
) -> Terms:
    """Give bias, softcap and the final scale of a call of ``shape`` (heads, q_len, kv_len)."""
    if score_mod is None:
        return Terms(None, None, scale)
    bias, softcap, factor = score_mod.terms(*shape, align=align, dtype=dtype, device=device)
    return Terms(bias, softcap, scale * factor)
