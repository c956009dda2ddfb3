"""What attention replaced, measured beside it: recurrent nets and convolutions, their gradients, steps and memory."""

from attnviz.recurrence.measure import Timing, chain, gradients, predicted_chain, time_forward
from attnviz.recurrence.models import MODELS, Model, Sizes
from attnviz.recurrence.recall import Recall

__all__ = [
    "MODELS",
    "Model",
    "Recall",
    "Sizes",
    "Timing",
    "chain",
    "gradients",
    "predicted_chain",
    "time_forward",
]
