"""The maps and charts of the KV cache page's folded sections, as the page shows and the live route sends them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from attnviz import units
from attnviz.figures.kv_cache import Series, series_chart
from attnviz.kv_cache import STORAGES, Memory, block_tables, paged, reserved
from attnviz.kv_cache_view import lessons
from attnviz.kv_cache_view.decode import decode
from attnviz.kv_cache_view.view import View
from pages.ui.heatmap.frame import MASKED_STATE, NO_KEY_STATE, VALUE_STATE, Axis, Grid, Map
from pages.ui.kv_cache_charts import Drawn
from pages.ui.kv_cache_maps import KINDS, answer_of, tiny
from pages.ui.translate import counted, say

ALIGN, LAYOUTS, PAGED, CROSS = "align", "layouts", "paged", "cross"
STORAGE, CROSS_SIZES = "storage", "cross_sizes"


def _tokens(view: View, language: str, dim: str) -> Axis:
    return Axis(dim, say(language, f"attention.axis.{dim}"), len(view.tokens), 0, view.tokens)


def align_grid(view: View, language: str) -> Grid:
    """Give every head's weights of the newest query, causal from the top-left corner and from the bottom-right one."""
    answer, tokens = answer_of(view), len(view.tokens)
    found = lessons.corners(view.scene, answer.seen)
    rows = Axis("feature", say(language, "kv_cache.align.head"), view.heads)
    cols = _tokens(view, language, "key")
    drawn = []
    for key, corner in found.items():
        values = np.zeros((view.heads, tokens), np.float32)
        values[:, : answer.seen] = corner.weights
        state = np.full((view.heads, tokens), MASKED_STATE, np.uint8)
        state[:, : answer.seen][:, corner.allowed] = VALUE_STATE
        title = say(language, f"kv_cache.align.{key}", keys=counted(language, "key", int(corner.allowed.sum())))
        drawn.append(Map(key, title, values, rows, cols, state, low=0.0, high=1.0))
    fields = {
        "seen": counted(language, "token", answer.seen),
        "error": units.percent(found["top_left"].error),
        "right": tiny(found["bottom_right"].error),
        "torch": tiny(lessons.torch_gap(view.scene, answer.seen, "top_left")),
    }
    words = say(language, "kv_cache.align.caption", **fields)
    return Grid(tuple(drawn), words, words)


def layouts_grid(view: View, language: str) -> Grid:
    """Give what each layout holds after every token."""
    rows = Axis("query", say(language, "kv_cache.layouts.after"), len(view.tokens), 0, view.tokens)
    cols = _tokens(view, language, "key")
    lower = np.tri(len(view.tokens), dtype=bool)
    kinds = tuple(
        (value, say(language, f"kv_cache.layouts.{name}")) for name, value in (("kept", 1.0), ("dropped", 0.0))
    )
    state = np.where(lower, VALUE_STATE, MASKED_STATE).astype(np.uint8)
    drawn = tuple(
        Map(
            key, say(language, f"kv_cache.layouts.{key}", size=units.binary_bytes(found.cache_bytes)),
            found.kept.astype(np.float32), rows, cols, state, low=0.0, high=1.0, kinds=kinds,
        )
        for key, found in lessons.layouts(view).items()
    )  # fmt: skip
    errors = {key: units.percent(found.error) for key, found in lessons.layouts(view).items() if key != "full"}
    words = say(language, "kv_cache.layouts.caption", **errors, window=view.window, sinks=view.sinks)
    return Grid(drawn, words, words)


def memories(view: View) -> tuple[Memory, Memory]:
    """Give what the sequences take with one reservation each, as long as the longest at least, and in blocks."""
    most = max(view.reserve, *view.lengths)
    return reserved(view.lengths, most), paged(view.lengths, view.block)


