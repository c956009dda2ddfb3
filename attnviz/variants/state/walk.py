"""Go through queries and keys in the order that a mask asks for, a piece at a time, carrying a state."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.variants.state.pieces import Call, StateOutput


class Piece(NamedTuple):
    """Hold some keys and what goes along with them.

    Args:
        key: ``[..., length, features]``, mapped.
        value: ``[..., length, value width]``.
        total: Running sum of the decay logarithms from the first of them, or None.
        beta: How much of the difference a delta rule writes, or None.
    """

    key: Tensor
    value: Tensor
    total: Tensor | None
    beta: Tensor | None


# Takes queries (or None where keys are only written), a state and a piece; gives the queries' sums and the new state.
Advance = Callable[[Tensor | None, Tensor, Piece], tuple[Tensor | None, Tensor]]


def walk(call: Call, chunk: int, piece: int, advance: Advance, kernel: str) -> StateOutput:
    """Compute a call.

    Args:
        call: The call.
        chunk: Queries and keys that go together at most.
        piece: Keys that are only written, or queries that only read, at a time.
        advance: What one piece does.
        kernel: Name of the form, for people.
    """
    q_len, kv_len = call.query.shape[3], call.key.shape[3]
    early, lead, both = call.reading.cut(q_len, kv_len)
    outputs = call.query.new_empty(*call.query.shape[:4], call.value.shape[4])
    state = call.start

    def read(state: Tensor, start: int, stop: int) -> None:
        for i, j in _spans(start, stop, piece):
            outputs[..., i:j, :] = call.finish(call.queries(i, j) @ state)

    read(state, 0, early)
    for i, j in _spans(0, lead, piece):
        state = advance(None, state, cut(call, i, j))[1]
    for i, j in _spans(0, both, chunk):
        sums, state = advance(call.queries(early + i, early + j), state, cut(call, lead + i, lead + j))
        assert sums is not None
        outputs[..., early + i : early + j, :] = call.finish(sums)
    for i, j in _spans(lead + both, kv_len, piece):
        state = advance(None, state, cut(call, i, j))[1]
    read(state, early + both, q_len)
    return call.answer(outputs, state, None, kernel)


def cut(call: Call, start: int, stop: int) -> Piece:
    """Give some of the keys."""
    beta = None if call.beta is None else call.beta[..., start:stop, :].to(call.dtype)
    return Piece(call.mapped(start, stop), call.values(start, stop), call.decays(start, stop), beta)


def written(state: Tensor, key: Tensor, value: Tensor, total: Tensor | None) -> Tensor:
    """Give the state after some keys: what is left of it, and each key with its value, decayed by those after it."""
    if total is not None and total.shape[-2]:
        last = total[..., -1:, :]
        state, key = last.exp().mT * state, key * (last - total).exp()
    return added(state, key.mT, value)


def added(base: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Give base + left @ right, in one product where the axes allow it."""
    if base.shape[:-2] == left.shape[:-2] == right.shape[:-2]:
        first, second, third = (part.flatten(0, -3) for part in (base, left, right))
        return torch.baddbmm(first, second, third).view(base.shape)
    return base + left @ right


def _spans(start: int, stop: int, length: int) -> Iterator[tuple[int, int]]:
    return ((i, min(i + length, stop)) for i in range(start, stop, length))
