"""The saturation view as a script of plain PyTorch: the same queries, keys and weights, and what is shown of them."""

from collections.abc import Mapping
from types import MappingProxyType

from attnviz.saturation.sources import MOST_D_K, groups_for

_VECTORS = '''\
import math

import torch

d_k, keys, temperature, seed = {d_k}, {keys}, {temperature!r}, {seed}
generator = torch.Generator().manual_seed(seed)
drawn = torch.randn({groups}, {queries} + keys, {most}, generator=generator)[..., :d_k]
noise, k = drawn[:, :{queries}], drawn[:, {queries}:]
{q}
q, k = (q * {variance_q!r} ** 0.5).to(torch.{dtype}), (k * {variance_k!r} ** 0.5).to(torch.{dtype})


def unit(vectors):
    """Bring vectors to length 1."""
    length = torch.linalg.vector_norm(vectors.float(), dim=-1, keepdim=True)
    return vectors / length.clamp_min(torch.finfo(vectors.dtype).tiny).to(vectors.dtype)


gain = math.log2(keys * keys - keys) if keys > 1 else 1.0
{leaf}scores = {{
    "1/sqrt(d_k)": q @ k.mT * (d_k**-0.5 / temperature),
    "none": q @ k.mT * (1 / temperature),
    "1/d_k": q @ k.mT * (1 / d_k / temperature),
    "d_k**-p, p = {power!r}": q @ k.mT * (d_k**-{power!r} / temperature),
    "QK-norm": unit(q) @ unit(k).mT * (gain / temperature),
}}
weights = {{name: torch.softmax(score, -1) for name, score in scores.items()}}
'''
_ROWS = """\
measured = {}
for name, score in scores.items():
    kept = score.isfinite().all(-1)  # the other rows overflowed
    if not kept.any():
        print(f"{name:>18}: every row overflowed")
        continue
    score, w = score[kept].detach().float(), weights[name][kept].detach().float()
"""
_PRINT = """\
    print(f"{name:>18}: " + ", ".join(f"{field} {value:.4g}" for field, value in measured[name].items()))
"""
_COLLAPSE = """\
    measured[name] = {
        "spread": score.std(correction=0),
        "top": w.amax(-1).mean(),
        "effective": torch.special.entr(w).sum(-1).exp().mean(),
    }
"""
_LEARNING = """\
    # Each weight receives an independent normal gradient; autograd carries it through softmax to the query.
    arriving = torch.randn(weights[name].shape, generator=torch.Generator().manual_seed(seed + 1)).to(q.dtype)
    (reached,) = torch.autograd.grad(weights[name], q, arriving)
    lengths = reached[kept].float().norm(dim=-1)
    # Frobenius norm of diag(w) - w w^T: w_i (1 - w_i) on the diagonal, w_i w_j beside it.
    square = w.square()
    beside = square * (square.sum(-1, keepdim=True) - square)
    jacobian = ((w * (1 - w)).square().sum(-1) + beside.sum(-1)).sqrt()
    measured[name] = {
        "gradient": lengths.median(),
        "gradient_mean": lengths.mean(),
        "jacobian": jacobian.mean(),
        "entropy": torch.special.entr(w).sum(-1).mean(),
    }
"""
_LIMITS = """\
    depth = score.logsumexp(-1, keepdim=True) - score  # -ln of each weight before it is rounded
    measured[name] = {
        "depth": depth.median(),
        "depth_most": depth.max(),
        "largest": score.abs().max(),
        "overflowed": 1 - kept.float().mean(),
        "zeros": (w == 0).float().mean(),
    }
"""
_SCORES = """\
measured, steps = {}, {}
for name, score in {"q k^T": q @ k.mT, **scores}.items():
    finite = score[score.isfinite()].float()
    if finite.numel():
        measured[name] = {"mean": finite.mean(), "standard deviation": finite.std(correction=0)}
        steps[name] = torch.histogram(finite, 80, density=True)  # heights and edges of the steps
"""
# What each choice of the page shows, as the lines that measure it; those of a sweep at the one d_k.
_SHOWN: Mapping[str, str] = MappingProxyType(
    {
        "collapse": _ROWS + _COLLAPSE + _PRINT,
        "learning": _ROWS + _LEARNING + _PRINT,
        "limits": _ROWS + _LIMITS + _PRINT,
        "scores": _SCORES + _PRINT.replace("    print", "        print"),
    }
)


def saturation_snippet(
    *,
    d_k: int,
    keys: int,
    samples: int,
    variance_q: float,
    variance_k: float,
    correlation: float,
    temperature: float,
    power: float,
    dtype: str,
    seed: int,
    show: str = "collapse",
) -> str:
    """Give a script that measures every scaling at one d_k.

    It leaves ``weights`` of every row, of which the page draws the first, and ``measured``, what it shows below them.

    Args:
        d_k: Width of a query and a key.
        keys: Number of keys.
        samples: Number of queries.
        variance_q: Variance of a query's entries.
        variance_k: Variance of a key's entries.
        correlation: Of each query with the key that is its own.
        temperature: The scores are divided by it.
        power: Exponent of the custom scaling.
        dtype: What scores and weights are computed in.
        seed: Seed.
        show: What is measured: ``collapse``, ``learning``, ``limits`` or ``scores``.
    """
    groups, queries = groups_for(samples, keys)
    query = "q = noise"
    if correlation != 0.0:
        own = f"k[:, torch.arange({queries}) % keys]"
        query = (
            f"q = ({correlation!r}) * {own} + (1 - ({correlation!r}) ** 2) ** 0.5 * noise  # each query has its own key"
        )
    vectors = _VECTORS.format(
        seed=seed, groups=groups, most=MOST_D_K, d_k=d_k, queries=queries, q=query, keys=keys, variance_q=variance_q,
        variance_k=variance_k, dtype=dtype, temperature=temperature, power=power,
        leaf="q.requires_grad_()\n" if show == "learning" else "",
    )  # fmt: skip
    return vectors + _SHOWN[show]
