"""What measuring gives: a measurement with a point for each contestant, or a failure with its reason."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from attnviz.benchmark.speed import Speed
from attnviz.text import Text

# A spread of the middle half above this share of the median is noise that a reader must see.
NOISY = 0.3
# Below so many samples quartiles say nothing.
FEW = 4

REASONS: Mapping[str, Text] = MappingProxyType(
    {
        "crashed": Text("The measuring process ended unexpectedly ({detail}).", "测量进程意外结束（{detail}）。"),
        "time": Text(
            "Stopped: it took longer than {detail}.",
            "已停止：耗时超过 {detail}。",
        ),
        "memory": Text(
            "Out of memory: an allocation was refused ({detail}).",
            "内存不足：一次分配被拒绝（{detail}）。",
        ),
        "too_large": Text("Not run: {detail}.", "未运行：{detail}。"),
        "no_backward": Text(
            "Not run: its tiles are this app's own and have no backward pass; take {detail}.",
            "未运行：flash 由本应用自己的分块实现，没有反向传播；请改选 {detail}。",
        ),
        "cancelled": Text("Cancelled.", "已取消。"),
        "abandoned": Text("Ended, because nobody was waiting for it any more.", "已无人等待结果，测量就此结束。"),
        "refused": Text("Refused: {detail}", "已拒绝：{detail}"),
        "error": Text("It could not be computed: {detail}", "无法计算：{detail}"),
        "closed": Text("The measuring process was closed.", "测量进程已关闭。"),
    }
)


@dataclass(frozen=True)
class Failure:
    """Say why there is no result.

    Args:
        reason: One of ``REASONS``.
        detail: What the sentence is completed with.
        detail_zh: The same in Chinese, where it is words; empty means as ``detail``.
        partial: What was measured before, or None.
    """

    reason: str
    detail: str = ""
    detail_zh: str = ""
    partial: "Measurement | None" = None

    @property
    def text(self) -> Text:
        """Give the reason as one sentence."""
        return REASONS[self.reason].fill(detail=Text(self.detail, self.detail_zh or self.detail))

    def to_json(self) -> dict[str, Any]:
        """Give the failure as plain values, without what was measured before."""
        return {"reason": self.reason, "detail": self.detail, "detail_zh": self.detail_zh}


@dataclass(frozen=True)
class Latency:
    """Hold the seconds of one call: median, quartiles, minimum, and how many samples they come from."""

    median: float
    lower: float
    upper: float
    minimum: float
    runs: int

    @property
    def noisy(self) -> bool:
        """Whether the middle half spreads over more than 0.3 of the median."""
        return self.upper - self.lower > NOISY * self.median

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Latency":
        """Summarise samples, at least one."""
        lower, _, upper = statistics.quantiles(samples, n=4) if len(samples) >= FEW else (min(samples), 0, max(samples))
        return cls(statistics.median(samples), lower, upper, min(samples), len(samples))


@dataclass(frozen=True)
class Point:
    """Hold what is known of one contestant.

    Args:
        label: Its name.
        latency_s: Its time, None while or where there is none.
        ratio: Median of its ratios to the first contestant, round by round.
        peak_bytes: The most it allocates at once, results included and inputs left out.
        memory_method: How that was measured: ``allocation events``, ``allocator peak`` or ``dispatch counter``.
        kernel: What ran, for people.
        overhead_s: For a decode step: the same step over one key, which is what launching it takes.
        system_share: Share of the time in which the system worked for it, mostly to hand it fresh pages of memory.
        failure: Why there is no time, or None.
    """

    label: str
    latency_s: Latency | None = None
    ratio: float | None = None
    peak_bytes: int | None = None
    memory_method: str | None = None
    kernel: str = ""
    overhead_s: float | None = None
    system_share: float | None = None
    failure: Failure | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the point as plain values."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain["latency_s"] = None if self.latency_s is None else vars(self.latency_s)
        plain["failure"] = None if self.failure is None else self.failure.to_json()
        return plain

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Point":
        """Read what ``to_json`` gave."""
        latency, failure = given["latency_s"], given["failure"]
        return cls(
            **{
                **given,
                "latency_s": None if latency is None else Latency(**latency),
                "failure": None if failure is None else Failure(**failure),
            }
        )


@dataclass(frozen=True)
class Measurement:
    """Hold a request's points, in the order of its contestants.

    Args:
        points: A point for each contestant.
        complete: Whether nothing more will come.
        speed: What a ``Probe`` found; it has no points.
    """

    points: tuple[Point, ...]
    complete: bool = True
    speed: Speed | None = None

    @property
    def latency_s(self) -> Latency | None:
        """Time of the first contestant."""
        return self.points[0].latency_s

    @property
    def peak_bytes(self) -> int | None:
        """Peak of the first contestant."""
        return self.points[0].peak_bytes

    def to_json(self) -> dict[str, Any]:
        """Give the measurement as plain values."""
        return {"points": [point.to_json() for point in self.points], "complete": self.complete}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Measurement":
        """Read what ``to_json`` gave."""
        return cls(tuple(Point.from_json(point) for point in given["points"]), bool(given["complete"]))


Result = Measurement | Failure
