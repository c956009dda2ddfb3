"""Three ways to the same numbers: all pairs at once, chunk by chunk with a running state, token by token."""

import torch
from torch import Tensor

from attnviz.variants.state.decay import at, weigh
from attnviz.variants.state.pieces import Call, StateOutput
from attnviz.variants.state.walk import Piece, added, cut, walk, written

_GATED = 16  # tokens of a chunk whose every feature decays on its own: its pairs are taken feature by feature


def parallel(call: Call, chunk: int) -> StateOutput:
    """Make the weight of every pair: memory and work grow with the square of the length."""
    q_len, kv_len = call.query.shape[3], call.key.shape[3]
    query, piece = call.queries(0, q_len), cut(call, 0, kv_len)
    places = call.reading.places(q_len, kv_len, query.device)
    weights = weigh(query, piece.key, piece.total, places)
    if call.reading.pairs is not None:
        pairs = call.reading.pairs
        split = tuple(query.shape[1:3]) if pairs.shape[1] > 1 else (1, 1)
        weights = weights.masked_fill(~pairs.unflatten(1, split), 0.0)
    carried = query if piece.total is None else query * at(piece.total, places).exp()
    sums = weights @ piece.value + carried @ call.start
    if call.normalize:
        shown = (weights / sums[..., -1:]).masked_fill_(sums[..., -1:] == 0, 0.0)
    else:
        shown = weights * call.factor
    return call.answer(call.finish(sums), written(call.start, *piece[:3]), shown, "parallel")


def chunked(call: Call, chunk: int) -> StateOutput:
    """Go through the sequence in chunks: pairs inside a chunk, and a state for everything before it."""
    chunk = chunk if call.rates is None or call.rates.shape[-1] == 1 else min(chunk, _GATED)
    return walk(call, chunk, chunk, _chunk, f"chunked ({chunk})")


def recurrent(call: Call, chunk: int) -> StateOutput:
    """Take one token after the other: write its key and value into the state, then read with its query."""
    return walk(call, 1, 1, _step, "recurrent")


def _chunk(query: Tensor | None, state: Tensor, piece: Piece) -> tuple[Tensor | None, Tensor]:
    """Give the sums of one chunk's queries, if there are any, and the state after its keys."""
    sums = None if query is None else _sums(query, state, piece)
    return sums, written(state, *piece[:3])


def _sums(query: Tensor, state: Tensor, piece: Piece) -> Tensor:
    if piece.total is None:
        return added(query @ state, (query @ piece.key.mT).tril_(), piece.value)
    weights = weigh(query, piece.key, piece.total, torch.arange(query.shape[-2], device=query.device))
    return added((query * piece.total.exp()) @ state, weights, piece.value)


def _step(query: Tensor | None, state: Tensor, piece: Piece) -> tuple[Tensor | None, Tensor]:
    """Write one token, then read."""
    state = written(state, *piece[:3])
    return (None if query is None else query @ state), state
