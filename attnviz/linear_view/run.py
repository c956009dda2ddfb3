"""The two weight matrices of the same q, k, v, the states as they grow, and the forms held beside each other."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz import inputs
from attnviz.arrays import to_numpy
from attnviz.backends import BACKENDS
from attnviz.linear_view.settings import MOST_LENGTH, View
from attnviz.masks import MASKS
from attnviz.variants.delta import FORMS as DELTA_FORMS
from attnviz.variants.delta import delta_rule
from attnviz.variants.linear import FORMS, linear_attention
from attnviz.variants.state.features import directions
from attnviz.variants.state.pieces import Map


class Both(NamedTuple):
    """Hold the two weight matrices ``[length, length]`` and how far the outputs are apart.

    ``error`` is the norm of the difference of the outputs over the norm of softmax's; ``nothing`` counts rows whose
    linear weights add up to zero. Of the ``features`` of all queries and keys, ``lost`` are 0 in float32 though the
    map is above 0 everywhere.
    """

    softmax: np.ndarray
    linear: np.ndarray
    error: float
    nothing: int
    features: int
    lost: int


class States(NamedTuple):
    """Hold both states after some tokens, ``[features, d_v]``, and the largest entry that each ever has."""

    linear: np.ndarray
    delta: np.ndarray
    linear_most: float
    delta_most: float


class Form(NamedTuple):
    """Hold one form of a rule and how far its outputs are from float64's, at most, in float32 and float64."""

    rule: str
    form: str
    single: float
    double: float


def tokens(view: View) -> tuple[Tensor, Tensor, Tensor]:
    """Give query, key and value ``[1, 1, length, d_k]`` of the view; a shorter one is where a longer begins."""
    return _drawn(view.d_k, view.seed, view.size, view.length)


@lru_cache(maxsize=32)
def _drawn(d_k: int, seed: int, size: float, length: int) -> tuple[Tensor, Tensor, Tensor]:
    drawn = (inputs.random_normal((1, MOST_LENGTH, d_k), seed + stream)[:, None, :length] for stream in range(3))
    query, key, value = drawn
    return query * size, key * size, value


@lru_cache(maxsize=32)
def _rows(features: int, width: int, seed: int) -> Tensor:
    return directions(features, width, seed=seed)


def maps(view: View) -> tuple[Map, Map]:
    """Give the maps of queries and keys; the random one estimates exp(q·k / √d_k)."""
    rows = _rows(view.features, view.d_k, view.seed) if view.map.is_random else None
    return view.map.maps(view.d_k**-0.5, rows)


@torch.no_grad()
def both(view: View) -> Both:
    """Attend with softmax and with the view's feature map, causally."""
    query, key, value = tokens(view)
    causal = MASKS["causal"].build()
    soft = BACKENDS["eager"].attend(query, key, value, allowed=causal)
    both_maps = maps(view)
    flat = linear_attention(query, key, value, maps=both_maps, allowed=causal, normalize=True, form="parallel")
    assert soft.weights is not None and flat.weights is not None
    error = float((flat.output - soft.output).norm() / soft.output.norm())
    nothing = int((flat.weights[0, 0].abs().sum(-1) == 0).sum())
    mapped = [one(part) for one, part in zip(both_maps, (query, key), strict=True)]
    lost = sum(int((part == 0).sum()) for part in mapped) if view.map.is_never_zero else 0
    weights = to_numpy(soft.weights[0, 0]), to_numpy(flat.weights[0, 0])
    return Both(*weights, error, nothing, sum(part.numel() for part in mapped), lost)


@torch.no_grad()
def states(view: View) -> States:
    """Take in the first ``step`` tokens with linear attention, and with the delta rule at β = 1."""
    linear, delta = _every_state(_lasting(view))
    at = view.step - 1
    return States(linear[at], delta[at], float(np.abs(linear).max()), float(np.abs(delta).max()))


def _lasting(view: View) -> tuple[object, ...]:
    """Give what the states depend on, which the token that is looked at is not."""
    return view.feature_map, view.d_k, view.size, view.length, view.features, view.seed


@lru_cache(maxsize=8)
def _every_state(key_of_view: tuple[object, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Give the states after each token, ``[length, features, d_v]``, of both rules."""
    names = ("feature_map", "d_k", "size", "length", "features", "seed")
    fields = dict(zip(names, key_of_view, strict=True))
    view = View(**fields, step=1, show="", cell=())  # type: ignore[arg-type]
    _, key, value = tokens(view)
    mapped = maps(view)[1](key)
    linear = (mapped[0, 0, :, :, None] * value[0, 0, :, None, :]).cumsum(0)
    unit, state, after = torch.nn.functional.normalize(key, dim=-1), None, []
    beta = torch.ones(1, 1, 1, 1)
    for at in range(view.length):
        part = (slice(None), slice(None), slice(at, at + 1))
        state = (delta_rule(unit[part], unit[part], value[part], beta, state=state).state, None)
        after.append(state[0][0, 0])
    return to_numpy(linear), to_numpy(torch.stack(after))


@torch.no_grad()
def forms(view: View) -> tuple[Form, ...]:
    """Compute the view's sequence in every form of both rules; chunks of 8 leave a shorter last one."""
    query, key, value = tokens(view)
    causal = MASKS["causal"].build()
    beta = torch.full((1, 1, view.length, 1), 0.5)

    def run(rule: str, form: str, dtype: torch.dtype) -> Tensor:
        q, k, v = (tensor.to(dtype) for tensor in (query, key, value))
        options = {"allowed": causal, "form": form, "chunk": 8}
        if rule == "linear":
            return linear_attention(q, k, v, maps=maps(view), normalize=True, **options).output
        unit = torch.nn.functional.normalize(k, dim=-1)
        return delta_rule(q, unit, v, beta.to(dtype), scale=view.d_k**-0.5, **options).output

    found = []
    for rule, names in (("linear", FORMS), ("delta", DELTA_FORMS)):
        want = run(rule, "recurrent", torch.float64)
        for form in names:
            off = [float((run(rule, form, dtype) - want).abs().max()) for dtype in (torch.float32, torch.float64)]
            found.append(Form(rule, form, *off))
    return tuple(found)