def paged_grid(view: View, language: str) -> Grid:
    """Give the memory of both ways slot by slot: whose token lies in it, or nothing."""
    most = max(view.reserve, *view.lengths)
    whole, blocks = memories(view)
    slots = np.zeros((len(view.lengths), most), np.float32)
    for row, length in enumerate(view.lengths):
        slots[row, :length] = row + 1
    pieces = np.zeros((sum(map(len, block_tables(view.lengths, view.block))), view.block), np.float32)
    for row, (table, length) in enumerate(zip(block_tables(view.lengths, view.block), view.lengths, strict=True)):
        for place, block in enumerate(table):
            pieces[block, : min(view.block, length - place * view.block)] = row + 1
    # As many blocks on a line as are as long as a reservation, so that both pictures have one scale.
    across = max(1, most // view.block)
    lines = -(-len(pieces) // across)
    pool = np.full((lines * across, view.block), np.nan, np.float32)
    pool[: len(pieces)] = pieces
    drawn = (
        _memory_map("reserved", slots, view, whole, language),
        _memory_map("paged", pool.reshape(lines, across * view.block), view, blocks, language),
    )
    fields = {
        "used": counted(language, "token", whole.used),
        "reserved": units.count(whole.taken), "paged": units.count(blocks.taken),
        "waste": units.percent(whole.waste), "left": units.percent(blocks.waste),
        "more": units.ratio(whole.taken / blocks.taken),
    }  # fmt: skip
    words = say(language, "kv_cache.paged.caption", **fields)
    return Grid(drawn, words, words)


def _memory_map(key: str, slots: np.ndarray, view: View, memory: Memory, language: str) -> Map:
    rows = Axis("query", say(language, f"kv_cache.paged.rows_{key}"), slots.shape[0])
    cols = Axis("feature", say(language, "kv_cache.paged.slot"), slots.shape[1])
    state = np.where(slots > 0, VALUE_STATE, MASKED_STATE).astype(np.uint8)
    # What fills up the last line was given to nobody; it is not part of what is taken.
    state[np.isnan(slots)] = NO_KEY_STATE
    title = say(
        language, f"kv_cache.paged.{key}", taken=units.count(memory.taken), waste=units.percent(memory.waste),
        block=view.block,
    )  # fmt: skip
    return Map(key, title, np.nan_to_num(slots), rows, cols, state, low=0.0, high=float(len(view.lengths)))


def cross_grid(view: View, language: str) -> Grid:
    """Give what each decoder token computes and reads, of its own sentence and of the encoder's."""
    source, seen = view.source_tokens, answer_of(view).seen
    tokens = len(view.tokens)
    own, other = (np.full((tokens, width), KINDS["idle"]) for width in (tokens, len(source)))
    for row in range(seen):
        own[row, :row] = KINDS["cached"]
        own[row, row] = KINDS["now"]
        other[row] = KINDS["cached"] if row else KINDS["now"]
    state = np.where(np.tri(tokens, dtype=bool), VALUE_STATE, MASKED_STATE).astype(np.uint8)
    rows = Axis("query", say(language, "kv_cache.cross.row"), tokens, 0, view.tokens)
    named = tuple((KINDS[name], say(language, f"kv_cache.kind.{name}")) for name in ("now", "cached", "idle"))
    drawn = []
    for key, kinds, names, states in (("own", own, view.tokens, state), ("other", other, source, None)):
        cols = Axis("key" if key == "own" else "feature", say(language, "kv_cache.cross.col"), len(names), 0, names)
        title = say(language, f"kv_cache.cross.{key}")
        drawn.append(Map(key, title, kinds, rows, cols, states, palette="diverging", low=-1.0, high=1.0, kinds=named))
    words = say(language, "kv_cache.cross.caption", **_cross_fields(view, language))
    return Grid(tuple(drawn), words, words)


def _cross_fields(view: View, language: str) -> dict[str, object]:
    found, seen = lessons.cross(view.scene, view.source_tokens), answer_of(view).seen
    return {
        "seen": counted(language, "decoder", seen),
        "source": counted(language, "encoder", len(view.source_tokens)),
        "own": units.binary_bytes(found.self_bytes[seen - 1]),
        "cross": units.binary_bytes(found.cross_bytes[seen - 1]),
        "error": tiny(found.error),
    }


def cross_sizes(view: View, language: str) -> Drawn:
    """Give the bytes of both caches against the decoder's tokens."""
    found = lessons.cross(view.scene, view.source_tokens)
    xs = tuple(range(1, len(view.tokens) + 1))
    names = [say(language, f"kv_cache.cross.{name}") for name in ("own", "other")]
    lines = [Series(name, xs, ys) for name, ys in zip(names, (found.self_bytes, found.cross_bytes), strict=True)]
    figure = series_chart(
        lines, x_title=say(language, "kv_cache.cross.tokens"), text=units.binary_bytes, at=answer_of(view).seen
    )
    words = say(language, "kv_cache.cross.sizes", **_cross_fields(view, language))
    return Drawn(figure, words, words)


def storage_chart(view: View, language: str) -> Drawn:
    """Give the output error of each kind of rounding at every step."""
    found = {key: kept for key, kept in lessons.rounded(view).items() if key != "plain"}
    xs = tuple(range(len(decode(view.scene))))
    lines = [Series(STORAGES[key].label.say(language), xs, kept.errors) for key, kept in found.items()]
    figure = series_chart(
        lines, x_title=say(language, "kv_cache.storage.step"), text=units.percent, at=view.step, log=True
    )
    each = "; ".join(
        f"{line.name} {units.percent(kept.errors[view.step])}" for line, kept in zip(lines, found.values(), strict=True)
    )
    return Drawn(
        figure, say(language, "kv_cache.storage.caption", each=each), say(language, "kv_cache.storage.alt", each=each)
    )


GRIDS: Mapping[str, Callable[[View, str], Grid]] = MappingProxyType(
    {ALIGN: align_grid, LAYOUTS: layouts_grid, PAGED: paged_grid, CROSS: cross_grid}
)
CHARTS: Mapping[str, Callable[[View, str], Drawn]] = MappingProxyType(
    {STORAGE: storage_chart, CROSS_SIZES: cross_sizes}
)
