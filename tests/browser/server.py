"""Start the app, or a small test app, as a person does: ``python -m streamlit run``."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 60.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def free_port() -> int:
    """Give a port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> Callable[[], object] | None:
    """Give what a server runs before it starts so that it ends when the tests are killed; Linux alone can do this."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)  # loaded here: after the fork nothing may be
    return lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Server:
    """Run one script under Streamlit on a port of its own until ``stop``.

    Args:
        script: Path from the repository's root.
        env: Environment variables on top of this process's own.

    Raises:
        RuntimeError: If it does not answer within ``START_LIMIT_S`` seconds; the message ends with its log.
    """

    def __init__(self, script: str = "app.py", env: Mapping[str, str] | None = None):
        if not (ROOT / script).is_file():
            raise ValueError(f"script must be a file of the repository, got {script!r}")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        handle, name = tempfile.mkstemp(prefix="attnviz-server-", suffix=".log")
        self._log = Path(name)
        self._said: str | None = None
        command = [sys.executable, "-m", "streamlit", "run", script, "--server.headless", "true"]
        # No file watcher: an edit while the tests run would rerun the pages under their feet.
        command += ["--server.port", str(self.port), "--server.fileWatcherType", "none"]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent(),
        )
        os.close(handle)
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                time.sleep(0.05)
        log = self.log
        self.stop()
        raise RuntimeError(f"the server did not answer on port {self.port}; its log:\n{log}")

    @property
    def log(self) -> str:
        """Everything the server has printed so far, also once it was stopped."""
        if self._said is not None:
            return self._said
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def stop(self) -> None:
        """End the server and everything it started, and remove its log file."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))
            self._process.wait(timeout=5)
        self._said = self.log
        self._log.unlink(missing_ok=True)

    def _signal(self, number: int) -> None:
        try:
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, number)
            else:
                self._process.terminate()
        except ProcessLookupError:
            return  # it has ended already, which is what was asked for
