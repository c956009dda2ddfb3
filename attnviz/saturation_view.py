"""The saturation page's settings, what they mean, and what is computed for them; kept for the next slider move."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, cast

import numpy as np
import torch

from attnviz import saturation
from attnviz.knobs import Choice, Integer, Knob, Number
from attnviz.reading import Reader, Settled
from attnviz.saturation import SCALINGS, Curves, Source, correlated, theory
from attnviz.settings import D_K_STOPS
from attnviz.text import Text, same

# Of the seeds 0 to 7 the one whose first row has a largest weight nearest to the mean one at d_k from 4 to 1024: it is
# no exception.
TYPICAL_SEED = 4
SAMPLES = ("128", "512", "2048")
# Queries × keys of a sweep: half a second of one core, the longest that anyone should wait for a slider.
MOST_PAIRS = 128 * 1024
SHOWS: Mapping[str, Text] = MappingProxyType(
    {
        "collapse": Text("Collapse", "坍缩"),
        "learning": Text("Gradients", "梯度"),
        "scores": Text("Score distributions", "分数分布"),
        "limits": Text("Limits of the data type", "数据类型的极限"),
        "training": Text("Training", "训练"),
    }
)
_KEYS_STOPS = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024)

_FEWER = Text(
    "samples was {got}, which takes too long with {keys} keys; using {used}.",
    "samples 原为 {got}，键有 {keys} 个时太慢，改用 {used}。",
)
_QUERY = Text("Of each entry of a query.", "查询每个分量的方差。")
_KEY = Text("Of each entry of a key.", "键每个分量的方差。")


def _variance(name: str, label: Text, help: Text) -> Number:
    return Number(name, label, 1.0, help, low=0.0, high=100_000.0, slider_high=16.0, step=0.25)


KNOBS: Mapping[str, Knob] = MappingProxyType(
    {
        knob.name: knob
        for knob in (
            Integer(
                "d_k",
                same("d_k (head_dim)"),
                64,
                Text("Width of a query and a key.", "查询与键的维度。"),
                low=1,
                high=1024,
                stops=D_K_STOPS,
            ),
            Integer(
                "keys",
                Text("Keys", "键的个数"),
                64,
                Text("How many keys share a row of weights.", "一行权重由多少个键分享。"),
                low=1,
                high=1024,
                stops=_KEYS_STOPS,
            ),
            Number(
                "temperature",
                Text("Temperature", "温度"),
                1.0,
                Text("The scores are divided by it before softmax.", "softmax 之前分数除以它。"),
                low=0.01,
                high=1000.0,
                slider_high=8.0,
                step=0.05,
            ),
            Number(
                "power",
                Text("Own power p", "自定幂次 p"),
                0.25,
                Text(
                    "The custom scaling divides by d_k to this power: 0 is none, ½ is the usual one, 1 is 1/d_k.",
                    "自定义缩放除以 d_k 的 p 次幂：0 是不缩放，½ 是通常的做法，1 是 1/d_k。",
                ),
                low=0.0,
                high=2.0,
                step=0.05,
            ),
            _variance("variance_q", Text("Variance of q", "q 的方差"), _QUERY),
            _variance("variance_k", Text("Variance of k", "k 的方差"), _KEY),
            Number(
                "correlation",
                Text("Correlation of q and k", "q 与 k 的相关系数"),
                0.0,
                Text(
                    "Every query has one key of its own whose entries are correlated with it, as training makes them; "
                    "all other keys are strangers to it.",
                    "每个查询有一个属于自己的键，两者的分量按此系数相关，训练之后往往如此；其余的键与它无关。",
                ),
                low=-1.0,
                high=1.0,
                step=0.05,
            ),
            Choice(
                "dtype",
                Text("Data type", "数据类型"),
                "float32",
                Text("What scores and weights are computed in.", "分数与权重以此类型计算。"),
                options={name: same(name) for name in ("float32", "bfloat16", "float16")},
            ),
            Choice(
                "samples",
                Text("Queries measured", "测量的查询数"),
                SAMPLES[0],
                Text("More of them make the dots steadier and the slider slower.", "越多，点越稳定，滑块响应也越慢。"),
                options={name: same(f"{int(name):,}") for name in SAMPLES},
            ),
            Integer("seed", Text("Seed", "随机种子"), TYPICAL_SEED, low=0, high=2**31 - 16, slider_high=31),
            Number(
                "rate",
                Text("Learning rate", "学习率"),
                1.0,
                Text("Step size of plain gradient descent.", "普通梯度下降的步长。"),
                low=0.01,
                high=100.0,
                slider_high=5.0,
                step=0.05,
            ),
            Choice("show", Text("Shown below", "下方显示"), "collapse", options=SHOWS),
        )
    }
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """Hold every setting of the page, checked; names as in ``KNOBS``."""

    d_k: int
    keys: int
    temperature: float
    power: float
    variance_q: float
    variance_k: float
    correlation: float
    dtype: str
    samples: str
    seed: int
    rate: float
    show: str


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, frozenset(KNOBS))
    for name, knob in KNOBS.items():
        reader.read(name, knob)
    keys = cast("int", reader.values["keys"])
    fitting = [samples for samples in SAMPLES if int(samples) * keys <= MOST_PAIRS]
    if reader.values["samples"] not in fitting:
        reader.follow("samples", fitting[-1], _FEWER, keys=f"{keys:,}")
    return reader.settled(View(**{name: reader.values[name] for name in KNOBS}))  # type: ignore[arg-type]


def source(view: View) -> Source:
    """Give where the view's queries and keys come from; a page of trained heads would give another one."""
    groups, queries = saturation.groups_for(int(view.samples), view.keys)
    return saturation.normal_source(
        groups=groups, queries=queries, keys=view.keys, variance_q=view.variance_q, variance_k=view.variance_k,
        correlation=view.correlation, seed=view.seed,
    )  # fmt: skip


