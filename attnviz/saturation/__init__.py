"""The √d_k argument as a measurement: what scores, softmax and gradients do as d_k grows, with and without scaling."""

from attnviz.saturation.measure import SWEEP, Curves, Point, jacobian_norm, measure, sweep
from attnviz.saturation.scalings import SCALINGS, Scaling, scaled_scores
from attnviz.saturation.sources import Source, groups_for, normal_source

__all__ = [
    "SCALINGS", "SWEEP", "Curves", "Point", "Scaling", "Source", "groups_for", "jacobian_norm", "measure",
    "normal_source", "scaled_scores", "sweep",
]  # fmt: skip
