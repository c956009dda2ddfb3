"""How far each way to compute attention is from the exact result, in each data type."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.backends import BACKENDS
from attnviz.flash_view.view import View
from attnviz.flash_view.walk import tensors
from attnviz.masks import Mask, dense

DTYPES = ("float32", "bfloat16", "float16")
WAYS = ("eager", "flash", "sdpa")
# So many queries and keys at most: eager in float64 is held whole.
MOST = 1024


class Error(NamedTuple):
    """Hold one way's distance from float64.

    Args:
        largest: Largest difference of an entry of the output.
        relative: Norm of the difference over the norm of the exact output.
        kernel: What ran.
    """

    largest: float
    relative: float
    kernel: str


class Precision(NamedTuple):
    """Hold every way's error in every dtype, and how many queries and keys they are of."""

    errors: dict[str, dict[str, Error]]
    largest: float
    size: tuple[int, int]


def precision(view: View) -> Precision:
    """Compute the view's attention each way in each dtype, and in float64 from the very same rounded inputs.

    Rounding the inputs is no way's fault: what is left is what the way itself loses.
    """
    return _precision(view.call)


@lru_cache(maxsize=16)
def _precision(view: View) -> Precision:
    rows, cols = min(view.length, MOST), min(view.key_length, MOST)
    query, key, value = tensors(view)
    cut = query[:, :, :rows], key[:, :, :cols], value[:, :, :cols]
    mask, found, highest = view.build_mask(), {}, 0.0
    for dtype in DTYPES:
        given = tuple(tensor.to(getattr(torch, dtype)) for tensor in cut)
        exact = _exact(given, mask, view)
        highest = max(highest, float(exact.abs().max()))
        found[dtype] = {way: _error(way, given, mask, view, exact) for way in WAYS}
    return Precision(found, highest, (rows, cols))


def _exact(given: tuple[Tensor, ...], mask: Mask, view: View) -> Tensor:
    query, key, value = (tensor.double() for tensor in given)
    allowed = dense(mask, query.shape[2], key.shape[2], align=view.align)
    return BACKENDS["eager"].attend(query, key, value, allowed=allowed, scale=view.scale).output


def _error(way: str, given: tuple[Tensor, ...], mask: Mask, view: View, exact: Tensor) -> Error:
    query, key, value = given
    result = BACKENDS[way].attend(query, key, value, allowed=mask, align=view.align, scale=view.scale)
    difference = result.output.double() - exact
    norm = float(torch.linalg.vector_norm(exact)) or 1.0
    return Error(float(difference.abs().max()), float(torch.linalg.vector_norm(difference)) / norm, result.kernel)
