"""The masks page's pictures as grids of maps, one function for each section."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from attnviz import units
from attnviz.mask_view import reach as reaches
from attnviz.mask_view.scores import change
from attnviz.mask_view.survey import Survey, Tiles, coarser, region, survey, tiles
from attnviz.mask_view.view import View, settle
from attnviz.masks import MASKS
from pages.ui import translate
from pages.ui.heatmap.frame import MASKED_STATE, NO_KEY_STATE, Axis, Grid, Map
from pages.ui.translate import say

# Words and filler of the two plain pictures.
WORDS, FILLER = 4, 2
# Thumbnails and the picture of a mask, at most so many cells along a side.
THUMB, MAIN_SIDE, BESIDE_SIDE, SMALL_SIDE = 32, 1024, 640, 512
# Where on the colours a tile stands.
FULL, PARTIAL = 1.0, 0.5
KINDS = ((FULL, "full"), (PARTIAL, "partial"))
# So many layers are told apart by eye and have a name in the legend; more of them stand on a bar.
MOST_NAMED = 6


def counted(view: View) -> Survey:
    """Count the whole grid of a view, as large as it is drawn: smaller where two more maps stand below it."""
    found = _counted(bare(view))
    return coarser(found, BESIDE_SIDE) if view.score_mod != "none" and view.section == "mask" else found


@lru_cache(maxsize=8)
def _counted(view: View) -> Survey:
    return survey(view.build_mask(), view.look, max_side=MAIN_SIDE)


def bare(view: View) -> View:
    """Give the view with nothing in it that its mask does not depend on, so that equal grids are counted once."""
    return replace(
        view, section="mask", tile=1, layers=1, convention="fill", empty=True, form="sdpa", seed=0, cell=(), picked=(),
        score_mod="none", mod_settings=(),
    )  # fmt: skip


def axis(language: str, dim: str, length: int, start: int = 0, word: str | None = None) -> Axis:
    """Give one side of a map in the page's words."""
    return Axis(dim, say(language, f"masks.axis.{word or dim}"), length, start)


def share_map(key: str, title: str, found: Survey, language: str, *, marked: bool = True) -> Map:
    """Draw a survey: the share of the pairs of each drawn cell that may attend.

    What is selected is marked in every map of queries and keys; ``marked`` says whether in this one too.
    """
    values = (found.counts / found.sizes).astype(np.float32)
    state = np.where(found.counts == 0, MASKED_STATE, 0).astype(np.uint8)
    # A drawn row is one without a key when every row that it stands for is.
    starts = np.arange(0, len(found.keys), found.factor[0])
    state[np.add.reduceat(found.keys, starts) == 0] = NO_KEY_STATE
    (top, bottom), (left, right) = found.rows, found.cols
    rows, cols = axis(language, "query", bottom - top, top), axis(language, "key", right - left, left)
    if not marked:
        rows, cols = replace(rows, dim="feature"), replace(cols, dim="feature")
    kinds = ((1.0, say(language, "masks.may")),) if found.factor == (1, 1) else ()
    return Map(key, title, values, rows, cols, state, found.factor, "mean", low=0.0, high=1.0, kinds=kinds)


def thumb_view(key: str) -> View:
    """Give the view that a mask's thumbnail shows while another mask is chosen."""
    return settle({"mask": key, "length": str(THUMB)}).view


def plain_view(key: str) -> View:
    """Give one of the two plain masks for a learner: ``causal``, or ``padding`` behind ``WORDS`` words."""
    lengths = {"lengths": str(WORDS)} if key == "padding" else {}
    return settle({"mask": key, "length": str(WORDS + FILLER), **lengths}).view


@lru_cache(maxsize=64)
def _thumb(key: str) -> Survey:
    view = thumb_view(key)
    return survey(view.build_mask(), view.look, max_side=THUMB)


def gallery(view: View, language: str, *, counted: bool = True) -> Grid:
    """Give every mask as a thumbnail of a few tokens; the one chosen as it now is if it may be ``counted``."""
    own = coarser(_counted(bare(view)), THUMB) if counted else _thumb(view.mask)
    maps = tuple(
        share_map(key, kind.label.say(language), own if key == view.mask else _thumb(key), language, marked=False)
        for key, kind in MASKS.items()
    )
    return Grid(maps, "", say(language, "masks.gallery_alt", masks=len(maps), chosen=MASKS[view.mask].label))


def title(view: View, language: str) -> str:
    """Name the mask that is drawn, with what it is joined with."""
    name = MASKS[view.mask].label.say(language)
    if view.join != "none":
        name = say(language, f"masks.joined.{view.join}", first=name, second=MASKS[view.other].label)
    return say(language, "masks.joined.invert", first=name) if view.invert else name