# What each choice of ``show`` measures, beside the shares of rows and weights that left the range.
_LEFT = ("overflowed", "zeros")
_MEASURED: Mapping[str, tuple[str, ...]] = {
    "collapse": ("spread", "top", "effective"),
    "learning": ("gradient", "gradient_mean", "jacobian", "entropy"),
    "limits": ("depth", "depth_most", "largest"),
}


# What the sweep depends on, which the d_k that is looked at is not.
class _Swept(NamedTuple):
    keys: int
    temperature: float
    power: float
    variance_q: float
    variance_k: float
    correlation: float
    dtype: str
    samples: str
    seed: int
    show: str


def curves(view: View) -> Curves:
    """Measure what the view shows of every scaling at every d_k of the sweep; dragging d_k itself finds it ready."""
    return _curves(_Swept(*(getattr(view, name) for name in _Swept._fields)))


@lru_cache(maxsize=32)
def _curves(swept: _Swept) -> Curves:
    view = settle(swept._asdict()).view
    dtype = getattr(torch, view.dtype)
    fields = (*_MEASURED.get(view.show, ()), *_LEFT)
    return saturation.sweep(
        source(view), dtype=dtype, power=view.power, temperature=view.temperature, seed=view.seed, fields=fields
    )


def spread_theory(view: View, scaling: str, d_ks: np.ndarray) -> np.ndarray | None:
    """Give the predicted standard deviation of the scores, None where there is no formula."""
    return theory.spread(
        SCALINGS[scaling], [int(d_k) for d_k in d_ks], keys=view.keys, variance_q=view.variance_q,
        variance_k=view.variance_k, correlation=view.correlation, power=view.power, temperature=view.temperature,
    )  # fmt: skip


def expected(view: View, scaling: str, field: str) -> np.ndarray | None:
    """Give the theory line of one field of ``Point`` along the sweep, or None where there is none.

    The spread has a formula. The rest is what independent normal scores of that spread give. Where each query has a
    key of its own, and for cosines, which are not normal in few dimensions, rows are drawn from the distribution that
    the scores then have.
    """
    d_ks, chosen = np.array(saturation.SWEEP), SCALINGS[scaling]
    spread = spread_theory(view, scaling, d_ks)
    if field == "spread" and spread is not None:
        return spread
    if view.correlation != 0.0 or chosen.normalize:
        setting = correlated.Setting(*(getattr(view, name) for name in correlated.Setting._fields))
        return correlated.of_own_key(scaling, setting, field)
    assert spread is not None
    normal = theory.of_normal_scores(spread, view.keys)
    if field != "gradient":
        return normal[field]
    # The gradient at the scores reaches the query through factor × key, whose length is √(d_k σ_k²).
    factor = np.array([chosen.factor(int(d_k), view.keys, view.power) for d_k in d_ks]) / view.temperature
    return normal["push"] * factor * np.sqrt(d_ks * view.variance_k)


class Row(NamedTuple):
    """Hold one query's row with one scaling: float ``[keys]`` weights, NaN where it left the range."""

    weights: np.ndarray
    top: float
    effective: float


def rows(view: View) -> dict[str, Row]:
    """Give the weights of the first query with each scaling, at the view's own d_k."""
    query, key = (tensor.to(getattr(torch, view.dtype)) for tensor in source(view)(view.d_k))
    found = {}
    for name, scaling in SCALINGS.items():
        scores = saturation.scaled_scores(
            query[:1, :1], key[:1], scaling, power=view.power, temperature=view.temperature
        )
        weights = torch.softmax(scores, -1).float()[0, 0]
        effective = float(torch.special.entr(weights).sum().exp())
        found[name] = Row(weights.numpy(), float(weights.max()), effective)
    return found


def scores(view: View) -> dict[str, np.ndarray]:
    """Give all scores of every scaling at the view's own d_k, and the raw q·k under ``raw``; flat float arrays."""
    query, key = (tensor.to(getattr(torch, view.dtype)) for tensor in source(view)(view.d_k))
    every = {
        name: saturation.scaled_scores(query, key, scaling, power=view.power, temperature=view.temperature)
        for name, scaling in SCALINGS.items()
    }
    return {name: tensor.float().flatten().numpy() for name, tensor in (("raw", query @ key.mT), *every.items())}
