"""What is computed: the variants of attention, by key."""

from attnviz.registry import Registry
from attnviz.variants import additive, delta, grouped, latent, linear
from attnviz.variants.base import AttentionOutput, Variant
from attnviz.variants.work import HeadShape, Work

MODULES = (grouped, latent, linear, delta, additive)

VARIANTS: Registry[Variant] = Registry("variant", (entry for module in MODULES for entry in module.ENTRIES))

__all__ = ["VARIANTS", "AttentionOutput", "HeadShape", "Variant", "Work"]
