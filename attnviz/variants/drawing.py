"""Seeded weights: each head's numbers depend on its own place alone."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def projection(
    seed: int, stream: int, heads: int, width: int, cols: int, *, merges: bool = False
) -> Float[Tensor, "rows cols"]:
    """Draw the matrix of a projection head by head, so that more or wider heads leave the numbers before as they were.

    Entries of ``x @ matrix`` have unit variance when those of x do: each column has unit length on average.

    Args:
        seed: Seed of the whole layer, 0 or more.
        stream: Number of the projection.
        heads: Heads on the side that is cut into heads.
        width: Entries of one head.
        cols: Width of the other side.
        merges: The heads are the input, not the output.

    Returns:
        ``[cols, heads · width]``, or ``[heads · width, cols]`` when it merges heads.
    """
    stacked = torch.cat([draw(seed, stream, head, width, cols) for head in range(heads)])
    matrix = stacked if merges else stacked.t()
    return matrix * max(matrix.shape[0], 1) ** -0.5


def draw(seed: int, stream: int, index: int, rows: int, cols: int) -> Float[Tensor, "rows cols"]:
    """Draw a matrix of unit normals that depends on its own place alone.

    A matrix of more rows begins with the rows of a smaller one, and another ``index`` is another matrix: adding heads
    or widening them adds weights and leaves the ones before as they were.

    Args:
        seed: Seed of the whole layer, 0 or more.
        stream: Number of the projection.
        index: Number of the head.
        rows: Entries of one head.
        cols: Width of the input.
    """
    # The generator uses 32 bits of its seed: mix all of the place into them, away from small seeds that inputs use.
    place = (seed + 1) * 0x9E3779B97F4A7C15 + stream * 0xC2B2AE3D27D4EB4F + index * 0x165667B19E3779F9
    mixed = ((place ^ (place >> 29)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    generator = torch.Generator().manual_seed(mixed >> 32)
    # torch fills sixteen normals at a time; asked for a multiple of sixteen, a longer draw begins with a shorter one.
    count = math.ceil(rows * cols / 16) * 16
    return torch.randn(count, generator=generator)[: rows * cols].view(rows, cols)
