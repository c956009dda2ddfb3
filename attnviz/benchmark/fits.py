"""What measured curves say: how they grow, where they cross, and that in one sentence."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from attnviz import units
from attnviz.text import Text, same

# Below so many tokens it is the launching of calls that is timed.
_FROM = 1024
_FEW = 3
_MOST_LOG = 700.0

_FASTEST = Text(
    "At {length} tokens {first} is fastest ({time}), {ratio} faster than {last}.",
    "在 {length} 个 token 处，{first} 最快（{time}），比 {last} 快 {ratio}。",
)
_ONLY = Text("At {length} tokens {first} takes {time}.", "在 {length} 个 token 处，{first} 需要 {time}。")
_GROWS = Text("Time grows as {list}.", "时间按 {list} 增长。")
_NOISY = Text(
    "The machine was busy and these times are noisy: take the order as a hint.",
    "测量时机器繁忙，这些时间波动较大：先后次序仅供参考。",
)
_CROSS = Text("{one} overtakes {other} at about {length} tokens.", "{one} 约在 {length} 个 token 处超过 {other}。")

Series = Mapping[int, float]


class Crossing(NamedTuple):
    """Hold where a curve falls below another: the two names, the length and the height."""

    faster: str
    slower: str
    length: float
    value: float


class Power(NamedTuple):
    """Hold a power of the length, ``exp(start) * length ** exponent``."""

    exponent: float
    start: float

    def at(self, length: int | float) -> float:
        """Give its value at a length, not beyond what a float holds."""
        return math.exp(min(_MOST_LOG, self.start + self.exponent * math.log(length)))


def power(series: Series) -> Power | None:
    """Give the power of the length that a curve follows, by least squares of the logarithms from 1,024 tokens on.

    None with fewer than three lengths that are as long: below, it is the launching of calls that would be fitted.
    """
    used = sorted(length for length, value in series.items() if value > 0 and length >= _FROM)
    if len(used) < _FEW:
        return None
    xs, ys = [math.log(length) for length in used], [math.log(series[length]) for length in used]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    slope /= sum((x - mean_x) ** 2 for x in xs)
    return Power(slope, mean_y - slope * mean_x)


def exponent(series: Series) -> float | None:
    """Give the exponent of ``power``, or None."""
    found = power(series)
    return None if found is None else found.exponent


def crossings(curves: Mapping[str, Series]) -> list[Crossing]:
    """Give where one curve falls below another for good, between two lengths on straight lines of the logarithms."""
    found = []
    names = list(curves)
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            last = _last_change(curves[one], curves[other])
            if last is not None:
                length, value, falls = last
                found.append(Crossing(*((one, other) if falls else (other, one)), length, value))
    return found


def _last_change(one: Series, other: Series) -> tuple[float, float, bool] | None:
    """Give the last place where the order of two curves changes, and whether the first one is the lower from there."""
    shared = sorted(length for length in one.keys() & other.keys() if one[length] > 0 and other[length] > 0)
    gaps = [math.log(one[length] / other[length]) for length in shared]
    for index in range(len(shared) - 1, 0, -1):
        before, after = gaps[index - 1], gaps[index]
        if before * after < 0:
            share = before / (before - after)
            left, right = shared[index - 1], shared[index]
            length = math.exp(math.log(left) + share * (math.log(right) - math.log(left)))
            value = math.exp(math.log(one[left]) + share * (math.log(one[right]) - math.log(one[left])))
            return length, value, after < 0
    return None


def finding(curves: Mapping[str, Series], noisy: Collection[tuple[str, int]] = ()) -> Text | None:
    """Say what was found: who is fastest at the longest length that all have, how each grows, who overtakes whom.

    Args:
        curves: Times by length.
        noisy: Names and lengths of the points whose samples spread widely.
    """
    held = {name: series for name, series in curves.items() if series}
    if not held:
        return None
    shared = set.intersection(*(set(series) for series in held.values())) or {max(map(max, held.values()))}
    length = max(shared)
    there = sorted((series[length], name) for name, series in held.items() if length in series)
    (best, first), (worst, last) = there[0], there[-1]
    fields = {"length": units.count(length), "first": first, "time": units.seconds(best)}
    said = [
        _ONLY.fill(**fields) if first == last else _FASTEST.fill(**fields, last=last, ratio=units.ratio(worst / best))
    ]
    powers = [(name, found) for name, series in held.items() if (found := exponent(series)) is not None]
    if powers:
        listed = ", ".join(f"L^{found:.2f} ({name})" for name, found in powers)
        said.append(_GROWS.fill(list=same(listed)))
    if {(first, length), (last, length)} & set(noisy):
        said.insert(1, _NOISY)
    said += [_CROSS.fill(one=one, other=other, length=units.count(round(at))) for one, other, at, _ in _lasting(held)]
    return Text(" ".join(text.en for text in said), "".join(text.zh for text in said))


def _lasting(curves: Mapping[str, Series]) -> Sequence[Crossing]:
    """Give the crossings that a sentence can hold: two of them, the shortest lengths first."""
    return sorted(crossings(curves), key=lambda crossing: crossing.length)[:2]
