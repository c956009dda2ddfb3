"""The most that a call allocates at once, to the byte, by the means that its device has."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

EVENTS, ALLOCATOR, COUNTER = "allocation events", "allocator peak", "dispatch counter"


def peak_bytes(call: Callable[[], object], device: str) -> tuple[int, str]:
    """Give the most bytes that a call held at once beyond what was there before, results included, and the method.

    Runs once more than is timed, and is not timed itself. Two profilers in two threads of one process bring it down:
    only the worker's main thread calls this.
    """
    kind = torch.device(device).type
    if kind == "cuda":
        return _by_allocator(call, device), ALLOCATOR
    if kind == "cpu":
        return _by_events(call), EVENTS
    with StorageCounter() as counter:
        kept = call()
    del kept
    return counter.most, COUNTER


def _by_events(call: Callable[[], object]) -> int:
    """Follow torch's own allocation events, which see inside kernels."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        kept = call()
    now = most = 0
    results = profile.profiler
    assert results is not None and results.kineto_results is not None  # there is one once it has run
    for event in results.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()  # type: ignore[attr-defined]  # missing in torch's stub
            most = max(most, now)
    del kept
    return most


def _by_allocator(call: Callable[[], object], device: str) -> int:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    base = torch.cuda.memory_allocated(device)
    kept = call()
    torch.cuda.synchronize(device)
    del kept
    return torch.cuda.max_memory_allocated(device) - base


class StorageCounter(TorchDispatchMode):
    """Count the bytes of storages that operations give; blind to what a kernel takes and returns inside."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and count what is new in its results."""
        given = {_place(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and _place(leaf) not in given | self._known:
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        place, size = storage._cdata, storage.nbytes()
        self._known.add(place)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._forget, place, size)

    def _forget(self, place: int, size: int) -> None:
        self._known.discard(place)
        self.now -= size


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
