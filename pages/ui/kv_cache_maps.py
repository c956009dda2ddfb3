"""One step of the decoding as maps: what is computed with the cache and without, the weights, and Q, K and V."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from attnviz import units
from attnviz.arrays import to_numpy
from attnviz.kv_cache_view.decode import Answer, decode, layer_of, layout_of, vectors
from attnviz.kv_cache_view.view import View
from attnviz.masks import dense
from pages.ui.heatmap.frame import MASKED_STATE, VALUE_STATE, Axis, Grid, Map
from pages.ui.translate import counted, say

WITH, WITHOUT = "with", "without"
# On the diverging palette: what is saved work on one side of the background, what is done twice on the other.
KINDS: Mapping[str, float] = {"now": 1.0, "cached": 0.35, "idle": 0.0, "dropped": -0.2, "again": -0.7}
_LIMIT = 1.0
# Before the name of a row that this step computes.
NEW = "►"


class Cells(NamedTuple):
    """Hold the kind of every cell of both maps, ``[tokens, columns]``, and which cells are masked."""

    kinds: dict[str, np.ndarray]
    masked: np.ndarray
    columns: tuple[str, ...]


def answer_of(view: View) -> Answer:
    """Give the step that the view shows."""
    return decode(view.scene)[view.step]


def letters(view: View) -> dict[str, str]:
    """Give the letter of Q and of everything that the variant keeps of a token, by name."""
    if view.variant == "mla":
        return {"query": "Q", "latent": "c", "rope": "kᴿ"}
    return {"query": "Q", "key": "K", "value": "V"}


def cells(view: View) -> Cells:
    """Say of each token's Q, K and V, and of each of its scores, whether it is computed, read or left alone."""
    answer, tokens = answer_of(view), len(view.tokens)
    start, seen = answer.step.start, answer.seen
    heads = tuple(letters(view).values())
    allowed = np.zeros((tokens, tokens), bool)
    allowed[:seen, :seen] = to_numpy(dense(layout_of(view.scene).mask, seen, seen))[0, 0]
    first = len(heads) + 1
    kinds = {}
    for key in (WITH, WITHOUT):
        drawn = np.full((tokens, first + tokens), KINDS["idle"])
        rows = slice(start, seen)
        if key == WITHOUT:
            drawn[:start, : len(heads)] = KINDS["again"]
            drawn[:start, first:] = np.where(allowed[:start], KINDS["again"], KINDS["idle"])
        else:
            drawn[:start, 1 : len(heads)] = KINDS["dropped"]
            drawn[list(answer.before), 1 : len(heads)] = KINDS["cached"]
        drawn[rows, : len(heads)] = KINDS["now"]
        drawn[rows, first:] = np.where(allowed[rows], KINDS["now"], KINDS["idle"])
        kinds[key] = drawn
    masked = np.zeros((tokens, first + tokens), bool)
    masked[:, first:] = ~np.tri(tokens, dtype=bool)
    return Cells(kinds, masked, (*heads, "", *view.tokens))


def _axis(view: View, language: str, dim: str) -> Axis:
    return Axis(dim, say(language, f"attention.axis.{dim}"), len(view.tokens), 0, view.tokens)


def work_grid(view: View, language: str) -> Grid:
    """Give what this step computes with the cache beside what it would compute without."""
    found, answer = cells(view), answer_of(view)
    rows = Axis("query", say(language, "kv_cache.axis.row"), len(view.tokens), 0, view.tokens)
    cols = Axis("key", say(language, "kv_cache.axis.col"), len(found.columns), 0, found.columns)
    state = np.where(found.masked, MASKED_STATE, VALUE_STATE).astype(np.uint8)
    named = tuple(
        (value, say(language, f"kv_cache.kind.{name}")) for name, value in KINDS.items() if _occurs(view, name)
    )
    flops = {WITH: answer.step.flops, WITHOUT: answer.step.flops_without}
    titles = {key: say(language, f"kv_cache.map.{key}", flops=units.flops(size)) for key, size in flops.items()}
    drawn = tuple(
        Map(
            key, titles[key], found.kinds[key], rows, cols, state, palette="diverging", low=-_LIMIT, high=_LIMIT,
            kinds=named,
        )
        for key in (WITH, WITHOUT)
    )  # fmt: skip
    return Grid(drawn, caption(view, language), caption(view, language))


def _occurs(view: View, kind: str) -> bool:
    """Say whether the legend has a kind: only a window lets go of tokens."""
    return kind != "dropped" or view.layout != "full"


