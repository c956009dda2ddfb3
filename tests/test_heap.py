"""Freed memory that is kept for the next tensor."""

import platform
import subprocess
import sys

import pytest

from attnviz import heap

# Counts the page faults of 20 computations that hold 40 tensors of 4 MiB at a time, in a thread of their own.
COUNT = """
import resource, sys, threading
from attnviz import heap
if sys.argv[1] == "keep":
    assert heap.keep()
import torch
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    for _ in range(5):
        [torch.ones(1024, 1024) for _ in range(40)]
    before = faults()
    for _ in range(20):
        [torch.ones(1024, 1024) for _ in range(40)]
    print(faults() - before)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def counted(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True, timeout=120)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_a_kept_block_is_not_mapped_again():
    assert counted("keep") < 0.2 * counted("leave")


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(heap.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: pytest.fail("asked the library"))
    assert heap.keep() is False
