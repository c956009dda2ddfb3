"""Measure attention on this machine: fair times and exact memory, in a process of its own.

    from attnviz.benchmark import Contestant, Request, measure, submit

    sizes = {"hidden_size": 512, "num_attention_heads": 8}
    request = Request((Contestant("mha", "eager", sizes), Contestant("mha", "sdpa", sizes)), q_len=1024, mask="causal")
    result = measure(request)                  # waits; Measurement or Failure
    result.points[1].latency_s.median          # seconds of one call; .lower .upper .minimum .runs .noisy
    result.points[1].ratio                     # to the first contestant, median of the rounds' ratios
    result.points[1].peak_bytes                # beyond the inputs, results included; .memory_method says how

    job = submit([request, …], abandon_s=10)   # at once; a curve is several requests, which take turns with other jobs
    job.place, job.shown, job.done, job.cancel()
    for number, known in job.follow(): …       # what is known of request ``number``, each time that there is more

One process serves the whole app. It starts with the first job, stays, and works on one request at a time. Contestants
run in turn, round by round, so that a busy neighbour slows all of them; memory is measured in a pass that is not
timed. A crash, a time-out, memory that ran out and a cancel end a request as ``Failure``, the process is started anew,
and other jobs go on. A contestant that does not fit or that torch cannot compute is a failure of its point only.

``request`` says what is measured, ``result`` what comes back, ``predict`` what the declarations expect, ``peaks`` what
is known of the memory, much of it by a ``rehearsal``, ``room`` what is not begun, ``desk`` is the queue, ``job`` what
stands in it, and ``process`` the other process's handle. Inside that process run ``worker``, ``serve``, ``run``,
``calls``, ``clock``, ``memory`` and ``speed``.
"""

from attnviz.benchmark.desk import Desk, desk, measure, submit
from attnviz.benchmark.job import Asker, Job
from attnviz.benchmark.peaks import accuracy, declared_peak
from attnviz.benchmark.predict import Predicted, predict
from attnviz.benchmark.request import Contestant, Request
from attnviz.benchmark.result import Failure, Latency, Measurement, Point, Result
from attnviz.benchmark.room import too_large
from attnviz.benchmark.speed import Probe, Speed

__all__ = [
    "Asker",
    "Contestant",
    "Desk",
    "Failure",
    "Job",
    "Latency",
    "Measurement",
    "Point",
    "Predicted",
    "Probe",
    "Request",
    "Result",
    "Speed",
    "accuracy",
    "declared_peak",
    "desk",
    "measure",
    "predict",
    "submit",
    "too_large",
]
