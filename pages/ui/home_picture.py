"""The miniatures of the first page: views of the attention page, computed and drawn by the same functions."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from attnviz import view as attention
from attnviz.home_view import HomeView, settle
from pages.ui import asked, attention_picture
from pages.ui.heatmap.frame import VALUE_STATE, Grid, Map, pack
from pages.ui.home_paths import MINIATURES, Miniature, settings_of
from pages.ui.translate import say

FIGURE = "home"


def grids(view: HomeView, language: str) -> dict[str, Grid]:
    """Compute every miniature and give its grid by its key."""
    return {miniature.key: _grid(miniature, view, language) for miniature in MINIATURES}


def _grid(miniature: Miniature, view: HomeView, language: str) -> Grid:
    shown = attention.settle(settings_of(miniature, view)).view
    grid = attention_picture.grids(shown, language)[attention_picture.MAIN]
    largest = np.mean([_largest(drawn) for drawn in grid.maps])
    caption = say(language, f"home.mini.{miniature.key}.caption", largest=f"{largest:.2f}")
    maps = grid.maps
    if len(maps) == 1:  # one head's number says nothing; what was computed does
        maps = (replace(maps[0], title=say(language, f"home.mini.{miniature.key}.formula", d_k=view.width)),)
    return replace(grid, maps=maps, caption=caption)


def _largest(drawn: Map) -> float:
    """Give the mean over the rows of the largest value that a row has."""
    values = drawn.values if drawn.state is None else np.where(drawn.state == VALUE_STATE, drawn.values, -np.inf)
    return float(values.max(axis=1).mean())


def frame(params: Mapping[str, str]) -> bytes:
    """Give the bytes of all miniatures.

    Raises:
        Refusal: For settings that cannot be read.
    """
    view, language, given = asked.read(params, settle)
    return pack(FIGURE, given, grids(view, language))
