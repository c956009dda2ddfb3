"""The app's side of the measuring process: start it with its environment, ask it, stop it."""

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
# Freed memory stays with the process: else every large tensor is handed out page by page again, and eager attention
# looks several times slower than it is.
ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(2**40),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    # A crash in compiled code leaves the line of Python that called it.
    "PYTHONFAULTHANDLER": "1",
}
LEAVE_S = 2.0
# What torch's profiler writes each time it is used.
_CHATTER = "USDT:"

_log = logging.getLogger(__name__)


class Worker:
    """Hold one measuring process. Make it in a thread that lives as long as the app: Linux ends it with that thread."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "attnviz.benchmark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=_ROOT,
            env={**os.environ, **ENVIRONMENT},
            encoding="utf-8",
            # What a dying process leaves half written must not stop those who read it.
            errors="replace",
            # Ctrl-C in a terminal is for the app; this process notices when the app is gone.
            start_new_session=True,
        )
        self.answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._told = False
        self._last_words: deque[str] = deque(maxlen=30)
        for target in (self._read, self._overhear):
            threading.Thread(target=target, daemon=True).start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def _read(self) -> None:
        """Collect its answers; None when there will be no more."""
        assert self._process.stdout is not None
        try:
            with self._process.stdout as stream:
                for line in stream:
                    # One that is killed while it writes leaves a line without an end.
                    if line.endswith("\n"):
                        self.answers.put(json.loads(line))
        finally:
            self._ended.set()
            self.answers.put(None)

    def _overhear(self) -> None:
        """Keep the last that it wrote beside its answers, for the log if it crashes."""
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            self._last_words.extend(line for line in stream if not line.startswith(_CHATTER))

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one message; a process that has gone is found out by its answers."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _gone(self) -> bool:
        """Whether it has ended by itself, or is about to: its answers end a moment before it does."""
        if self._ended.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LEAVE_S)
        return not self.alive

    def end(self) -> str:
        """End the process at once, and say how it ended."""
        own = self._gone() and not self._told
        self._told = True
        if self.alive:
            self._process.kill()
        # However long it takes: one that held much memory, or stands halted on a crowded machine, goes late.
        code = self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        ended = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        if own:
            _log.warning("the measuring process ended by itself: %s\n%s", ended, "".join(self._last_words))
        return ended
