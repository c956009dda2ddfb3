"""The saturation view as a script of plain PyTorch: the same queries, keys and weights."""

from attnviz.saturation.sources import MOST_D_K, groups_for

_SCRIPT = '''\
import math

import torch

generator = torch.Generator().manual_seed({seed})
drawn = torch.randn({groups}, {both}, {most}, generator=generator)[..., :{d_k}]
noise, k = drawn[:, :{queries}], drawn[:, {queries}:]
{q}
q, k = (q * {variance_q!r} ** 0.5).to(torch.{dtype}), (k * {variance_k!r} ** 0.5).to(torch.{dtype})


def unit(vectors):
    """Bring vectors to length 1."""
    length = torch.linalg.vector_norm(vectors.float(), dim=-1, keepdim=True)
    return vectors / length.clamp_min(torch.finfo(vectors.dtype).tiny).to(vectors.dtype)


d_k, keys, temperature = {d_k}, {keys}, {temperature!r}
gain = math.log2(keys * keys - keys) if keys > 1 else 1.0
scores = {{
    "1/sqrt(d_k)": q @ k.mT * (d_k**-0.5 / temperature),
    "none": q @ k.mT * (1 / temperature),
    "1/d_k": q @ k.mT * (1 / d_k / temperature),
    "d_k**-p, p = {power!r}": q @ k.mT * (d_k**-{power!r} / temperature),
    "QK-norm": unit(q) @ unit(k).mT * (gain / temperature),
}}
weights = {{name: torch.softmax(score, -1).float() for name, score in scores.items()}}
for name, score in scores.items():
    spread, top = score.float().std(correction=0), weights[name].amax(-1).mean()
    print(f"{{name:>18}}: spread of the scores {{spread:.3f}}, largest weight {{top:.3f}}")
'''


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
) -> str:
    """Give a script that measures every scaling at one d_k; ``weights`` holds what the page draws.

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
    """
    groups, queries = groups_for(samples, keys)
    query = "q = noise"
    if correlation != 0.0:
        own = f"k[:, torch.arange({queries}) % {keys}]"
        query = (
            f"q = ({correlation!r}) * {own} + (1 - ({correlation!r}) ** 2) ** 0.5 * noise  # each query has its own key"
        )
    return _SCRIPT.format(
        seed=seed, groups=groups, both=queries + keys, most=MOST_D_K, d_k=d_k, queries=queries, q=query, keys=keys,
        variance_q=variance_q, variance_k=variance_k, dtype=dtype, temperature=temperature, power=power,
    )  # fmt: skip
