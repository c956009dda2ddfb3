"""Figures of the attention view."""

from attnviz.figures.maps import heatmap
from attnviz.figures.rows import row_bars

__all__ = ["heatmap", "row_bars"]
