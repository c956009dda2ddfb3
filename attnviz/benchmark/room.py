"""What is not begun: it has no gradient, would not fit the free memory or not end in time."""

from attnviz import units
from attnviz.backends import BACKENDS
from attnviz.benchmark.peaks import declared_peak
from attnviz.benchmark.predict import predict
from attnviz.benchmark.request import Contestant, Request
from attnviz.benchmark.result import Failure
from attnviz.variants import VARIANTS

# Of the free memory; the rest is the app's and everyone else's.
MEMORY_SHARE = 0.7
# FLOP/s that one thread, or one GPU, will hardly pass: a call that would take too long even so is not begun.
_OPTIMISTIC = {"cpu": 1.5e11, "mps": 2e13, "cuda": 1e15}
# Where nothing predicts it: a gradient of everything that was made, beside it.
_BACKWARD_MEMORY = 3


def no_backward(contestant: Contestant, request: Request) -> Failure | None:
    """Say that a gradient is asked of a backend that has none; None if it may run."""
    own = [key for key in VARIANTS[contestant.variant].backends if key in BACKENDS]
    others = [key for key in own if BACKENDS[key].backward is not None]
    if request.mode == "forward" or contestant.backend not in own or contestant.backend in others:
        return None
    return Failure("no_backward", " or ".join(others), " 或 ".join(others))


def too_large(contestant: Contestant, request: Request, free_bytes: int) -> Failure | None:
    """Say why a contestant is not begun: it would not fit the free memory, or not end in time; None if it may run."""
    taken = predict(contestant, request)
    peak = declared_peak(contestant, request)
    if peak is None:
        peak = taken.peak_bytes * (_BACKWARD_MEMORY if request.mode != "forward" else 1)
    need = taken.input_bytes + peak
    most = int(MEMORY_SHARE * free_bytes)
    if need > most:
        sizes = {"need": units.binary_bytes(need), "most": units.binary_bytes(most)}
        return Failure(
            "too_large",
            "it would take {need} of memory, and {most} may be taken".format(**sizes),
            "需要 {need} 内存，最多可用 {most}".format(**sizes),
        )
    kind = request.device.partition(":")[0]
    speed = _OPTIMISTIC.get(kind, _OPTIMISTIC["cuda"]) * (request.threads if kind == "cpu" else 1)
    # It runs three times at least: to warm up, to be timed and to be weighed.
    seconds = 3 * taken.flops / speed
    if seconds > request.limit_s:
        times = {"need": units.seconds(seconds), "most": units.seconds(request.limit_s)}
        return Failure(
            "too_large",
            "it would take more than {need}, and {most} are allowed".format(**times),
            "至少需要 {need}，上限为 {most}".format(**times),
        )
    return None
