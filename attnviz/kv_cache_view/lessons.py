"""What goes wrong at decode, what a cache may drop, what fewer bits cost, and the cache that never grows."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attnviz.arrays import to_numpy
from attnviz.kv_cache import STORAGES
from attnviz.kv_cache_view.decode import decode, layer, layer_of
from attnviz.kv_cache_view.view import Scene, View
from attnviz.masks import MASKS
from attnviz.positions import POSITIONS
from attnviz.variants import VARIANTS
from attnviz.variants.base import AttentionOutput

CORNERS = ("top_left", "bottom_right")


class Corner(NamedTuple):
    """Hold what a causal mask gives to the newest query, set at one corner.

    ``weights`` is ``[heads, keys]``, ``allowed`` bool ``[keys]``; ``error`` is the norm of the difference to the output
    of the whole sentence over the norm of that.
    """

    weights: np.ndarray
    allowed: np.ndarray
    error: float


class Layout(NamedTuple):
    """Hold what a layout keeps: bool ``[tokens, tokens]``, row t after token t; bytes after the step; output error."""

    kept: np.ndarray
    cache_bytes: int
    error: float


class Rounded(NamedTuple):
    """Hold what a cache in fewer bits takes after the step, and the output error of every step."""

    cache_bytes: int
    errors: tuple[float, ...]


class Cross(NamedTuple):
    """Hold an encoder's tokens read by a decoder, token by token.

    ``weights`` is ``[heads, decoder tokens, encoder tokens]``; ``self_bytes`` and ``cross_bytes`` are what the two
    caches take after each of its tokens; ``error`` is the largest difference to the whole computed at once.
    """

    weights: np.ndarray
    self_bytes: tuple[int, ...]
    cross_bytes: tuple[int, ...]
    error: float


@lru_cache(maxsize=32)
def corners(scene: Scene, seen: int) -> dict[str, Corner]:
    """Give the newest of ``seen`` tokens its answer over a cache of all of them, causal from either corner."""
    config, weights, x = layer_of(scene)
    kind, rope, causal = VARIANTS[scene.variant], POSITIONS["rope"].build(), MASKS["causal"].build()
    common = {"position": rope, "backend": "eager", "allowed": causal}
    with torch.no_grad():
        whole = kind.attend(config, weights, x[:, :seen], **common)
        past = kind.attend(config, weights, x[:, : seen - 1], **common).cache if seen > 1 else None
        found = {}
        for corner in CORNERS:
            run = kind.attend(config, weights, x[:, seen - 1 : seen], align=corner, cache=past, **common)
            allowed = np.ones(seen, bool) if corner == "bottom_right" else np.arange(seen) == 0
            found[corner] = Corner(_weights(run)[:, 0], allowed, _error(run.output, whole.output[:, -1:]))
    return found


def torch_gap(scene: Scene, seen: int, corner: str) -> float:
    """Give how far torch's own call, ``is_causal=True`` with one query, is from a corner's core: largest difference.

    It is given the query, the cached keys and the cached values as the expanded heads have them.
    """
    config, weights, x = layer_of(scene)
    kind, rope = VARIANTS[scene.variant], POSITIONS["rope"].build()
    with torch.no_grad():
        query, key, value = kind.project(config, weights, x[:, :seen], position=rope)
        shared = query.shape[1] // key.shape[1]
        key, value = (side.repeat_interleave(shared, dim=1) for side in (key, value))
        called = torch.nn.functional.scaled_dot_product_attention(query[:, :, -1:], key, value, is_causal=True)
        allowed = torch.from_numpy(corners(scene, seen)[corner].allowed)
        scores = (query[:, :, -1:] @ key.mT) * query.shape[-1] ** -0.5
        own = scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ value
    return float((called - own).abs().max())


def layouts(view: View) -> dict[str, Layout]:
    """Give what every layout keeps of the sentence, and how far its output is from keeping everything."""
    whole = torch.cat([answer.step.output for answer in decode(_kept_as(view, "full"))], dim=1)
    found = {}
    for key in ("full", "sliding_window", "attention_sinks"):
        answers = decode(_kept_as(view, key))
        kept = np.zeros((len(view.tokens), len(view.tokens)), bool)
        # Row by row: what would be kept had the sentence ended here; the prompt's rows come in at once.
        for row in range(len(view.tokens)):
            layout = answers[0].after.layout
            kept[row, [token for token in range(row + 1) if layout.keeps(token, row + 1)]] = True
        output = torch.cat([answer.step.output for answer in answers], dim=1)
        found[key] = Layout(kept, answers[view.step].step.cache_bytes, _error(output, whole))
    return found


def _kept_as(view: View, layout: str) -> Scene:
    """Give the view's scene with another layout and a plain cache."""
    window = view.window if layout != "full" else 0
    return view.scene._replace(
        layout=layout, window=window, sinks=view.sinks if layout == "attention_sinks" else 0, storage="plain"
    )


def rounded(view: View) -> dict[str, Rounded]:
    """Give what a cache in fewer bits takes, and what that does to the output of each step."""
    plain = decode(view.scene._replace(storage="plain"))
    found = {}
    for key in STORAGES:
        answers = decode(view.scene._replace(storage=key))
        errors = tuple(_error(one.step.output, other.step.output) for one, other in zip(answers, plain, strict=True))
        found[key] = Rounded(answers[view.step].step.cache_bytes, errors)
    return found


@lru_cache(maxsize=16)
def cross(scene: Scene, source: tuple[str, ...]) -> Cross:
    """Let the sentence's tokens ask an encoder's tokens one by one, whose keys and values are made once."""
    config, weights, x = layer_of(scene)
    context = layer(scene.variant, scene.heads, scene.kv_heads, scene.d_k, source, scene.seed).x
    kind = VARIANTS[scene.variant]
    with torch.no_grad():
        whole = kind.attend(config, weights, x, context=context, backend="eager")
        kept: Any = None
        rows, sizes = [], []
        for token in x.split(1, dim=1):
            # The context comes in with the first token; afterwards the finished cache is asked again.
            new = context if kept is None else context[:, :0]
            run = kind.attend(config, weights, token, context=new, cache=kept, backend="eager")
            kept = run.cache
            rows.append(run)
            sizes.append(sum(tensor.nbytes for tensor in kept.values()))
    outputs = torch.cat([run.output for run in rows], dim=1)
    one = sum(tensor.nbytes for tensor in kept.values()) // len(source)
    return Cross(
        np.concatenate([_weights(run) for run in rows], axis=1), tuple(one * (n + 1) for n in range(x.shape[1])),
        tuple(sizes), float((outputs - whole.output).abs().max()),
    )  # fmt: skip


def _weights(run: AttentionOutput) -> np.ndarray:
    assert run.core.weights is not None  # eager gives them
    return to_numpy(run.core.weights[0])


def _error(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())
