"""How softmax attention is computed: one table of backends that all answer the same call."""

from attnviz.backends.base import Backend, CoreOutput, nonfinite_rows
from attnviz.backends.eager import EAGER
from attnviz.backends.flash import FLASH
from attnviz.backends.sdpa import SDPA
from attnviz.registry import Registry

BACKENDS: Registry[Backend] = Registry("backend", (EAGER, SDPA, FLASH))

__all__ = ["BACKENDS", "Backend", "CoreOutput", "nonfinite_rows"]
