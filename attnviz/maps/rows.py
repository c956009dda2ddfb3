"""One block of query rows of a stage: its values, which of its cells count, and which of its rows have a key."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from attnviz.backends import BACKENDS
from attnviz.backends.eager import score
from attnviz.masks import Mask, block
from attnviz.score_mods import ScoreMod, Terms

Span = tuple[int, int]

# Cells of scores held at once; 2^21 of them are 8 MiB in float32, and a few such blocks live together.
BLOCK_CELLS = 2**21


@dataclass(frozen=True)
class Job:
    """Hold what to compute of one sequence: query and key are ``[1, heads, length, width]`` of the chosen heads."""

    stage: str
    query: Tensor
    key: Tensor
    heads: Sequence[int]
    all_heads: int
    place: tuple[int, int]
    allowed: Tensor | Mask | None
    align: str
    scale: float
    score_mod: ScoreMod | None
    logsumexp: Tensor | None
    rows: Span
    cols: Span

    @property
    def is_masked(self) -> bool:
        """Cells can be without a value."""
        return self.stage in ("masked", "weights") and self.allowed is not None

    @property
    def softmax(self) -> bool:
        """Whole rows are needed, whatever the region."""
        return self.stage == "weights" and self.logsumexp is None


def blocks(job: Job, pool: int) -> Iterator[Span]:
    """Cut the rows so that a block holds whole pooled rows or lies inside one."""
    cols = job.key.shape[2] if job.softmax else job.cols[1] - job.cols[0]
    most = max(1, BLOCK_CELLS // (len(job.heads) * cols))
    # Either some pooled rows at a time, or one pooled row in several parts.
    outer, step = (most // pool * pool, most // pool * pool) if most >= pool else (pool, most)
    for start in range(*job.rows, outer):
        stop = min(start + outer, job.rows[1])
        for inner in range(start, stop, step):
            yield inner, min(inner + step, stop)


def compute(job: Job, rows: Span) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Give the region's values of some rows, ``[heads, rows, cols]``, which cells count, and which rows have a key."""
    everything = (0, job.key.shape[2])
    keep = has_key = grid = None
    if job.is_masked:
        grid = _grid(job, rows)
        has_key = grid.any(-1)[0]
        keep = grid[0, ..., job.cols[0] : job.cols[1]]
    query = job.query[:, :, rows[0] : rows[1]]
    if job.softmax:
        bias, softcap, factor = _terms(job, rows, everything)
        # The values only ride along: one number per key.
        core = BACKENDS["eager"].attend(
            query, job.key, job.key[..., :1], allowed=grid, bias=bias, scale=job.scale * factor, softcap=softcap
        )
        assert core.weights is not None
        return core.weights[0, ..., job.cols[0] : job.cols[1]], keep, has_key
    key = job.key[:, :, job.cols[0] : job.cols[1]]
    if job.stage == "scores":
        return score(query, key, None, 1.0, None)[0], None, None
    bias, softcap, factor = _terms(job, rows, job.cols)
    scaled = score(query, key, bias, job.scale * factor, softcap)[0]
    if job.stage != "weights":
        return scaled, keep, has_key
    assert job.logsumexp is not None
    lse = job.logsumexp[0, :, rows[0] : rows[1], None].to(torch.float32)
    # A row without a key has -inf and becomes inf: all of its cells are masked.
    weights = scaled.to(torch.float32).sub_(lse).exp_()
    return (weights if keep is None else weights.masked_fill_(~keep, 0.0)), keep, has_key


def _grid(job: Job, rows: Span) -> Bool[Tensor, "one heads rows kv_len"]:
    """Give who may attend to whom in some rows, over every key: a row's being empty shows in no smaller region."""
    q_len, kv_len = job.query.shape[2], job.key.shape[2]
    if isinstance(job.allowed, Mask):
        batch, batches = job.place
        sizes = {"q_len": q_len, "kv_len": kv_len, "batch": batches, "heads": job.all_heads}
        grid = block(job.allowed, rows, (0, kv_len), align=job.align, device=job.query.device, **sizes)
    else:
        assert job.allowed is not None
        batch = job.place[0]
        grid = job.allowed[(None,) * (4 - job.allowed.dim())]
        grid = grid.expand(-1, -1, q_len, kv_len)[:, :, rows[0] : rows[1]]
    grid = grid[batch : batch + 1] if grid.shape[0] > 1 else grid
    return grid if grid.shape[1] == 1 else grid[:, list(job.heads)]


def _terms(job: Job, rows: Span, cols: Span) -> Terms:
    if job.score_mod is None:
        return Terms(None, None, 1.0)
    sizes = (job.all_heads, job.query.shape[2], job.key.shape[2])
    region = {"align": job.align, "rows": rows, "cols": cols, "which": job.heads}
    return job.score_mod.terms(*sizes, **region, dtype=job.query.dtype, device=job.query.device)
