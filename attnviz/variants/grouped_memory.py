"""What a call with grouped heads takes, step by step as ``Grouped.attend`` and its gradient take it."""

from typing import Any

from attnviz.backends import BACKENDS
from attnviz.backends.base import Pass, Play
from attnviz.ledger import Ledger
from attnviz.variants.base import Variant
from attnviz.variants.work import Work


def whole_peak_bytes(variant: Variant, config: Any, work: Work, backend: str) -> int | None:
    """Predict the peak of a layer, or of a core with its gradient; None with a sink or where the backend says nothing.

    Counted is all that torch allocates from the first projection to the last gradient: projections, the core, what a
    gradient reads again, results. Not counted is what was there before: tokens, weights, a cache, the mask, and the
    gradient of the output.
    """
    how = BACKENDS[backend]
    if config.sink or how.forward is None or (work.gradient and how.backward is None):
        return None
    ledger = Ledger()
    given = _pass(variant, config, work)
    if work.gradient and not how.score_passes and given.shape.value[3] != given.shape.head_dim:
        return None  # no fused kernel takes such values, and the plain one's gradient is not known
    if work.layer:
        _Layer(variant, config, work, ledger).play(how.forward, how.backward, given)
        return ledger.most
    if work.spread:
        ledger.take(spread=given.key + given.value)
    how.forward(ledger, given)
    if work.gradient and how.backward is not None:
        how.backward(ledger, given)
    return ledger.most


def is_exact(variant: Variant, config: Any, backend: str) -> bool:
    """Say whether a ledger follows a call: not one of our tiles, nor one with a sink or values of another width."""
    fused = config.v_head_dim == config.head_dim or bool(variant.score_passes(backend))
    return BACKENDS[backend].backward is not None and fused and not config.sink


def layer_around(variant: Variant, config: Any, work: Work, backend: str) -> int | None:
    """Predict the peak of a layer's forward pass around a core of which only the whole peak is known.

    The core's output is taken to be what is left of it. None for a gradient.
    """
    if work.gradient or not work.layer:
        return None
    core = variant.peak_bytes(config, work._replace(layer=False), backend)

    def forward(ledger: Ledger, given: Pass) -> None:
        ledger.touch(core)
        ledger.take(output=given.output)

    ledger = Ledger()
    _Layer(variant, config, work, ledger).play(forward, None, _pass(variant, config, work))
    return ledger.most


def _pass(variant: Variant, config: Any, work: Work) -> Pass:
    """Give the core's pass: behind a cache keys and values are the cache's, else what the projections leave."""
    heads = variant.heads(config)
    heads = heads._replace(kv_heads=heads.heads) if work.spread else heads
    fresh = work.layer and work.q_len >= work.kv_len
    return Pass(
        work.shape(heads), work.itemsize, work.masked, work.causal, split_query=work.layer,
        split_keys=fresh, split_values=fresh, gradient=work.gradient, fixed_keys=work.layer and not fresh,
    )  # fmt: skip


class _Layer:
    """Play a layer in a ledger."""

    def __init__(self, variant: Variant, config: Any, work: Work, ledger: Ledger) -> None:
        self.work, self.ledger = work, ledger
        self.matrices, self.vectors = variant.matrices(config), variant.vectors(config)
        self.cached = work.q_len < work.kv_len

    def play(self, forward: Play, backward: Play | None, given: Pass) -> None:
        """Project, attend, merge and project; then come the gradients in the opposite order."""
        ledger = self.ledger
        self._project()
        if self.work.spread:
            ledger.take(spread=given.key + given.value)
        forward(ledger, given)
        # Heads that come before tokens are merged in a copy.
        several = given.shape.heads > 1 and given.shape.q_len > 1
        merges = ledger.holds("output") and several
        if merges:
            ledger.take(merged=given.output)
        self._apply("output", "answer", self.work.q_len)
        if not self.work.gradient or backward is None:
            return
        if ledger.holds("query_copy"):
            ledger.drop("query")
        self._back("output", "output_grad", given.output)
        ledger.drop("merged")
        if merges and (given.shape.group > 1 or given.shape.batch > 1):
            ledger.copy("output_grad")
        backward(ledger, given)
        self._back_to_tokens(given, heads_first=ledger.holds("output"))

    def _project(self) -> None:
        """Take query, key and value; behind a cache the new tokens' keys and values are made and not kept here."""
        for name in ("key", "value") if self.cached else ():
            self.ledger.touch(self._size(name, self.work.q_len))
        self._apply("query", "query", self.work.q_len)
        for name in () if self.cached else ("key", "value"):
            self._apply(name, name, self.work.kv_len)

    def _apply(self, name: str, result: str, tokens: int) -> None:
        """Take a product and, with a bias, the sum that follows it."""
        size = self._size(name, tokens)
        if self._has_bias(name):
            self.ledger.take(product=size)
        self.ledger.take(**{result: size})
        self.ledger.drop("product")

    def _back(self, name: str, result: str, size: int) -> None:
        """Take the gradients of a projection: its bias, its matrix, and what went in."""
        rows, cols = self.matrices[name]
        if self._has_bias(name):
            self.ledger.take(**{f"{name}_bias_grad": cols * self.work.itemsize})
        self.ledger.take(**{f"{name}_matrix_grad": rows * cols * self.work.itemsize, result: size})

    def _back_to_tokens(self, given: Pass, *, heads_first: bool) -> None:
        """Take the gradients of the projections, last first, and add up those of the tokens."""
        ledger, shape = self.ledger, given.shape
        tokens = self.work.batch * self.work.q_len * self.matrices["query"][0] * self.work.itemsize
        if not self.cached:
            if heads_first and shape.kv_heads > 1 and shape.kv_len > 1:
                ledger.copy("value_grad")
            self._back("value", "tokens_grad", tokens)
            ledger.drop("value_grad")
            if self._has_bias("key"):
                ledger.take(key_bias_grad=self.matrices["key"][1] * self.work.itemsize)
            # It comes as the product had it: each key's numbers far apart.
            if heads_first and shape.batch > 1 and shape.kv_len > 1:
                ledger.copy("key_grad")
            ledger.take(key_matrix_grad=self.matrices["key"][0] * self.matrices["key"][1] * self.work.itemsize)
            ledger.take(more_tokens_grad=tokens)
            ledger.drop("key_grad")
            ledger.touch(tokens)
            ledger.drop("more_tokens_grad")
        if heads_first and shape.heads > 1 and shape.q_len > 1:
            ledger.copy("query_grad")
        self._back("query", "more_tokens_grad", tokens)

    def _has_bias(self, name: str) -> bool:
        # The plain code that spreads a cache over the heads adds none behind the last matrix.
        return f"{name}_bias" in self.vectors and not (self.work.spread and name == "output")

    def _size(self, name: str, tokens: int) -> int:
        return self.work.batch * tokens * self.matrices[name][1] * self.work.itemsize
