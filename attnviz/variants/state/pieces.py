"""A call's tensors piece by piece: mapped, masked and in the precision of the state only where they are worked on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnviz.backends.call import check
from attnviz.masks import Mask
from attnviz.text import Text, same
from attnviz.variants.base import refuse
from attnviz.variants.state.reading import Reading, read

Map = Callable[[Tensor], Tensor]

_STATE = Text("{shape}, one state for each head of keys", "{shape}（每个键头一个状态）的张量")
_RATES = Text(
    "[{batch}, {heads}, {length}, 1] or one number for each feature, none above 0",
    "[{batch}, {heads}, {length}, 1] 或每个特征一个数，且都不大于 0",
)
_FORM = Text("one of {valid}", "以下之一：{valid}")
_CHUNK = Text("a whole number of at least 1", "不小于 1 的整数")
_ORDERED = Text("causal, by key, or both where there is decay", "因果掩码、按键的掩码或两者之交（有衰减时）")
_BY_HEAD = Text("the same for all query heads that share a head of keys", "对共用同一键头的查询头都相同的掩码")


class StateOutput(NamedTuple):
    """Hold what a call gives.

    Args:
        output: ``[batch, heads, q_len, value width]``, in the dtype of the query.
        state: ``[batch, kv_heads, features, value width]`` after the last key, at least float32.
        sum: ``[batch, kv_heads, features]``, the sum of the mapped keys, where rows are normalised.
        weights: ``[batch, heads, q_len, kv_len]``, what the outputs are sums of values with; only from ``parallel``.
        kernel: What ran, for people.
    """

    output: Tensor
    state: Tensor
    sum: Tensor | None
    weights: Tensor | None
    kernel: str


@dataclass(frozen=True)
class Call:
    """Hold one checked call. Query ``[batch, kv_heads, group, q_len, width]``, key and value with a group of 1.

    ``keys`` is False where a key is not to be written, ``rates`` are logarithms of decay, ``beta`` how much of the
    difference a delta rule writes; all ``[batch | 1, kv_heads | 1, 1, kv_len, 1 | features]``.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    query_map: Map
    key_map: Map
    reading: Reading
    start: Tensor
    keys: Tensor | None = None
    rates: Tensor | None = None
    beta: Tensor | None = None
    normalize: bool = False
    factor: float = 1.0
    dtype: torch.dtype = field(default=torch.float32)

    def queries(self, start: int, stop: int) -> Tensor:
        """Give some mapped queries."""
        return self.query_map(self.query[..., start:stop, :].to(self.dtype))

    def mapped(self, start: int, stop: int) -> Tensor:
        """Give some mapped keys; one that nobody sees is 0, whatever it holds."""
        keys = self.key_map(self.key[..., start:stop, :].to(self.dtype))
        return keys if self.keys is None else keys.masked_fill(~self.keys[..., start:stop, :], 0.0)

    def values(self, start: int, stop: int) -> Tensor:
        """Give some values, with a one behind them where the weights are summed up too."""
        values = self.value[..., start:stop, :].to(self.dtype)
        if self.keys is not None:
            values = values.masked_fill(~self.keys[..., start:stop, :], 0.0)
        return torch.nn.functional.pad(values, (0, 1), value=1.0) if self.normalize else values

    def decays(self, start: int, stop: int) -> Tensor | None:
        """Give the running sum of decay logarithms from ``start`` on; a key that nobody sees forgets nothing."""
        if self.rates is None:
            return None
        rates = self.rates[..., start:stop, :].to(self.dtype)
        if self.keys is not None:
            rates = torch.where(self.keys[..., start:stop, :], rates, 0.0)
        return rates.cumsum(-2)

    def finish(self, sums: Tensor) -> Tensor:
        """Turn sums into outputs: over the sum of the weights, or times the scale; 0 where there is no weight."""
        if not self.normalize:
            return sums * self.factor if self.factor != 1.0 else sums
        weight = sums[..., -1:]
        return (sums[..., :-1] / weight).masked_fill_(weight == 0, 0.0)

    def answer(self, output: Tensor, state: Tensor, weights: Tensor | None, kernel: str) -> StateOutput:
        """Give the call's result with the axes of the query that came in."""
        state = state.squeeze(2)
        total = state[..., -1] if self.normalize else None
        kept = state[..., :-1] if self.normalize else state
        flat = None if weights is None else weights.flatten(1, 2).to(self.query.dtype)
        return StateOutput(output.flatten(1, 2).to(self.query.dtype), kept, total, flat, kernel)


