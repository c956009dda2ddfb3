"""Published models by key, with what their attention caches."""

from attnviz.presets.base import LayerKind, Preset
from attnviz.presets.models import MODELS
from attnviz.registry import Registry

PRESETS: Registry[Preset] = Registry("preset", MODELS)

__all__ = ["PRESETS", "LayerKind", "Preset"]
