"""The peak that is predicted for what a request measures, by what computes it, and how close to it that comes."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from attnviz.backends import BACKENDS
from attnviz.backends.flash import FLASH, TILE
from attnviz.benchmark.predict import asked, made, predict
from attnviz.benchmark.rehearsal import rehearse
from attnviz.benchmark.request import Contestant, Request
from attnviz.config import Shape, dtype_size
from attnviz.text import Refusal
from attnviz.variants import VARIANTS, Work

# Tiles that a rehearsal walks through: more of them take longer than a page should wait, and one looks like the next.
_MOST_TILES = 512
_WHOLE = ("full", "causal")  # masks that no call cuts into pieces
_KEPT = 1024  # rehearsals that are remembered
_SINGLE = 4  # bytes of a number from which on no matrix library lays out numbers anew


class Way(NamedTuple):
    """One way to know a peak.

    Args:
        name: What it is.
        fits: Says whether it is the way for a call; the first that fits is taken.
        peak: Gives the bytes, or None.
        exact: They are those that torch allocates on one CPU thread, to the byte, in float32 and float64.
    """

    name: str
    fits: Callable[[Contestant, Request], bool]
    peak: Callable[[Contestant, Request], int | None]
    exact: bool


def declared_peak(contestant: Contestant, request: Request) -> int | None:
    """Give the peak that is predicted for what a request measures, or None where nothing predicts it."""
    return _way(contestant, request).peak(contestant, request)


def accuracy(contestant: Contestant, request: Request) -> str:
    """Say how the predicted peak stands to the measured one: ``exact``, ``about``, or ``none`` where there is none.

    A decoding step over tens of thousands of keys counts as exact, though the matrix library's scratch can add 0.1 MiB.
    """
    if declared_peak(contestant, request) is None:
        return "none"
    # In half precision the matrix library's own scratch comes on top for some shapes.
    return "exact" if _way(contestant, request).exact and dtype_size(request.dtype) >= _SINGLE else "about"


def _way(contestant: Contestant, request: Request) -> Way:
    return next(way for way in PREDICTED if way.fits(contestant, request))


def _is_half_step(contestant: Contestant, request: Request) -> bool:
    """Say whether a token is decoded in half precision on a CPU, whose scratch is many times what such a step holds."""
    return contestant.what == "decode" and dtype_size(request.dtype) < _SINGLE and request.device == "cpu"


def _is_unknown(contestant: Contestant, request: Request) -> bool:
    """Say whether nobody has worked out a call."""
    return _is_half_step(contestant, request) or VARIANTS[contestant.variant].asks(contestant.config)


def _has_ledger(contestant: Contestant, request: Request) -> bool:
    """Say whether a ledger tells the peak to the byte; masks that are cut into blocks of rows are in none."""
    variant = VARIANTS[contestant.variant]
    whole = request.mask in _WHOLE or bool(variant.score_passes(str(contestant.backend)))
    return whole and variant.is_exact(contestant.config, str(contestant.backend))


def _can_rehearse(contestant: Contestant, request: Request) -> bool:
    """Say whether a call asks nothing of its numbers that decides what it takes, and is walked through soon."""
    tiles = VARIANTS[contestant.variant].tiles(contestant.config, _work(contestant, request))
    if contestant.backend == FLASH.key:
        # Whether a tile is computed is read from the mask's cells; and it computes no gradient.
        tiles = max(tiles, math.ceil(request.q_len / TILE[0]) * math.ceil(request.keys / TILE[1]))
        follows = request.mode == "forward"
    else:
        goes_on = VARIANTS[contestant.variant].piece(contestant.config, str(contestant.backend)) is not None
        follows = not goes_on or request.mask in _WHOLE
    return follows and tiles <= _MOST_TILES


def _kernel_peak(contestant: Contestant, request: Request) -> int | None:
    """Give what one of torch's kernels, asked for by name, is known to take for a forward pass of the core."""
    known = BACKENDS[contestant.backend].kernel_bytes if contestant.backend in BACKENDS else {}
    if contestant.what != "core" or request.mode != "forward" or contestant.kernel not in known:
        return None
    heads, kv_heads, head_dim, v_head_dim = VARIANTS[contestant.variant].heads(contestant.config)
    shape = Shape(request.batch, heads, kv_heads, request.q_len, request.keys, head_dim, v_head_dim)
    return known[contestant.kernel](shape, dtype_size(request.dtype), request.mask != "full")


def _nothing(contestant: Contestant, request: Request) -> None:
    return None


def _by_ledger(contestant: Contestant, request: Request) -> int | None:
    if contestant.what == "core" and request.mode == "forward":
        return predict(contestant, request).peak_bytes
    work = _work(contestant, request)
    return VARIANTS[contestant.variant].whole_peak_bytes(contestant.config, work, str(contestant.backend))


def _by_rehearsal(contestant: Contestant, request: Request) -> int | None:
    """Rehearse a call, and remember it by what its memory depends on."""
    entrant = replace(contestant, label="")
    names = ("q_len", "kv_len", "batch", "dtype", "mask", "mask_knobs", "mode")
    alone = Request((entrant,), **{name: getattr(request, name) for name in names})
    return _rehearsed(json.dumps(alone.to_json(), sort_keys=True))


@lru_cache(maxsize=_KEPT)
def _rehearsed(written: str) -> int | None:
    request = Request.from_json(json.loads(written))
    try:
        return rehearse(request.contestants[0], request)
    except Refusal:
        return None  # what would be refused holds nothing


def _work(contestant: Contestant, request: Request) -> Work:
    """Say how much a call has to do."""
    q_len, masked = asked(contestant, request)
    rule = request.mask if contestant.what != "decode" else "full" if contestant.cached else "causal"
    return Work(
        q_len,
        request.keys,
        request.batch,
        dtype_size(request.dtype),
        masked,
        causal=not masked and rule == "causal" and q_len == request.keys,
        layer=contestant.what != "core",
        gradient=request.mode != "forward",
        spread=bool(made(contestant, q_len, request.keys)) and not contestant.has_form,
    )


PREDICTED = (
    Way("kernel", lambda contestant, request: contestant.kernel != "auto", _kernel_peak, exact=True),
    Way("none", _is_unknown, _nothing, exact=False),
    Way("ledger", _has_ledger, _by_ledger, exact=True),
    Way("rehearsal", _can_rehearse, _by_rehearsal, exact=True),
    Way("formula", lambda contestant, request: True, _by_ledger, exact=False),
)
