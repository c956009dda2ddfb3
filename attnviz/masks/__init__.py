"""Masks: who may attend to whom.

``base`` says what a mask is. ``sequences``, ``windows``, ``blocks`` and ``own`` hold one rule and one entry for each
mask that can be picked; ``rule`` and ``rule_reader`` are what a rule typed by a person is made of.
"""

from attnviz.masks.base import ALIGNMENTS, Mask, MaskKind, block, dense, offset, tile_state
from attnviz.masks.blocks import BLOCKS
from attnviz.masks.own import OWN
from attnviz.masks.sequences import SEQUENCES
from attnviz.masks.windows import WINDOWS
from attnviz.registry import Registry

MASKS: Registry[MaskKind] = Registry("mask", (*SEQUENCES, *WINDOWS, *BLOCKS, *OWN))

__all__ = ["ALIGNMENTS", "MASKS", "Mask", "MaskKind", "block", "dense", "offset", "tile_state"]
