"""Additive attention: a small network scores each pair, v · tanh(q + k), where the others take a dot product."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnviz.backends import BACKENDS, CoreOutput
from attnviz.backends.flash import FLASH, TILE
from attnviz.backends.sdpa_memory import rows_at_once
from attnviz.masks import Mask
from attnviz.score_mods import LateBias, ScoreMod
from attnviz.text import Text
from attnviz.variants.base import Tensors
from attnviz.variants.drawing import projection
from attnviz.variants.grouped import SIZES, Grouped, GroupedConfig
from attnviz.variants.grouped_memory import layer_around
from attnviz.variants.work import HeadShape, Work

Span = tuple[int, int]

_STREAM = 201
_TILE_ENTRIES = 1 << 20  # entries of tanh(q + k) that exist at once
_BLOCK_ROWS = 256  # queries that the fused backends take at a time


@dataclass(frozen=True)
class Additive(Grouped):
    """Attention whose score of query q and key k is v · tanh(q + k), with a vector v for each head.

    Projections, heads and cache are those of MHA. No array of L × L × d exists: tanh(q + k) is made tile by tile. The
    scores go into a backend as its bias, so masks, softmax, row statistics and tiles are the same code as everywhere.

    Source:
        Bahdanau, Cho, Bengio 2014, appendix A.1.2, https://arxiv.org/abs/1409.0473
    """

    def vectors(self, config: GroupedConfig) -> Mapping[str, int]:
        return {**super().vectors(config), "score": config.num_attention_heads * config.head_dim}

    def weights(
        self,
        config: GroupedConfig,
        *,
        seed: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> dict[str, Tensor]:
        """Draw the weights head by head; each head's score vector has unit length on average."""
        drawn = super().weights(config, seed=seed, dtype=dtype, device=device)
        width = config.head_dim
        vectors = projection(seed, _STREAM, config.num_attention_heads, width, 1)[0] * width**-0.5
        return drawn | {"score": vectors.to(device=device, dtype=dtype)}

    def mix_flops(self, config: GroupedConfig, q_len: int, kv_len: int) -> int:
        """Count the FLOPs of v · tanh(q + k) and of the weighted sums; the tanh and the sums q + k are not counted.

        One more product of width one is the backend's own, of the stand-ins that it is given for query and key.
        """
        return 2 * config.num_attention_heads * q_len * kv_len * (config.head_dim + 1 + config.v_head_dim)

    def peak_bytes(self, config: GroupedConfig, work: Work, backend: str) -> int:
        """Predict what the core allocates at its peak: the backend's part, the scores it is given, and one tile."""
        heads = config.num_attention_heads
        # A backend that keeps the score matrix asks for all of it, the others for a block of rows.
        few = min(work.q_len, _BLOCK_ROWS, rows_at_once(work.batch, heads, work.kv_len))
        rows = work.q_len if self.score_passes(backend) else few
        scores = work.batch * heads * rows * work.kv_len
        tile = min(_TILE_ENTRIES, scores * config.head_dim)
        if backend == FLASH.key:
            # It asks for the scores of a tile while its own are there.
            asked = work.batch * heads * min(work.q_len, TILE[0]) * min(work.kv_len, TILE[1])
            own = FLASH.peak_bytes(
                work.shape(HeadShape(heads, heads, 1, config.v_head_dim)), work.itemsize, work.masked
            )
            return own + (asked + min(tile, asked * config.head_dim)) * work.itemsize
        shape = work._replace(q_len=rows).shape(HeadShape(heads, heads, 1, config.v_head_dim))
        results = work.batch * heads * (work.q_len - rows) * config.v_head_dim
        core = BACKENDS[backend].peak_bytes(shape, work.itemsize, work.masked)
        return (scores + results) * work.itemsize + max(core, tile * work.itemsize)

    def whole_peak_bytes(self, config: GroupedConfig, work: Work, backend: str) -> int | None:
        """Predict a layer's peak, about; nobody has worked out what a gradient takes."""
        return layer_around(self, config, work, backend)

    def is_exact(self, config: GroupedConfig, backend: str) -> bool:
        return False

    def tiles(self, config: GroupedConfig, work: Work) -> int:
        pairs = work.batch * config.num_attention_heads * work.q_len * work.kv_len
        return math.ceil(pairs * config.head_dim / _TILE_ENTRIES)

    def mix(
        self,
        config: GroupedConfig,
        weights: Tensors,
        tensors: tuple[Tensor, ...],
        *,
        allowed: Tensor | Mask | None,
        align: str,
        score_mod: ScoreMod | None,
        scale: float | None,
        backend: str,
    ) -> CoreOutput:
        """Attend with query, key and value; ``scale`` None is 1."""
        query, key, value = tensors
        sizes = (config.num_attention_heads, query.shape[2], key.shape[2])
        vectors = weights["score"].view(sizes[0], config.head_dim)

        def region(rows: Span, cols: Span) -> Tensor:
            scores = _scores(query[:, :, rows[0] : rows[1]], key[:, :, cols[0] : cols[1]], vectors)
            scores = scores if scale is None else scores * scale
            if score_mod is None:
                return scores
            bias, softcap, factor = score_mod.terms(
                *sizes, align=align, rows=rows, cols=cols, dtype=query.dtype, device=query.device
            )
            scores = scores * factor
            scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
            return scores if bias is None else scores + bias

        # The backend's own product must add nothing, and a width of one costs it least.
        nothing = (query.new_zeros(*query.shape[:3], 1), key.new_zeros(*key.shape[:3], 1))
        return BACKENDS[backend].attend(*nothing, value, allowed=allowed, align=align, bias=LateBias(region))


def _scores(
    query: Float[Tensor, "batch heads q_len head_dim"],
    key: Float[Tensor, "batch heads kv_len head_dim"],
    vectors: Float[Tensor, "heads head_dim"],
) -> Float[Tensor, "batch heads q_len kv_len"]:
    """Give v · tanh(q + k) of every pair, tile by tile."""
    batch, heads, q_len, width = query.shape
    scores = query.new_empty(batch, heads, q_len, key.shape[2])
    for rows, cols in _tiles(q_len, key.shape[2], _TILE_ENTRIES // (batch * heads * width)):
        pairs = (query[:, :, slice(*rows), None] + key[:, :, None, slice(*cols)]).tanh_()
        scores[:, :, slice(*rows), slice(*cols)] = (pairs.flatten(2, 3) @ vectors[..., None]).view(pairs.shape[:4])
        del pairs  # else one tile would still be held while the next is made
    return scores


def _tiles(q_len: int, kv_len: int, cells: int) -> Iterator[tuple[Span, Span]]:
    """Give tiles of at most ``cells`` pairs (one pair at least), as wide as they can be."""
    width = max(1, min(kv_len, cells))
    height = max(1, cells // width)
    for row in range(0, q_len, height):
        for col in range(0, kv_len, width):
            yield (row, min(row + height, q_len)), (col, min(col + width, kv_len))


ENTRIES = (
    Additive(
        "additive",
        Text("Additive (Bahdanau)", "加性注意力 (Bahdanau)"),
        Text(
            "Scores a pair by v · tanh(q + k): one tanh for each pair and dimension, where a dot product multiplies.",
            "用 v · tanh(q + k) 给每一对打分：每一对的每一维都要算一次 tanh，而点积只做乘法。",
        ),
        "https://arxiv.org/abs/1409.0473",
        SIZES,
        tuple(BACKENDS),
        "all",
    ),
)
