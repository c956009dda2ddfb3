"""Forgetting: products of queries and keys that lose weight with every token between them.

``log_decay`` holds, for each token, the logarithm of what is left of the state when the token comes in: one number for
a head (last axis 1) or one for each feature. ``total`` is its running sum, so that between key j and query i the factor
exp(total_i - total_j) is left. The two are never taken apart where the difference could be positive: exp(-total_j)
alone overflows when much has been forgotten.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

_BLOCK = 16  # queries whose keys between them are taken pair by pair, feature by feature


def weigh(
    query: Float[Tensor, "*heads rows features"],
    key: Float[Tensor, "*keys cols features"],
    total: Float[Tensor, "*shared cols rates"] | None,
    places: Int[Tensor, " rows"],
) -> Float[Tensor, "*heads rows cols"]:
    """Give φ(q) · φ(k), decayed, for each query and the keys up to its place; 0 for later keys.

    Args:
        query: Mapped queries.
        key: Mapped keys.
        total: Running sum of the logarithms of decay, or None.
        places: Last key that each query sees, rising; -1 sees none.
    """
    cols = key.shape[-2]
    seen = torch.arange(cols, device=key.device) <= places[:, None]
    if total is None:
        return (query @ key.mT).masked_fill_(~seen, 0.0)
    here = at(total, places)
    if total.shape[-1] == 1:
        ratio = (here - total.mT).masked_fill(~seen, -torch.inf).exp()
        return (query @ key.mT) * ratio
    rows = [
        _block(query[..., i : i + _BLOCK, :], key, total, here[..., i : i + _BLOCK, :], places[i : i + _BLOCK])
        for i in range(0, query.shape[-2], _BLOCK)
    ]
    return torch.cat(rows, dim=-2)


def at(total: Float[Tensor, "*shared cols rates"], places: Int[Tensor, " rows"]) -> Float[Tensor, "*shared rows rates"]:
    """Give the running sum at each place; 0 before the first token."""
    padded = torch.nn.functional.pad(total, (0, 0, 1, 0))
    return padded.index_select(-2, places + 1)


def _block(query: Tensor, key: Tensor, total: Tensor, here: Tensor, places: Tensor) -> Tensor:
    """Weigh a few queries, each feature with its own decay.

    Keys up to the first query's place meet the queries through the decay of that place: both factors are at most one.
    Those between the queries are few and are taken pair by pair.
    """
    first, last = int(places[0]), int(places[-1])
    before, between = slice(0, first + 1), slice(first + 1, last + 1)
    reference = here[..., :1, :]
    early = (query * (here - reference).exp()) @ (key[..., before, :] * (reference - total[..., before, :]).exp()).mT
    gap = here[..., :, None, :] - total[..., None, between, :]
    seen = torch.arange(first + 1, last + 1, device=key.device) <= places[:, None]
    ratio = gap.masked_fill(~seen[..., None], -torch.inf).exp()
    late = (query[..., :, None, :] * ratio * key[..., None, between, :]).sum(-1)
    unseen = late.new_zeros(*late.shape[:-1], key.shape[-2] - last - 1)
    return torch.cat((early, late, unseen), dim=-1)
