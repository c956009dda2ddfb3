"""Shapes of an attention call and their checks; sizes of data types. Loads no torch."""

from dataclasses import dataclass

from attnviz.text import Refusal, Text
from attnviz.units import DTYPES

__all__ = [
    "DTYPES",
    "Shape",
    "check_divides",
    "check_size",
    "divisors",
    "dtype_size",
    "nearest_divisor",
    "nearest_multiple",
]

_AT_LEAST = Text(
    "{name} must be a whole number of at least 1, got {value}.", "{name} 应为不小于 1 的整数，收到的是 {value}。"
)
_DIVIDES = Text(
    "{part} must divide {whole} = {size}, got {value}; possible are {options}.",
    "{part} 必须整除 {whole} = {size}，收到的是 {value}；可取 {options}。",
)
_DTYPE = Text("dtype must be one of {options}, got {value!r}.", "dtype 应为以下之一：{options}，收到的是 {value!r}。")


@dataclass(frozen=True)
class Shape:
    """Hold the sizes of one attention call.

    Args:
        batch: Number of sequences.
        heads: Number of query heads.
        kv_heads: Number of heads of keys and values; divides ``heads``.
        q_len: Number of queries.
        kv_len: Number of keys.
        head_dim: Width of a query and a key in one head (d_k).
        value_dim: Width of a value in one head; None means ``head_dim``.

    Raises:
        Refusal: If a size is not a whole number of at least 1, or ``kv_heads`` does not divide ``heads``.
    """

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    value_dim: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim"):
            check_size(name, getattr(self, name))
        if self.value_dim is not None:
            check_size("value_dim", self.value_dim)
        check_divides("kv_heads", self.kv_heads, "heads", self.heads)

    @property
    def group(self) -> int:
        """Number of query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def query(self) -> tuple[int, int, int, int]:
        """Shape of the query, ``[batch, heads, q_len, head_dim]``."""
        return (self.batch, self.heads, self.q_len, self.head_dim)

    @property
    def key(self) -> tuple[int, int, int, int]:
        """Shape of the key, ``[batch, kv_heads, kv_len, head_dim]``."""
        return (self.batch, self.kv_heads, self.kv_len, self.head_dim)

    @property
    def value(self) -> tuple[int, int, int, int]:
        """Shape of the value, ``[batch, kv_heads, kv_len, value_dim]``."""
        return (self.batch, self.kv_heads, self.kv_len, self.head_dim if self.value_dim is None else self.value_dim)

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """Shape of scores and weights, ``[batch, heads, q_len, kv_len]``."""
        return (self.batch, self.heads, self.q_len, self.kv_len)


def check_size(name: str, value: object) -> None:
    """Check that a size is a whole number of at least 1.

    Raises:
        Refusal: If it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refusal(_AT_LEAST.fill(name=name, value=value))


def check_divides(part: str, value: int, whole: str, size: int) -> None:
    """Check that ``value`` divides ``size``; ``part`` and ``whole`` are their names.

    Raises:
        Refusal: If it does not; the message lists the values that do.
    """
    check_size(part, value)
    check_size(whole, size)
    if size % value:
        options = ", ".join(str(n) for n in divisors(size))
        raise Refusal(_DIVIDES.fill(part=part, whole=whole, size=size, value=value, options=options))


def dtype_size(name: str) -> int:
    """Give the bytes of one element of a data type.

    Args:
        name: Name as torch has it, one of ``DTYPES``.

    Raises:
        Refusal: If the name is not known.
    """
    if name not in DTYPES:
        raise Refusal(_DTYPE.fill(options=", ".join(DTYPES), value=name))
    return DTYPES[name]


def divisors(number: int) -> tuple[int, ...]:
    """Give the divisors of a whole number of at least 1, in rising order.

    Raises:
        Refusal: If it is not one.
    """
    check_size("number", number)
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return tuple(sorted({*small, *(number // n for n in small)}))


def quarter(heads: int) -> int:
    """Give the KV heads that grouped queries begin with: the largest divisor up to a quarter of the heads."""
    return max(n for n in divisors(heads) if n == 1 or n <= heads // 4)


def nearest_divisor(value: int, number: int) -> int:
    """Give the divisor of ``number`` nearest to ``value``; of two equally near, the larger.

    Raises:
        Refusal: If ``number`` is not a whole number of at least 1.
    """
    return min(divisors(number), key=lambda n: (abs(n - value), -n))


def nearest_multiple(value: int, step: int) -> int:
    """Give the multiple of ``step``, at least ``step``, nearest to ``value``; of two equally near, the larger.

    Raises:
        Refusal: If ``step`` is not a whole number of at least 1.
    """
    check_size("step", step)
    return max(step, (2 * value + step) // (2 * step) * step)
