"""What a view computes: its tensors, its call, and what can be counted about it; kept for the next slider move."""

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnviz import census as counts
from attnviz import device as devices
from attnviz import inputs, stages
from attnviz.census import Census, Comparison
from attnviz.families import FAMILIES
from attnviz.masks import offset
from attnviz.mistakes import MISTAKES
from attnviz.positions import POSITIONS, Position
from attnviz.stages import Call, Fused
from attnviz.variants import VARIANTS
from attnviz.view import OwnSettings, View, repeat

# Width of a token's vector before projection; independent of heads and d_k, so that neither slider changes the input.
WIDTH = 256
# Query, key and value of up to this many entries (32 MiB in float32) are kept for the next slider move.
KEPT_ENTRIES = 2**23
# Up to this many scores the whole call is gone through once more to count what went on in it.
MOST_COUNTED = 2**24


# Only what the tensors depend on tells views apart here: a slider of the mask or the scale finds them ready.
class _Source(NamedTuple):
    attention: str
    input: str
    text: str
    context: str
    length: int
    key_length: int
    d_k: int
    variant: str
    variant_settings: OwnSettings
    heads: int
    kv_heads: int
    dtype: str
    device: str
    seed: int
    position: str
    position_settings: OwnSettings
    start: int


class _Tensors(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor
    unturned: tuple[Tensor, Tensor] | None
    waves: Tensor | None


def make_call(view: View) -> Call:
    """Make the attention call of a view: token vectors projected by the variant's seeded weights, or whole numbers.

    Args:
        view: A settled view.

    Positions count from 0 on both sides. A query stands where the mask's diagonal and a bias by distance put it: with
    bottom-right alignment the last one at the last key.

    Returns:
        Query ``[1, heads, length, d_k]``, key and value ``[1, kv_heads, key_length, d_k]`` on the view's device. The
        tensors are shared between calls and must not be changed.
    """
    # Without positions the alignment changes no tensor, so it must not keep a view from finding them.
    start = 0 if view.position == "none" else offset(view.length, view.key_length, view.align)
    own = {name: getattr(view, name) for name in _Source._fields if name != "start"}
    source = _Source(**own, start=start)
    entries = (view.heads * view.length + 2 * view.kv_heads * view.key_length) * view.d_k
    tensors = (_tensors if entries <= KEPT_ENTRIES else _tensors.__wrapped__)(source)
    return Call(
        tensors.query,
        tensors.key,
        tensors.value,
        view.build_mask(),
        align=view.align,
        scale=view.factor,
        backend=view.backend,
        dropout=view.dropout,
        seed=view.seed,
        score_mod=view.build_score_mod(),
        unturned=tensors.unturned,
        waves=tensors.waves,
        mistake=None if view.mistake == "none" else MISTAKES[view.mistake],
    )


def run(view: View) -> tuple[Call, Fused | None]:
    """Give the view's call and, for a fused backend, its result; what is drawn of it does not matter."""
    entries = view.heads * view.length * view.d_k
    return (_run if entries <= KEPT_ENTRIES // 4 else _run.__wrapped__)(_bare(view))


@lru_cache(maxsize=4)
def _run(view: View) -> tuple[Call, Fused | None]:
    call = stages.prepared(make_call(view))
    return call, stages.fused(call)


def census(view: View) -> Census | None:
    """Count what went on in the view's whole call; None where that would be more than a glance of work."""
    if view.heads * view.length * view.key_length > MOST_COUNTED:
        return None
    return _census(_bare(view))


def comparison(view: View) -> Comparison | None:
    """Compare the view with itself without mistake and dropout; None where that is more than a glance of work."""
    if view.heads * view.length * view.key_length > MOST_COUNTED:
        return None
    return _comparison(_bare(view))


@lru_cache(maxsize=16)
def _comparison(view: View) -> Comparison:
    return counts.compare(*run(view))


@lru_cache(maxsize=16)
def _census(view: View) -> Census:
    return counts.census(*run(view))


def _bare(view: View) -> View:
    """Give the view without what only concerns drawing."""
    return replace(
        view, stage="weights", head="all", log=False, own_range=False, reduce="max", cell=(), compare="now", pin=""
    )


def make_config(view: "View | _Source") -> Any:
    """Give the sizes of the view's layer, as its variant takes them."""
    family = FAMILIES[view.variant]
    own = dict(family.build(**dict(view.variant_settings)))
    if family.shares:
        own["num_key_value_heads"] = view.kv_heads
    sizes = {"hidden_size": WIDTH, "num_attention_heads": view.heads, "head_dim": view.d_k, "v_head_dim": view.d_k}
    return VARIANTS[family.variant(view.heads, view.kv_heads)].config(**sizes, **own)


@lru_cache(maxsize=8)
def _tensors(source: _Source) -> _Tensors:
    target = {"device": devices.resolve(source.device), "dtype": getattr(torch, source.dtype)}
    position = None
    if source.position != "none":
        position = POSITIONS[source.position].build(**dict(source.position_settings))
    query, key, value = _made(source, position)
    unturned = waves = None
    if position is not None and position.angles is not None:
        unturned = query.to(**target), key.to(**target)
        first = _plain(source)
        query, key = _turned(position, query, first, source.start), _turned(position, key, first)
    if position is not None and position.waves is not None:
        waves = position.add(torch.zeros(source.length, WIDTH), source.start)
    return _Tensors(query.to(**target), key.to(**target), value.to(**target), unturned, waves)


def _plain(source: _Source) -> int:
    """Give how many first entries of a query and a key carry no position."""
    return 0 if source.input == "worked" else getattr(make_config(source), "qk_nope_head_dim", 0)


def _turned(position: Position, heads: Tensor, first: int, start: int = 0) -> Tensor:
    """Rotate queries or keys, all but their ``first`` entries."""
    if first == 0:
        return position.turn(heads, start)
    return torch.cat((heads[..., :first], position.turn(heads[..., first:], start)), dim=-1)


def _made(source: _Source, position: Position | None) -> tuple[Tensor, Tensor, Tensor]:
    """Give query, key and value in float32, not yet rotated: the worked example's own, else token vectors projected."""
    heads, kv_heads = source.heads, source.kv_heads
    if source.input == "worked":
        query = inputs.small_integers((heads, source.length, source.d_k), source.seed, 0)
        shape = (kv_heads, source.key_length, source.d_k)
        return query, inputs.small_integers(shape, source.seed, 1), inputs.small_integers(shape, source.seed, 2)
    variant, config = VARIANTS[FAMILIES[source.variant].variant(heads, kv_heads)], make_config(source)
    weights = variant.weights(config, seed=source.seed)
    own = _input(source, source.text, source.length, 0)
    context = None if source.attention == "self" else _input(source, source.context, source.key_length, 1)
    if position is not None:
        own = position.add(own, source.start)
        context = None if context is None else position.add(context)
    return variant.project(config, weights, own, context=context)


def _input(source: _Source, text: str, length: int, side: int) -> Tensor:
    """Give the vectors of one side, ``[1, length, WIDTH]``; random input of the keys has a seed of its own."""
    if source.input == "sentence":
        return inputs.token_vectors(repeat(inputs.tokenize(text), length), WIDTH, source.seed)[None]
    return inputs.random_normal((1, length, WIDTH), source.seed + side)
