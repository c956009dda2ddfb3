"""Where measurements are asked for: one fair queue before one measuring process."""

import atexit
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache

from attnviz import units
from attnviz.benchmark.process import Worker
from attnviz.benchmark.request import Request
from attnviz.benchmark.result import Failure, Measurement, Result

# A cancelled call that does not end by itself after so long is ended with its process.
GRACE_S = 0.4
_TICK_S = 0.05
# Starting takes a second or two; on a crowded machine it may take many.
_START_S = 120.0


class Job:
    """Hold what one person asked for: requests that are measured one after the other, taking turns with other jobs.

    All of it may be read and called from any thread.

    Args:
        requests: What is measured.
        abandon_s: Seconds after which it ends when nobody looked at it (``look``, ``wait``); None is never.
    """

    def __init__(self, desk: "Desk", requests: Sequence[Request], abandon_s: int | float | None):
        self.requests = tuple(requests)
        self._desk, self._abandon_s = desk, abandon_s
        self._results: list[Result] = []
        self._partial: Measurement | None = None
        self._looked = time.monotonic()
        self._cancelled = False

    def look(self) -> None:
        """Say that somebody still waits for it."""
        self._looked = time.monotonic()

    @property
    def results(self) -> tuple[Result, ...]:
        """Results of the requests that have ended, in order."""
        with self._desk.changed:
            return tuple(self._results)

    @property
    def partial(self) -> Measurement | None:
        """What is known so far of the request that is being measured."""
        with self._desk.changed:
            return self._partial

    @property
    def shown(self) -> tuple[Result, ...]:
        """Results so far, with what is known of the request that is being measured at the end."""
        with self._desk.changed:
            return (*self._results, *([self._partial] if self._partial is not None else []))

    @property
    def done(self) -> bool:
        """Whether every request has ended."""
        with self._desk.changed:
            return len(self._results) == len(self.requests)

    @property
    def place(self) -> int:
        """Place in the queue: 0 while it is measured or done, 1 for the next."""
        return self._desk.place(self)

    def cancel(self) -> None:
        """End it; requests that have not ended come to a ``Failure`` with the reason ``cancelled``."""
        self._cancelled = True
        self._desk.sweep()

    @property
    def ending(self) -> str | None:
        """Why it is to end before it is done, or None."""
        if self._cancelled:
            return "cancelled"
        late = self._abandon_s is not None and time.monotonic() - self._looked > self._abandon_s
        return "abandoned" if late else None

    def wait(self, timeout_s: int | float | None = None) -> tuple[Result, ...]:
        """Wait until every request has ended, at most so long; give the results so far."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._desk.changed:
            while len(self._results) < len(self.requests):
                self.look()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._desk.changed.wait(1.0 if left is None else min(1.0, left))
            return tuple(self._results)

    def follow(self) -> Iterator[tuple[int, Result]]:
        """Give the number of a request and what is known of it, each time that there is more."""
        seen: tuple[Result, ...] = ()
        while True:
            with self._desk.changed:
                while self.shown == seen:
                    self.look()
                    if self.done:
                        return
                    self._desk.changed.wait(1.0)
                now = self.shown
            for number in range(max(0, len(seen) - 1), len(now)):
                if number >= len(seen) or now[number] != seen[number]:
                    yield number, now[number]
            seen = now

    def _take(self, result: Result) -> None:
        with self._desk.changed:
            self._results.append(result)
            self._partial = None
            self._desk.changed.notify_all()

    def _show(self, partial: Measurement) -> None:
        with self._desk.changed:
            self._partial = partial
            self._desk.changed.notify_all()

    def _end(self, reason: str) -> None:
        """End every request that has not ended."""
        for _ in range(len(self.requests) - len(self.results)):
            self._take(Failure(reason, partial=self.partial))


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

    def submit(self, requests: Sequence[Request], *, abandon_s: int | float | None = None) -> Job:
        """Put requests into the queue: one is measured, then the job goes to the end of the queue.

        Args:
            requests: What is measured, in order; at least one.
            abandon_s: As in ``Job``.

        Raises:
            ValueError: If there is no request.
        """
        if not requests:
            raise ValueError("requests must hold at least one request, got none")
        job = Job(self, requests, abandon_s)
        with self.changed:
            if self._closed:
                job._end("closed")
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
        """Give a job's place: 0 for the one that is measured, or done."""
        with self.changed:
            return self._waiting.index(job) + 1 if job in self._waiting else 0

    def sweep(self) -> None:
        """Take jobs that are to end out of the queue."""
        with self.changed:
            for job in [job for job in self._waiting if job.ending]:
                self._waiting.remove(job)
                job._end(job.ending or "cancelled")
            self.changed.notify_all()

    def close(self) -> None:
        """End the process and all jobs; nothing is measured afterwards."""
        with self.changed:
            self._closed = True
            for job in self._waiting:
                job._end("closed")
            self._waiting.clear()
            self.changed.notify_all()
        if self._worker is not None:
            self._worker.end()

    def _serve(self) -> None:
        """Work on the queue, until it is closed. The thread that starts the process must outlive it."""
        self._started()
        while True:
            with self.changed:
                while not self._waiting and not self._closed:
                    self.changed.wait()
                if self._closed:
                    return
                self.sweep()
                if not self._waiting:
                    continue
                job = self._current = self._waiting.popleft()
            job._take(self._measure(job, job.requests[len(job.results)]))
            with self.changed:
                self._current = None
                if job.ending:
                    job._end(job.ending)
                if not job.done:
                    self._waiting.append(job)

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

    def _measure(self, job: Job, request: Request) -> Result:
        worker = self._started()
        if worker is None:
            ended = "it did not start" if self._worker is None else self._worker.end()
            return Failure("closed") if self._closed else Failure("crashed", ended)
        number = next(self._numbers)
        worker.send({"id": number, "request": request.to_json()})
        deadline, told = time.monotonic() + request.limit_s, 0.0
        while True:
            now = time.monotonic()
            reason = job.ending or ("time" if now > deadline else None)
            if reason is not None and not told:
                worker.send({"cancel": number})
                told = now
            if told and now - told > GRACE_S:
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
            measured = Measurement.from_json(message["measurement"])
            if message["final"]:
                return _settled(measured)
            job._show(measured)


def _ended(reason: str | None, request: Request, job: Job) -> Failure:
    detail = units.seconds(request.limit_s) if reason == "time" else ""
    return Failure(reason or "cancelled", detail, partial=job.partial)


def _settled(measured: Measurement) -> Result:
    """Give the measurement; where no contestant has a time, the first one's failure."""
    failures = [point.failure for point in measured.points]
    return failures[0] if failures[0] is not None and all(failures) else measured


@cache
def desk() -> Desk:
    """Give the app's one desk."""
    own = Desk()
    atexit.register(own.close)
    return own


def submit(requests: Sequence[Request], *, abandon_s: int | float | None = None) -> Job:
    """Ask for measurements without waiting for them; see ``Job``."""
    return desk().submit(requests, abandon_s=abandon_s)


def measure(request: Request) -> Result:
    """Measure and wait for it: a ``Measurement``, or the ``Failure`` with the reason why there is none."""
    return desk().submit((request,)).wait()[0]
