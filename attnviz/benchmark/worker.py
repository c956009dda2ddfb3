"""The measuring process: reads requests as lines of JSON, answers in lines of JSON, and never outlives its parent.

Its main thread computes; a second one only reads, so that a cancel is heard and the end of the parent noticed while a
long call runs.
"""

import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

# Snapshots that come faster than this help no one.
_EVERY_S = 0.05
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve requests until the parent goes."""
    answers = _take_stdout()
    _die_with_parent()
    _be_the_one_to_go()
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    cancelled: set[int] = set()
    threading.Thread(target=_listen, args=(inbox, cancelled), daemon=True).start()
    # Only now: a parent that goes away meanwhile is noticed already.
    from attnviz.benchmark import serve

    serve.prepare()
    _say(answers, {"ready": True})
    while True:
        asked = inbox.get()
        _serve(serve, asked, answers, cancelled)


def _serve(serve: Any, asked: dict[str, Any], answers: TextIO, cancelled: set[int]) -> None:
    number, last = asked["id"], 0.0
    for step in serve.answer(asked):
        if number in cancelled:
            _say(answers, {"id": number, "cancelled": True})
            return
        if step.get("final") or time.monotonic() - last > _EVERY_S:
            last = time.monotonic()
            _say(answers, {"id": number, **step})


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _listen(inbox: "queue.SimpleQueue[dict[str, Any]]", cancelled: set[int]) -> None:
    """Pass on what the parent writes; when it writes no more, it has gone, and so does this process, at once."""
    for line in sys.stdin:
        message = json.loads(line)
        if "cancel" in message:
            cancelled.add(message["cancel"])
        else:
            inbox.put(message)
    os._exit(0)


def _take_stdout() -> TextIO:
    """Give the answers' own stream; whatever libraries print goes to stderr."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def _die_with_parent() -> None:
    """Ask Linux to end this process when the parent's thread ends: also where a copy of the pipe is still open."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _be_the_one_to_go() -> None:
    """Tell Linux that if memory runs out for all, this process is the one to end, not the app."""
    score = Path("/proc/self/oom_score_adj")
    if score.exists():
        score.write_text("1000")


if __name__ == "__main__":
    main()