def caption(view: View, language: str) -> str:
    """Say in one line what the step did."""
    answer = answer_of(view)
    fields = {
        "step": view.step,
        "token": view.tokens[answer.seen - 1],
        "new": answer.step.new,
        "seen": answer.seen,
        "read": len(answer.before),
        "kept": counted(language, "token", len(answer.step.kept)),
        "bytes": units.binary_bytes(answer.step.cache_bytes),
        "times": units.ratio(answer.step.flops_without / answer.step.flops),
        "differs": _differs(answer.output_error, language),
    }
    kind = "decode" if view.step else "prefill" if answer.step.new > 1 else "prefill_one"
    said = say(language, f"kv_cache.caption.{kind}", **fields)
    dropped = answer.seen - len(answer.step.kept)
    return f"{said} {say(language, 'kv_cache.caption.dropped', count=dropped)}" if dropped else said


def _differs(error: float, language: str) -> str:
    """Say how far apart the two outputs are; what is the same bit for bit has no size to read."""
    if not error:
        return say(language, "kv_cache.caption.same")
    return say(language, "kv_cache.caption.differs", error=_error(error))


def _error(share: float) -> str:
    return units.percent(share) if share >= 1e-4 else tiny(share)


def tiny(size: float, digits: int = 0) -> str:
    """Give a rounding error in powers of ten; none at all is 0."""
    return f"{size:.{digits}e}" if size else "0"


def weights_grid(view: View, language: str) -> Grid:
    """Give one head's weights: the step's rows with the cache, and all rows computed again."""
    answer, tokens = answer_of(view), len(view.tokens)
    rows, cols = _axis(view, language, "query"), _axis(view, language, "key")
    drawn = []
    for key in (WITH, WITHOUT):
        values = np.full((tokens, tokens), np.nan, np.float32)
        if key == WITH:
            values[answer.step.start : answer.seen, : answer.seen] = answer.weights[view.head]
        else:
            values[: answer.seen, : answer.seen] = answer.without[view.head]
        state = np.where(np.isnan(values), MASKED_STATE, VALUE_STATE).astype(np.uint8)
        state[~np.tri(tokens, dtype=bool)] = MASKED_STATE
        title = say(language, f"kv_cache.weights.{key}", head=view.head)
        drawn.append(Map(key, title, np.nan_to_num(values), rows, cols, state, low=0.0, high=1.0))
    words = _weights_caption(answer, language)
    return Grid(tuple(drawn), words, words)


def _weights_caption(answer: Answer, language: str) -> str:
    if not answer.weight_error and not answer.output_error:
        return say(language, "kv_cache.weights.same")
    fields = {"error": tiny(answer.weight_error, 1), "output": _error(answer.output_error)}
    return say(language, "kv_cache.weights.caption", **fields)


def vectors_grid(view: View, language: str) -> Grid:
    """Give Q of the new tokens, and K and V as they lie in the cache after the step."""
    answer, tokens = answer_of(view), len(view.tokens)
    new = range(answer.step.start, answer.seen)
    names = tuple(f"{NEW} {token}" if row in new else token for row, token in enumerate(view.tokens))
    rows = Axis("key", say(language, "kv_cache.axis.row"), tokens, 0, names)
    config = layer_of(view.scene).config
    drawn = []
    for name, found in vectors(view.scene, answer, view.head).items():
        values = np.full((tokens, found.shape[1]), np.nan, np.float32)
        values[: answer.seen] = found
        state = np.where(np.isnan(values), MASKED_STATE, VALUE_STATE).astype(np.uint8)
        cols = Axis("feature", say(language, "attention.axis.feature"), found.shape[1])
        reach = float(np.nanmax(np.abs(found))) or 1.0
        sizes = {"plain": view.d_k, "rope": config.qk_rope_head_dim} if view.variant == "mla" else {}
        title = say(language, f"kv_cache.vectors.{_title(view, name)}", head=view.head, **sizes)
        drawn.append(
            Map(name, title, np.nan_to_num(values), rows, cols, state, palette="diverging", low=-reach, high=reach)
        )
    key = "latent_caption" if view.variant == "mla" else "caption"
    fields = {"token": view.tokens[answer.seen - 1], "read": len(answer.before), "kept": len(answer.step.kept)}
    words = say(language, f"kv_cache.vectors.{key}", new=NEW, **fields)
    return Grid(tuple(drawn), words, words)


def _title(view: View, name: str) -> str:
    return "latent_query" if view.variant == "mla" and name == "query" else name


def main_grid(view: View, language: str) -> Grid:
    """Give the page's first picture."""
    return {"work": work_grid, "weights": weights_grid, "vectors": vectors_grid}[view.show](view, language)
