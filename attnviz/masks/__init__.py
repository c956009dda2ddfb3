"""Masks: who may attend to whom. ``kinds`` lists them, ``base`` says what a mask is."""

from attnviz.masks.base import ALIGNMENTS, Mask, MaskKind, block, dense, offset, tile_state
from attnviz.masks.kinds import MASKS

__all__ = ["ALIGNMENTS", "MASKS", "Mask", "MaskKind", "block", "dense", "offset", "tile_state"]
