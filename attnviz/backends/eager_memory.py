"""What the reference takes, step by step as ``eager.compute`` and its gradient take it.

In half precision oneDNN lays out matrices anew in scratch of its own, which is left out.
"""

from attnviz.backends.base import Pass
from attnviz.ledger import Ledger

# A factor written in Python becomes a number of float64, then one of the tensor's type beside it for the moment.
_NUMBER = 8


def forward(ledger: Ledger, given: Pass) -> None:
    """Take what a pass takes; what is left is its results and, with a gradient, what that will read again."""
    size, gradient = given.itemsize, given.gradient
    rows, statistics = given.rows * size, given.rows * max(4, size)
    given.take_copies(ledger, "query_copy", "key_copy")
    ledger.take(scores=given.scores)
    ledger.take(factor=_NUMBER)
    ledger.touch(size if size < _NUMBER else 0)
    if not gradient:
        ledger.drop("factor", "query_copy", "key_copy")
    if given.fixed_keys:
        # Only the gradient of keys reads the query, which the layer lets go when it is done.
        ledger.drop("query_copy")
    if given.masked:
        # Rows without a key, what stands in their place and in that of masked cells, and the masked matrix itself.
        q_len = given.shape.q_len
        ledger.take(seen=q_len, dead=q_len)
        ledger.drop("seen")
        ledger.take(fill=q_len * size)
        ledger.touch(q_len)
        ledger.take(masked=given.scores)
    ledger.take(weights=given.scores, row_maximum=rows)
    if size < 4:
        ledger.take(maximum=statistics)
        if not gradient:
            ledger.drop("row_maximum")
    if not gradient:
        ledger.drop("masked")
    given.take_copies(ledger, "value_copy")
    ledger.take(output=given.output)
    if not gradient:
        ledger.drop("value_copy")
    ledger.take(largest=rows)
    if size < 4:
        ledger.take(largest_wide=statistics)
        if not gradient:
            ledger.drop("largest")
    if given.masked:
        ledger.take(largest_or_one=statistics)
    ledger.take(logarithm=statistics)
    if not gradient:
        ledger.drop("largest_or_one")
    ledger.take(logsumexp=statistics)
    ledger.drop("logarithm")
    if given.masked:
        ledger.touch(statistics)
        ledger.drop("fill")
    if not gradient:
        ledger.drop("row_maximum", "maximum", "largest", "largest_wide", "dead")


def backward(ledger: Ledger, given: Pass) -> None:
    """Take what the gradient takes, from that of the output (``output_grad``, if it is held) to those of the inputs."""
    size, scores = given.itemsize, given.scores
    if given.fixed_keys:
        ledger.drop("query")
    number = size if size < _NUMBER else 0
    if not given.fixed_keys:
        ledger.take(value_grad=given.value)
    ledger.take(weights_grad=scores)
    ledger.drop("value_copy", "output_grad")
    ledger.take(scores_grad=scores)
    ledger.drop("weights_grad")
    if given.masked:
        # The zeros of masked cells are of the matrix's type already.
        ledger.touch(size + scores)
    ledger.touch(number + scores)
    ledger.drop("factor")
    if not given.fixed_keys:
        ledger.take(key_grad=given.key)
    ledger.take(query_grad=given.query)
    ledger.drop("scores_grad", "query_copy", "key_copy", "query")
