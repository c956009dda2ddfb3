"""The benchmark page's settings: what is compared, at which shape, and how far a sweep goes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, cast

from attnviz import config
from attnviz.benchmark import Request
from attnviz.benchmark.pairs import DEFAULTS, PAIRS, passed
from attnviz.benchmark.request import DECODE
from attnviz.device import present
from attnviz.knobs import Choice, Integer, Knob, Several
from attnviz.reading import Reader, Settled
from attnviz.text import Text, same

MOST_PAIRS, MOST_DTYPES = 8, 4
SHORTEST = 128
STOPS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)

SHOWS = {"quick": Text("At this shape", "当前形状"), "sweep": Text("Over lengths", "随长度变化")}
WHATS = {"core": Text("attention alone", "仅注意力"), "layer": Text("with its projections", "含投影")}
MODES = {
    "forward": Text("forward", "前向"),
    "forward+backward": Text("forward and backward", "前向和反向"),
    DECODE: Text("decode step", "解码一步"),
}

KNOBS: Mapping[str, Knob] = MappingProxyType(
    {
        knob.name: knob
        for knob in (
            Choice("show", Text("Shown", "显示"), "quick", options=SHOWS),
            Several(
                "pairs",
                Text("Compared", "比较对象"),
                ",".join(DEFAULTS),
                Text(
                    "A variant, and how it is computed. Ratios are to the first.",
                    "变体及其计算方式；比值以第一个为基准。",
                ),
                options={key: same(pair.name) for key, pair in PAIRS.items()},
                most=MOST_PAIRS,
            ),
            Integer("length", Text("Length", "长度"), 1024, unit=same("tokens"), low=1, high=131_072,
                    slider_high=16_384, stops=STOPS),
            Integer("heads", Text("Heads", "头数"), 8, low=1, high=128, slider_high=32),
            Integer("kv_heads", Text("KV heads", "KV 头数"), 2,
                    Text("Heads of keys and values in GQA; they divide the heads. GQA 8/2: 8 heads share 2.",
                         "GQA 中键和值的头数，须整除头数。GQA 8/2 表示 8 个头共用 2 个。"),
                    low=1, high=128),
            Integer("d_k", same("d_k (head_dim)"), 64, low=1, high=512, slider_high=256,
                    stops=(8, 16, 32, 64, 128, 256)),
            Integer("batch", Text("Batch", "批大小"), 1, low=1, high=256, slider_high=16),
            Integer("longest", Text("Longest length", "最长长度"), 4096, unit=same("tokens"), low=SHORTEST,
                    high=131_072, stops=tuple(stop for stop in STOPS if stop >= SHORTEST)),
            Choice("mask", Text("Mask", "掩码"), "full",
                   options={"full": Text("none", "无"), "causal": Text("causal", "因果")}),
            Choice("what", Text("Measured", "测量内容"), "core", options=WHATS),
            Choice("mode", Text("Pass", "计算方向"), "forward",
                   Text("Decode step: one new token with its projections, behind a cache of this length; it sees all "
                        "of it, so no mask is needed.",
                        "解码一步：一个新 token（含投影），前面是该长度的缓存；它能看到全部缓存，无需掩码。"),
                   options=MODES),
            Choice("dtype", Text("Data type", "数据类型"), "float32",
                   options={name: same(name) for name in config.DTYPES}),
            Several("dtypes", Text("Data types of the sweep", "随长度变化时的数据类型"), "float32",
                    options={name: same(name) for name in config.DTYPES}, most=MOST_DTYPES),
            Integer("threads", Text("Threads", "线程数"), 1,
                    Text("More than one is faster and less steady: one busy neighbour delays all of them.",
                         "多线程更快，但更不稳定：一个繁忙的邻居会拖慢所有线程。"),
                    low=1, high=max(1, os.cpu_count() or 1)),
            Choice("device", Text("Device", "设备"), "cpu", options={"cpu": same("CPU")}),
        )
    }
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """Hold every setting of the page, checked; names as in ``KNOBS``."""

    show: str
    pairs: str
    length: int
    heads: int
    kv_heads: int
    d_k: int
    batch: int
    longest: int
    mask: str
    what: str
    mode: str
    dtype: str
    dtypes: str
    threads: int
    device: str

    @property
    def names(self) -> tuple[str, ...]:
        """Give the keys of what is compared."""
        return tuple(self.pairs.split(","))

    @property
    def shares(self) -> bool:
        """Say whether the number of KV heads counts: something compared lets them be chosen."""
        return any(PAIRS[name].shares for name in self.names)

    @property
    def decodes(self) -> bool:
        """Say whether it is one token's step behind a cache."""
        return self.mode == DECODE

    @property
    def lengths(self) -> tuple[int, ...]:
        """Give the lengths of a sweep: powers of two, and the longest."""
        doubled = [SHORTEST << step for step in range(self.longest.bit_length()) if SHORTEST << step < self.longest]
        return (*doubled, self.longest)

    def request(self, length: int, dtype: str, **settings: Any) -> Request:
        """Give the request at one length and dtype."""
        what, own = passed(self.mode, length, what=self.what, mask=self.mask)
        sizes = (self.heads, self.d_k, what, self.kv_heads)
        entrants = tuple(PAIRS[name].contestant(*sizes) for name in self.names)
        return Request(
            entrants, batch=self.batch, dtype=dtype, threads=self.threads, device=self.device, **own, **settings
        )

    def quick(self) -> Request:
        """Give the request at this very shape."""
        return self.request(self.length, self.dtype, budget_s=2.0)

    def sweep(self) -> tuple[Request, ...]:
        """Give the requests of a sweep, all lengths of a dtype one after the other."""
        return tuple(
            self.request(length, dtype, budget_s=1.0) for dtype in self.dtypes.split(",") for length in self.lengths
        )


def knobs(devices: tuple[str, ...] = ("cpu",)) -> dict[str, Knob]:
    """Give the knobs with the devices that are there."""
    named = {name: same(name.upper() if ":" not in name else name) for name in devices}
    device = KNOBS["device"]
    assert isinstance(device, Choice)
    return {**KNOBS, "device": replace(device, default=devices[0], options=named)}


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, frozenset(KNOBS))
    for name, knob in knobs(present()).items():
        # The heads are read before.
        reader.read(name, knob, config.quarter(_heads(reader)) if name == "kv_heads" else None)
    shares = any(PAIRS[name].shares for name in str(reader.values["pairs"]).split(","))
    # Where nothing shares, what it follows to is kept for the way back, and nobody needs to hear of it.
    reader.divide_heads(_heads(reader), note=shares)
    return reader.settled(View(**{name: reader.values[name] for name in KNOBS}))  # type: ignore[arg-type]


def _heads(reader: Reader) -> int:
    return cast("int", reader.values["heads"])