def call_of(
    query: Float[Tensor, "batch heads q_len width"],
    key: Float[Tensor, "batch kv_heads kv_len width"],
    value: Float[Tensor, "batch kv_heads kv_len value_width"],
    *,
    maps: tuple[Map, Map] | None,
    allowed: Tensor | Mask | None,
    align: str,
    rates: Tensor | None,
    beta: Tensor | None = None,
    state: tuple[Tensor, Tensor | None] | None,
    past: int,
    normalize: bool,
    scale: float,
) -> Call:
    """Check the arguments of a call and bring them into one shape."""
    batch, heads, q_len, _ = query.shape
    kv_heads, new = key.shape[1:3]
    if new:
        # The mask spans the past too, which is in the state; the other rules are those of every backend.
        whole = key if not past else key[:, :, :1].expand(-1, -1, past + new, -1)
        held = value if not past else value[:, :, :1].expand(-1, -1, past + new, -1)
        allowed = check(query, whole, held, allowed, align, None, None, None).allowed
    reading = read(allowed, align, (batch, heads, q_len, new), past, query.device)
    if reading.pairs is not None and rates is not None:
        raise refuse("allowed", _ORDERED, "a mask of another kind")
    dtype = torch.promote_types(query.dtype, torch.float32)
    query_map, key_map = maps or (_same, _same)
    group = heads // kv_heads
    with torch.no_grad():
        features = key_map(key.new_zeros(1, key.shape[3], dtype=dtype)).shape[-1]
    return Call(
        query.unflatten(1, (kv_heads, group)),
        key[:, :, None],
        value[:, :, None],
        query_map,
        key_map,
        reading,
        _begin(state, (batch, kv_heads, features, value.shape[3]), normalize, query.device, dtype),
        _keys(reading, kv_heads, group),
        _along("log_decay", rates, (batch, kv_heads, new), (1, features)),
        _along("beta", beta, (batch, kv_heads, new), (1,)),
        normalize,
        scale,
        dtype,
    )


def pick_form(form: str, forms: tuple[str, ...], chunk: int) -> None:
    """Check the name of a form and the length of a chunk."""
    if form not in forms:
        raise refuse("form", _FORM.fill(valid=", ".join(forms)), repr(form))
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise refuse("chunk", _CHUNK, chunk)


def _same(x: Tensor) -> Tensor:
    return x


def _keys(reading: Reading, kv_heads: int, group: int) -> Bool[Tensor, "batch heads 1 kv_len 1"] | None:
    keys = reading.keys
    if keys is None:
        return None
    if keys.shape[1] not in (1, kv_heads) or (keys.shape[1] > 1 and group > 1):
        raise refuse("allowed", _BY_HEAD, f"{keys.shape[1]} heads")
    return keys[:, :, None, :, None]


def _begin(
    state: tuple[Tensor, Tensor | None] | None,
    shape: tuple[int, int, int, int],
    normalize: bool,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """Give the state before the first key, with the sum of mapped keys as its last column where it is kept."""
    batch, heads, features, width = shape
    if state is None:
        return torch.zeros(batch, heads, 1, features, width + normalize, device=device, dtype=dtype)
    kept, total = state
    if tuple(kept.shape) != shape:
        raise refuse("state", _STATE.fill(shape=list(shape)), list(kept.shape))
    if not normalize:
        return kept[:, :, None].to(dtype)
    if total is None or tuple(total.shape) != shape[:3]:
        got = "None" if total is None else list(total.shape)
        raise refuse("the sum beside state", _STATE.fill(shape=list(shape[:3])), got)
    return torch.cat((kept, total[..., None]), dim=-1)[:, :, None].to(dtype)


def _along(name: str, numbers: Tensor | None, shape: tuple[int, int, int], widths: tuple[int, ...]) -> Tensor | None:
    """Check numbers that go along with the keys: some for each head and token; a head axis of 1 is shared."""
    if numbers is None:
        return None
    batch, heads, length = shape
    sizes = tuple(numbers.shape)
    fits = len(sizes) == 4 and sizes[0] in (1, batch) and sizes[1] in (1, heads) and sizes[2] == length
    if not fits or sizes[3] not in widths or (name == "log_decay" and bool((numbers > 0).any())):
        rule = _RATES if name == "log_decay" else same("[{batch}, {heads}, {length}, 1]")
        raise refuse(name, rule.fill(batch=batch, heads=heads, length=length), list(sizes))
    return numbers[:, :, None]
