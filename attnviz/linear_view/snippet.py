"""The view as a script of plain PyTorch."""

from attnviz.linear_view.settings import MOST_LENGTH, View

_MAPS = {
    "elu": "    return F.elu(x) + 1",
    "relu": "    return F.relu(x)",
    "squared_relu": "    return F.relu(x) ** 2",
    "softmax": "    return F.softmax(x, dim=-1)",
    "identity": "    return x",
    "performer": "    x = x * d_k**-0.25\n    return torch.exp(x @ w.T - x.pow(2).sum(-1, keepdim=True) / 2) / m**0.5",
}
_SCRIPT = '''\
import torch
import torch.nn.functional as F

length, d_k = {length}, {d_k}
q, k, v = (
    torch.randn(1, {most}, d_k, generator=torch.Generator().manual_seed({seed} + part))[0, :length] for part in range(3)
)
q, k = q * {size!r}, k * {size!r}
{draw}

def phi(x):
    """Give the features of queries and keys; the weight of a pair is phi(q) · phi(k)."""
{body}


# Softmax keeps every key and value.
softmax = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]

# Linear attention keeps a state of fixed size, and the sum of the mapped keys.
state, total, outputs = torch.zeros(phi(k).shape[1], d_k), torch.zeros(phi(k).shape[1]), []
for query, key, value in zip(phi(q), phi(k), v):
    state = state + torch.outer(key, value)
    total = total + key
    weight = query @ total
    outputs.append(query @ state / weight if weight != 0 else torch.zeros(d_k))
linear = torch.stack(outputs)

# The same at once, with the weight of every pair.
weights = (phi(q) @ phi(k).T).tril()
weights = weights / weights.sum(-1, keepdim=True)

print("largest difference of the two forms:", float((torch.nan_to_num(weights) @ v - linear).abs().max()))
print("relative difference to softmax:", float((linear - softmax).norm() / softmax.norm()))
'''
_DRAW = """\
m = {features}
w = torch.randn(m, d_k, generator=torch.Generator().manual_seed({seed}))  # independent directions
"""


def linear_snippet(view: View) -> str:
    """Give a script that attends with softmax and with the view's feature map; ``linear`` holds the output.

    The random map draws independent directions there, where the page draws them at right angles: its numbers are
    another draw of the same estimate.
    """
    draw = _DRAW.format(features=view.features, seed=view.seed) if view.map.is_random else ""
    return _SCRIPT.format(
        length=view.length, d_k=view.d_k, most=MOST_LENGTH, seed=view.seed, size=view.size, draw=draw,
        body=_MAPS[view.feature_map],
    )  # fmt: skip
