"""The gradient at each distance as a script of plain PyTorch."""

from attnviz.recurrence.measure import SEQUENCES
from attnviz.recurrence.models import HEADS, Sizes

_SCRIPT = '''\
import torch
import torch.nn.functional as F
from torch import nn

length, width, layers, gain, seed = {length}, {width}, {layers}, {gain!r}, {seed}
heads, kernel, sequences = {heads}, {kernel}, {sequences}


def recurrent(kind):
    """Give a recurrent layer as torch draws it, its weights between hidden states times the factor."""
    torch.manual_seed(seed)
    layer = kind(width, width, batch_first=True)
    layer.weight_hh_l0.data.mul_(gain)
    layer.double()
    return lambda x: layer(x)[0]


torch.manual_seed(seed)
stack = nn.ModuleList(nn.Conv1d(width, width, kernel) for _ in range(layers)).double()


def convolutions(x):
    """Let each token see itself and those just before it, layer after layer, with a ReLU between."""
    x = x.mT
    for number, layer in enumerate(stack):
        x = layer(F.pad(x.relu() if number else x, (kernel - 1, 0)))
    return x.mT


def matrix(stream):
    """Draw the matrix of one projection, each head from a seed of its own."""
    drawn, size = [], width // heads * width
    for head in range(heads):
        place = (seed + 1) * 0x9E3779B97F4A7C15 + stream * 0xC2B2AE3D27D4EB4F + head * 0x165667B19E3779F9
        mixed = ((place ^ (place >> 29)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        generator = torch.Generator().manual_seed(mixed >> 32)
        drawn.append(torch.randn(-(-size // 16) * 16, generator=generator)[:size].view(-1, width))
    return (torch.cat(drawn) * width**-0.5).double()


def attention(x):
    """Attend causally, without positions."""
    q, k, v = ((x @ matrix(stream).T).unflatten(2, (heads, -1)).transpose(1, 2) for stream in (0, 1, 2))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(1, 2).flatten(2) @ matrix(3)


def normal(*shape, stream):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + stream)).double()


x = normal(sequences, length, width, stream=1).requires_grad_()
direction = normal(sequences, width, stream=2)
models = {{"rnn": recurrent(nn.RNN), "lstm": recurrent(nn.LSTM), "conv": convolutions, "attention": attention}}
gradient = {{}}
for name, model in models.items():
    last = model(x)[:, -1]
    (back,) = torch.autograd.grad((last * direction).sum(), x)
    # Its size at each token, over the sequences; place n is n tokens back.
    gradient[name] = back.square().sum(-1).mean(0).sqrt().flip(0)
    share = float(gradient[name][-1] / gradient[name].max())
    print(f"{{name:9}} {{length - 1}} tokens back: {{share:.2g}} of the largest")
'''


def gradient_snippet(sizes: Sizes, length: int) -> str:
    """Give a script that imports torch alone and leaves each model's gradient at each distance in ``gradient``."""
    return _SCRIPT.format(
        length=length, width=sizes.width, layers=sizes.layers, gain=sizes.gain, seed=sizes.seed, heads=HEADS,
        kernel=sizes.kernel, sequences=SEQUENCES,
    )  # fmt: skip
