"""Peak memory of a call, to the byte, from torch's allocation events."""

from collections.abc import Callable

import torch


def peak_bytes(call: Callable[[], object]) -> int:
    """Give the most bytes that were allocated at once while ``call`` ran, beyond what was there before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        kept = call()
    now = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    del kept
    return most
