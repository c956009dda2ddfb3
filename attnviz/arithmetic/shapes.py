"""The shapes that a view's tensors pass through."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz import view_run
from attnviz.backends import BACKENDS
from attnviz.variants import VARIANTS
from attnviz.view import View

_Line = tuple[str, str, Tensor, tuple[str, ...]]


@dataclass(frozen=True)
class Entry:
    """Hold one line of the ledger.

    Args:
        step: Key of the step: ``tokens``, ``context``, ``latent``, ``rotary``, ``projection``, ``split``, ``scores``,
            ``weights``, ``mix``, ``merge`` or ``out``.
        name: What the tensor is called, in LaTeX.
        shape: Its size on each axis.
        axes: What each axis counts: ``batch``, ``length``, ``queries``, ``keys``, ``width``, ``heads``, ``kv_heads``,
            ``d_k``, ``latent``, ``rope`` or ``plain`` (d_k without ``rope``), or two of them that are one axis.
            ``length`` is both queries and keys.
    """

    step: str
    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]


def ledger(view: View) -> tuple[Entry, ...]:
    """List the shape of every tensor from the token vectors to the layer's output; the worked example has no layer.

    Query, key and value are the view's own. The rest is the same code run once more on torch's meta device, where
    tensors have a shape and no numbers: nothing as large as queries × keys is allocated.

    Args:
        view: A settled view that passed ``guard.check``.
    """
    call, config = view_run.make_call(view), view_run.make_config(view)
    variant, cross = VARIANTS[view.layer], view.attention == "cross"
    query, key, value = (tensor.to("meta") for tensor in (call.query, call.key, call.value))
    core = BACKENDS["eager"].attend(query, key, value, scale=call.scale)
    assert core.scores is not None and core.weights is not None
    matrices = {name: torch.empty(size, device="meta") for name, size in variant.matrices(config).items()}
    tokens = torch.empty(1, view.length, config.hidden_size, device="meta")
    context = torch.empty(1, view.key_length, config.hidden_size, device="meta") if cross else tokens
    merged = core.output.transpose(1, 2).flatten(2).to(torch.float32)
    side, own, other = ("y", "queries", "keys") if cross else ("x", "length", "length")
    q_axes, kv_axes = ("batch", "heads", "queries", "d_k"), ("batch", "kv_heads", "keys", "d_k")
    pairs = ("batch", "heads", "queries", "keys")
    lines: Sequence[_Line] = (
        ("tokens", "x", tokens, ("batch", own, "width")),
        *((("context", "y", context, ("batch", other, "width")),) if cross else ()),
        ("projection", "x W_Q", tokens @ matrices["query"], ("batch", own, "heads · d_k")),
        *_made(side, other, context, matrices),
        ("split", "Q", call.query, q_axes),
        ("split", "K", call.key, kv_axes),
        ("split", "V", call.value, kv_axes),
        ("scores", r"Q K^\top", core.scores, pairs),
        ("weights", "A", core.weights, pairs),
        ("mix", "A V", core.output, q_axes),
        ("merge", "C", merged, ("batch", own, "heads · d_k")),
        ("out", "C W_O", merged @ matrices["output"], ("batch", own, "width")),
    )
    # The worked example's queries, keys and values are given, not projected.
    left_out = ("tokens", "context", "projection", "out") if view.input == "worked" else ()
    return tuple(Entry(step, name, tuple(t.shape), axes) for step, name, t, axes in lines if step not in left_out)


def _made(side: str, length: str, context: Tensor, matrices: Mapping[str, Tensor]) -> tuple[_Line, ...]:
    """List what keys and values are made of: the tokens, or their latents and one rotary key for all heads."""
    if "latent" not in matrices:
        axes = ("batch", length, "kv_heads · d_k")
        return (
            ("projection", f"{side} W_K", context @ matrices["key"], axes),
            ("projection", f"{side} W_V", context @ matrices["value"], axes),
        )
    latent = context @ matrices["latent"]
    return (
        ("latent", f"c = {side} W_C", latent, ("batch", length, "latent")),
        ("rotary", f"{side} W_R", context @ matrices["rope_key"], ("batch", length, "rope")),
        ("projection", "c W_K", latent @ matrices["key"], ("batch", length, "heads · plain")),
        ("projection", "c W_V", latent @ matrices["value"], ("batch", length, "heads · d_k")),
    )
