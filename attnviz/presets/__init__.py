"""Published models by key, with what their attention caches."""

from attnviz.presets.base import LayerKind, Preset, Published
from attnviz.presets.models import MODELS
from attnviz.presets.parameters import PARAMETERS
from attnviz.registry import Registry

PRESETS: Registry[Preset] = Registry("preset", MODELS)

__all__ = ["PARAMETERS", "PRESETS", "LayerKind", "Preset", "Published"]
