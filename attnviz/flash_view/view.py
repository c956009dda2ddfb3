"""One head's attention under a mask, cut into tiles: what a set of settings of the flash page means."""

from dataclasses import dataclass, replace

from attnviz.knobs import Value
from attnviz.masks import MASKS, Mask


@dataclass(frozen=True)
class View:
    """Hold every setting of the page, checked and fitted to each other; names as in ``settings``.

    ``mask_settings`` are the values of the knobs that the mask brings.
    """

    mask: str
    length: int
    key_length: int
    align: str
    tile_rows: int
    tile_cols: int
    step: int
    row: int
    d_k: int
    sharpness: float
    seed: int
    tokens: str
    bug: str
    line: str
    mask_settings: tuple[tuple[str, Value], ...]

    @property
    def tile(self) -> tuple[int, int]:
        """Queries and keys of a tile."""
        return self.tile_rows, self.tile_cols

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles along the queries and along the keys."""
        return -(-self.length // self.tile_rows), -(-self.key_length // self.tile_cols)

    @property
    def scale(self) -> float:
        """What the scores are multiplied by."""
        return self.sharpness * self.d_k**-0.5

    @property
    def shape(self) -> "View":
        """The view with nothing in it that its tiles do not depend on."""
        return replace(self.still, sharpness=1.0, seed=0)

    @property
    def still(self) -> "View":
        """The view with nothing in it that the running state of its rows does not depend on."""
        return replace(self, step=0, row=0, tokens="1024", bug="own", line="none")

    @property
    def call(self) -> "View":
        """The view with nothing in it that the attention itself does not depend on, so that equal calls run once."""
        return replace(self.still, tile_rows=1, tile_cols=1)

    def build_mask(self) -> Mask:
        """Build the mask with its settings."""
        return MASKS[self.mask].build(**dict(self.mask_settings))
