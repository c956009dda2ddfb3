"""The most that a call allocates at once, to the byte, by the means that its device has."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing here is compiled, and to be kept from it takes as long as to count.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation and count what is new in its results."""
        given = {_place(leaf) for leaf in tensors((args, kwargs))}
        result = self.run(func, args, kwargs or {})
        for leaf in tensors(result):
            place = _place(leaf)
            if place not in given and place not in self._known:
                self._count(place, leaf.untyped_storage())
        return result

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Give an operation's result."""
        return func(*args, **kwargs)

    def _count(self, place: int, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        self._known[place] = weakref.ref(storage, lambda _: self._forget(place, size))
        self.now += size
        self.most = max(self.most, self.now)

    def _forget(self, place: int, size: int) -> None:
        self._known.pop(place, None)
        self.now -= size


def tensors(of: Any) -> Iterator[torch.Tensor]:
    """Give the tensors among an operation's arguments or results."""
    if isinstance(of, torch.Tensor):
        yield of
    elif isinstance(of, (tuple, list)):
        for one in of:
            yield from tensors(one)
    elif isinstance(of, dict):
        yield from tensors(list(of.values()))


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
