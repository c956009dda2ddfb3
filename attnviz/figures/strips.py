"""Rows of bars, one below the other on one scale, as plain data for a drawing that needs no chart library."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

# Beyond so many keys neighbours share a bar.
MOST_BARS = 256
MOST_TICKS = 9


def strips(rows: Mapping[str, np.ndarray], names: Mapping[str, str], notes: Mapping[str, str]) -> dict[str, Any]:
    """Give one row of weights below the other, all from 0 to 1 and over the same keys.

    Args:
        rows: Row → ``[keys]``; NaN where it left the dtype's range. Beyond ``MOST_BARS`` keys neighbours share a bar as
            high as the largest of them.
        names: Row → what it is called.
        notes: Row → what is said at its right.

    Returns:
        ``data``: for each row its name, its note ``text``, the number of its ``color`` in the theme, and ``y`` with a
        value for each bar. ``layout``: how many keys there are, how many share a bar, and which are named below.
    """
    data, keys, pool = [], 0, 1
    for index, (name, weights) in enumerate(rows.items()):
        keys = len(weights)
        pool = -(-keys // MOST_BARS)
        highest = np.maximum.reduceat(weights, np.arange(0, keys, pool))
        data.append({"name": names[name], "text": notes[name], "color": index, "y": highest})
    return {"data": data, "layout": {"keys": keys, "pool": pool, "ticks": ticks(keys)}}


def ticks(keys: int) -> list[int]:
    """Give which keys are named: all of few, else those at 1, 2 or 5 times a power of ten, ``MOST_TICKS`` at most."""
    steps = (step * 10**exponent for exponent in itertools.count() for step in (1, 2, 5))
    step = next(step for step in steps if -(-keys // step) <= MOST_TICKS)
    return list(range(0, keys, step))