def mask(view: View, language: str) -> Grid:
    """Give the mask itself, with what was counted under it."""
    found = counted(view)
    name = title(view, language)
    fields = {
        "name": name,
        "shape": shape(view),
        "pairs": translate.counted(language, "pair", found.pairs),
        "share": units.percent(found.pairs / (view.length * view.key_length)),
        "low": units.count(int(found.keys.min())),
        "mean": units.number(float(found.keys.mean()), 4),
        "high": units.count(int(found.keys.max())),
        "empty": units.count(found.empty_rows),
    }
    caption, alt = (say(language, f"masks.{word}", **fields) for word in ("caption", "alt"))
    return Grid((share_map("mask", name, found, language),), caption, alt)


def shape(view: View) -> str:
    """Write the sizes of the grid."""
    return f"{units.count(view.length)} × {units.count(view.key_length)}"


def changed(view: View, language: str) -> Grid:
    """Give the score change alone and together with the mask."""
    made = change(view, SMALL_SIDE)
    rows, cols = axis(language, "query", view.length), axis(language, "key", view.key_length)
    maps = []
    for key, values, state in (("change", made.difference, None), ("together", made.together, made.state)):
        counts = values if state is None else values[state == 0]
        high = float(np.abs(counts).max()) if counts.size else 1.0
        name = say(language, f"masks.{key}")
        maps.append(
            Map(key, name, values, rows, cols, state, made.pool, "mean", "diverging", low=-(high or 1), high=high or 1)
        )
    return Grid(tuple(maps), say(language, "masks.change_caption", head=view.head), say(language, "masks.change_alt"))


def blocks(view: View, language: str) -> tuple[Grid, Tiles]:
    """Give the tiles of a tiled kernel as full, partial or empty, and their numbers."""
    found = survey(view.build_mask(), view.look, tile=view.tile)
    count = tiles(found)
    # Kinds and not shares: a tile with few pairs would have the colour of the background.
    values = np.where(found.counts == found.sizes, FULL, PARTIAL).astype(np.float32)
    state = np.where(found.counts == 0, MASKED_STATE, 0).astype(np.uint8)
    kinds = tuple((value, say(language, f"masks.blocks.{word}_tile")) for value, word in KINDS)
    rows = axis(language, "query", found.counts.shape[0], word="query_tile")
    cols = axis(language, "key", found.counts.shape[1], word="key_tile")
    fields = tile_words(count)
    caption, alt = (say(language, f"masks.blocks.{word}", tile=view.tile, **fields) for word in ("caption", "alt"))
    drawn = Map("tiles", title(view, language), values, rows, cols, state, low=0.0, high=1.0, kinds=kinds)
    return Grid((drawn,), caption, alt), count


def tile_words(count: Tiles) -> dict[str, str]:
    """Write the numbers of tiles."""
    return {
        "full": units.count(count.full),
        "partial": units.count(count.partial),
        "empty": units.count(count.empty),
        "skipped": units.percent(count.skipped),
        "useful": units.percent(count.pairs / count.computed if count.computed else 1.0),
    }


def reach(view: View, language: str) -> tuple[Grid, reaches.Reach]:
    """Give after how many layers each token first influences each other, and how far that is."""
    found = _reach(bare(view), view.layers)
    state = np.where(found.first == 0, MASKED_STATE, 0).astype(np.uint8)
    rows, cols = axis(language, "query", view.length), axis(language, "key", view.key_length)
    high = float(max(2, found.first.max()))
    fields = {
        "layers": view.layers,
        "mean": units.number(found.mean[-1], 4),
        "high": units.count(found.most[-1]),
        "share": units.percent(found.mean[-1] / view.length),
    }
    caption, alt = (say(language, f"masks.reach.{word}", **fields) for word in ("caption", "alt"))
    values = found.first.astype(np.float32)
    layers = range(1, int(found.first.max()) + 1)
    kinds = tuple((float(layer), say(language, "masks.reach.after", layer=layer)) for layer in layers)
    kinds = kinds if len(kinds) <= MOST_NAMED else ()
    drawn = Map("reach", title(view, language), values, rows, cols, state, low=0.0, high=high, kinds=kinds)
    return Grid((drawn,), caption, alt), found


@lru_cache(maxsize=8)
def _reach(view: View, layers: int) -> reaches.Reach:
    allowed = region(view.build_mask(), view.look, (0, view.length), (0, view.key_length))
    return reaches.reach(allowed, layers)


def reach_bound(view: View) -> list[float] | None:
    """Give what a band predicts for the most tokens seen after each number of layers; None for other masks."""
    left, right = (0 if side is None else side for side in view.build_mask().band)
    if not view.build_mask().exact:
        return None
    open_ended = None in view.build_mask().band
    bound = [1.0 + layer * (left + right) for layer in range(1, view.layers + 1)]
    return [float(view.length)] * view.layers if open_ended else [min(one, float(view.length)) for one in bound]
