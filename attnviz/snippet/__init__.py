"""Views as scripts of plain PyTorch."""

from attnviz.snippet.layers import layer_snippet
from attnviz.snippet.script import attention_snippet

__all__ = ["attention_snippet", "layer_snippet"]
