"""How much a call of a variant has to do: what its memory and its arithmetic depend on beside its sizes."""

from typing import NamedTuple

from attnviz.config import Shape


class HeadShape(NamedTuple):
    """Hold the sizes of an attention core: query heads, KV heads, width of a key and of a value."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int


class Work(NamedTuple):
    """Say how much a call has to do, whatever the sizes of its layer are.

    Args:
        q_len: Tokens that ask.
        kv_len: Tokens attended to.
        batch: Sequences.
        itemsize: Bytes of one number.
        masked: A dense boolean mask is given.
        causal: A causal mask is given as a rule: matters where another algorithm runs then.
        layer: Tokens are projected, and the heads' outputs, too; where ``q_len < kv_len`` the others come from a cache.
        gradient: A gradient follows, of ones to everything that was given.
        spread: Keys and values of a core, and of a cache, are repeated for every head first.
    """

    q_len: int
    kv_len: int
    batch: int = 1
    itemsize: int = 4
    masked: bool = False
    causal: bool = False
    layer: bool = False
    gradient: bool = False
    spread: bool = False

    def shape(self, heads: HeadShape) -> Shape:
        """Give the shape of the core's call."""
        return Shape(self.batch, heads.heads, heads.kv_heads, self.q_len, self.kv_len, heads.head_dim, heads.v_head_dim)
