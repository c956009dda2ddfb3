"""What one person asked for, from the moment it is in the queue: results so far, place, cancel."""

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from attnviz.benchmark.request import Request
from attnviz.benchmark.result import Failure, Measurement, Result
from attnviz.benchmark.speed import Probe


@runtime_checkable
class Queue(Protocol):
    """Know the place of a job, and take those out that are to end."""

    changed: threading.Condition

    def place(self, job: "Job") -> int:
        """Give how many people are served before a job: 0 for the one that is measured, or done."""
        ...

    def sweep(self) -> None:
        """Take jobs that are to end out of the queue, and those of people who have gone where others wait."""
        ...


@dataclass(frozen=True)
class Asker:
    """Say who asks: nobody waits in line behind their own requests, nor behind those of somebody who has left.

    Args:
        name: The same for all that one person asks.
        left: Says whether they have gone away; None where nobody can know.
    """

    name: Hashable
    left: Callable[[], bool] | None = None


class Job:
    """Hold what one person asked for: requests that are measured one after the other, taking turns with other jobs.

    All of it may be read and called from any thread.

    Args:
        requests: What is measured.
        abandon_s: Seconds after which it ends when nobody looked at it (``look``, ``wait``), unless the asker is known
            to be there still: a hidden tab looks rarely. None is never.
        asker: Who asks; None is somebody else each time.
    """

    def __init__(
        self,
        desk: "Queue",
        requests: Sequence[Request | Probe],
        abandon_s: int | float | None,
        asker: Asker | None = None,
    ):
        self.requests = tuple(requests)
        self.asker = asker or Asker(id(self))
        self._desk, self._abandon_s = desk, abandon_s
        self._results: list[Result] = []
        self._partial: Measurement | None = None
        self._looked = time.monotonic()
        self._cancelled = False
        self._begun: float | None = None

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
        """How many other people are served before: 0 while it is measured or done, and where only own ones are."""
        return self._desk.place(self)

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest may take if it goes on like this, or None while nothing is known of it."""
        with self._desk.changed:
            done = len(self._results)
            if not done or self._begun is None:
                return None
            return (time.monotonic() - self._begun) / done * (len(self.requests) - done)

    @property
    def begun(self) -> bool:
        """Whether the process has been given its first request."""
        return self._begun is not None

    def cancel(self) -> None:
        """End it; requests that have not ended come to a ``Failure`` with the reason ``cancelled``."""
        self._cancelled = True
        self._desk.sweep()

    @property
    def left(self) -> bool:
        """Whether the one who asked has gone: they do not look again unless they come back."""
        return self._abandon_s is not None and self.asker.left is not None and self.asker.left()

    @property
    def ending(self) -> str | None:
        """Why it is to end before it is done, or None."""
        if self._cancelled:
            return "cancelled"
        late = self._abandon_s is not None and time.monotonic() - self._looked > self._abandon_s
        return "abandoned" if late and (self.asker.left is None or self.left) else None

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

    def begin(self) -> None:
        """Note that its first request is measured now."""
        self._begun = self._begun or time.monotonic()

    def take(self, result: Result) -> None:
        """Add the result of the request that is measured."""
        with self._desk.changed:
            self._results.append(result)
            self._partial = None
            self._desk.changed.notify_all()

    def show(self, partial: Measurement) -> None:
        """Say what is known of the request that is measured."""
        with self._desk.changed:
            self._partial = partial
            self._desk.changed.notify_all()

    def end(self, reason: str) -> None:
        """End every request that has not ended."""
        for _ in range(len(self.requests) - len(self.results)):
            self.take(Failure(reason, partial=self.partial))
