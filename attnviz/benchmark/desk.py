"""Where measurements are asked for: one fair queue before one measuring process."""

import atexit
import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from attnviz import units
from attnviz.benchmark.job import Asker, Job
from attnviz.benchmark.process import Worker
from attnviz.benchmark.request import Request
from attnviz.benchmark.result import Failure, Measurement, Result
from attnviz.benchmark.speed import Probe, Speed

# A cancelled call that does not end by itself after so long is ended with its process.
GRACE_S = 0.4
_TICK_S, _LONGEST_TICK_S = 0.05, 1.0
# Starting takes a second or two; on a crowded machine it may take many.
_START_S = 120.0
AGAIN_S = 30.0
# Who asks for the speed of a device: nobody is told to wait for that.
_HOUSE = Asker("the app itself")

_log = logging.getLogger(__name__)
_Given = TypeVar("_Given")
# No process to be had, an answer that is none: what may happen in the app's own steps.
_MISHAPS = (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)


class Desk:
    """Own the queue, the thread that works on it, and the measuring process, which starts with the first job."""

    def __init__(self) -> None:
        # Reentrant: what a job says of itself is read under it.
        self.changed = threading.Condition(threading.RLock())
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
        self._thread: threading.Thread | None = None
        self._worker: Worker | None = None
        self._numbers = itertools.count(1)
        self._closed = False
        self._speeds: dict[Probe, tuple[Job, float]] = {}

    def submit(
        self,
        requests: Sequence[Request | Probe],
        *,
        abandon_s: int | float | None = None,
        asker: Asker | None = None,
    ) -> Job:
        """Put requests into the queue: one is measured, then the job goes to the end of the queue.

        Args:
            requests: What is measured, in order; at least one.
            abandon_s: As in ``Job``.
            asker: As in ``Job``.

        Raises:
            ValueError: If there is no request.
        """
        if not requests:
            raise ValueError("requests must hold at least one request, got none")
        job = Job(self, requests, abandon_s, asker)
        with self.changed:
            if self._closed:
                job.end("closed")
                return job
            self._waiting.append(job)
            self._work()
            self.changed.notify_all()
        return job

    def warm(self) -> None:
        """Start the process now, so that the first measurement does not wait for it."""
        with self.changed:
            if not self._closed:
                self._work()

    def _work(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="attnviz-measure", daemon=True)
            self._thread.start()

    @property
    def pid(self) -> int | None:
        """Number of the measuring process, or None while there is none."""
        worker = self._worker
        return worker.pid if worker is not None and worker.alive else None

    def place(self, job: Job) -> int:
        """Give how many people are served before a job: 0 for the one that is measured, or done."""
        with self.changed:
            if job not in self._waiting:
                return 0
            waiting = list(self._waiting)[: self._waiting.index(job)]
            before = [*([] if self._current is None else [self._current]), *waiting]
            own = (job.asker.name, _HOUSE.name)
            return len({one.asker.name for one in before if not one.left and one.ending is None}.difference(own))

    def speed(self, asked: Probe) -> Speed | None:
        """Give the speed of a device if it has been measured; the first question has it measured.

        One that came to nothing is measured again, but not at once: whatever ended it may still be there.
        """
        with self.changed:
            job, begun = self._speeds.get(asked, (None, 0.0))
            found = next((one.speed for one in job.results if isinstance(one, Measurement)), None) if job else None
            late = job is None or (job.done and time.monotonic() - begun > AGAIN_S)
            if found is None and late and not self._closed:
                self._speeds[asked] = self.submit((asked,), asker=_HOUSE), time.monotonic()
            return found

    def sweep(self) -> None:
        """Take jobs that are to end out of the queue, and those of people who have gone where others wait."""
        with self.changed:
            for job in list(self._waiting):
                reason = self._ending(job)
                if reason is not None:
                    self._waiting.remove(job)
                    job.end(reason)
            self.changed.notify_all()

    def _ending(self, job: Job) -> str | None:
        """Say why a job ends. Somebody who has gone may be back in a moment, but holds nobody up meanwhile."""
        with self.changed:
            return job.ending or ("abandoned" if job.left and any(one is not job for one in self._waiting) else None)

    def close(self) -> None:
        """End the process and all jobs; nothing is measured afterwards."""
        with self.changed:
            self._closed = True
            self._end_all()
            self.changed.notify_all()
        if self._worker is not None:
            self._worker.end()

    def _end_all(self) -> None:
        for job in self._waiting:
            job.end("closed")
        self._waiting.clear()

    def _serve(self) -> None:
        """Work on the queue, until it is closed. The thread that starts the process must outlive it."""
        self._attempt(self._started)
        while True:
            with self.changed:
                while not self._waiting and not self._closed:
                    self.changed.wait()
                if self._closed:
                    self._end_all()
                    return
                self.sweep()
                if not self._waiting:
                    continue
                job = self._current = self._waiting.popleft()
            result = self._attempt(lambda job=job: self._measure(job, job.requests[len(job.results)]))
            job.take(result if result is not None else Failure("crashed", "it could not be asked", partial=job.partial))
            with self.changed:
                self._current = None
                reason = self._ending(job)
                if reason is not None:
                    job.end(reason)
                if not job.done:
                    self._waiting.append(job)

    def _attempt(self, act: Callable[[], _Given]) -> _Given | None:
        """Do a step; what nobody foresaw is logged, and ends this one request and not the service of all others."""
        try:
            return act()
        except _MISHAPS:
            _log.exception("a measurement failed in the app")
            if self._worker is not None:
                self._worker.end()
            return None

    def _started(self) -> Worker | None:
        """Give the process, made anew if it has gone; None if it does not come up."""
        if self._worker is not None and self._worker.alive:
            return self._worker
        with self.changed:
            if self._closed:
                return None
            worker = self._worker = Worker()
        try:
            if worker.answers.get(timeout=_START_S) is not None:
                return worker
        except queue.Empty:
            worker.end()
        return None

    def _measure(self, job: Job, request: Request | Probe) -> Result:
        worker = self._started()
        if worker is None:
            ended = "it did not start" if self._worker is None else self._worker.end()
            return Failure("closed") if self._closed else Failure("crashed", ended)
        number = next(self._numbers)
        worker.send({"id": number, "request": request.to_json()})
        job.begin()
        spent, looked, told = 0.0, time.monotonic(), None
        while True:
            now = time.monotonic()
            # Time in which this process itself was halted was none that the other one could use.
            spent, looked = spent + min(now - looked, _LONGEST_TICK_S), now
            reason = self._ending(job) or ("time" if spent > request.limit_s else None)
            if reason is not None and told is None:
                worker.send({"cancel": number})
                told = spent
            if told is not None and spent - told > GRACE_S:
                worker.end()
                return _ended(reason, request, job)
            try:
                message = worker.answers.get(timeout=_TICK_S)
            except queue.Empty:
                continue
            if message is None:
                ended = worker.end()
                return Failure("closed") if self._closed else Failure("crashed", ended, partial=job.partial)
            if message.get("id") != number:
                continue  # of a request that was given up
            if message.get("cancelled"):
                return _ended(reason, request, job)
            if "failure" in message:
                return Failure(**message["failure"])
            if "speed" in message:
                return Measurement((), speed=Speed(**message["speed"]))
            measured = Measurement.from_json(message["measurement"])
            if message["final"]:
                return _settled(measured)
            job.show(measured)


def _ended(reason: str | None, request: Request | Probe, job: Job) -> Failure:
    detail = units.seconds(request.limit_s) if reason == "time" else ""
    return Failure(reason or "cancelled", detail, partial=job.partial)


def _settled(measured: Measurement) -> Result:
    """Give the measurement; where no contestant has a time, the first one's failure, with each one's own beside it."""
    failures = [point.failure for point in measured.points]
    first = failures[0]
    return replace(first, partial=measured) if first is not None and all(failures) else measured


@cache
def desk() -> Desk:
    """Give the app's one desk."""
    own = Desk()
    atexit.register(own.close)
    return own


def submit(requests: Sequence[Request], *, abandon_s: int | float | None = None, asker: Asker | None = None) -> Job:
    """Ask for measurements without waiting for them; see ``Job``."""
    return desk().submit(requests, abandon_s=abandon_s, asker=asker)


def measure(request: Request) -> Result:
    """Measure and wait for it: a ``Measurement``, or the ``Failure`` with the reason why there is none."""
    return desk().submit((request,)).wait()[0]
