"""Where queries and keys come from: any function of d_k that gives them, drawn from a normal distribution here."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from attnviz import inputs

MOST_D_K = 1024
# Queries and keys of all groups together hold at most so many numbers (64 MiB); more keys then mean fewer groups.
MOST_ENTRIES = 2**24
GROUP_ROWS = 16

# d_k → query [groups, queries, d_k] and key [groups, keys, d_k], float32. Trained heads come in the same way: a group
# is then one head of one sequence. A source of one width only gives it for that d_k.
Source = Callable[[int], tuple[Tensor, Tensor]]


def groups_for(rows: int, keys: int) -> tuple[int, int]:
    """Give the number of groups and the queries of each that make up ``rows`` queries without holding too much."""
    most = max(1, MOST_ENTRIES // ((keys + GROUP_ROWS) * MOST_D_K))
    groups = max(1, min(rows // GROUP_ROWS, most))
    return groups, max(1, rows // groups)


def normal_source(
    *,
    groups: int,
    queries: int,
    keys: int,
    variance_q: float = 1.0,
    variance_k: float = 1.0,
    correlation: float = 0.0,
    seed: int = 0,
) -> Source:
    """Give normal queries and keys of any d_k; a larger d_k adds dimensions to the same vectors.

    Args:
        groups: Sets of queries and keys that have nothing to do with one another.
        queries: Queries per group.
        keys: Keys per group.
        variance_q: Variance of a query's entries.
        variance_k: Variance of a key's entries.
        correlation: Between each entry of a query and the same entry of its own key: query i belongs to key i mod
            ``keys``, and to the others it is a stranger.
        seed: Seed.
    """

    def give(d_k: int) -> tuple[Tensor, Tensor]:
        noise, key = (drawn[..., :d_k] for drawn in _drawn(groups, queries, keys, seed))
        own = key[:, torch.arange(queries) % keys]
        query = correlation * own + (1.0 - correlation * correlation) ** 0.5 * noise
        return query * variance_q**0.5, key * variance_k**0.5

    return give


@lru_cache(maxsize=2)
def _drawn(groups: int, queries: int, keys: int, seed: int) -> tuple[Tensor, Tensor]:
    both = inputs.random_normal((groups, queries + keys, MOST_D_K), seed)
    return both[:, :queries], both[:, queries:]
