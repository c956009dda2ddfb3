"""What a view will take, predicted before anything is allocated, and the refusal of what is too much."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from attnviz import config, device, units
from attnviz.backends import BACKENDS
from attnviz.masks import Mask
from attnviz.mistakes import MISTAKES
from attnviz.stages import BLOCK_SCORES
from attnviz.text import Refusal, Text
from attnviz.variants import VARIANTS
from attnviz.view import View
from attnviz.view_run import WIDTH, make_config

# Several people may ask at once, and the browser's pictures need memory too.
SHARE = 0.25
# A few seconds of one CPU core, well under a second of a GPU.
MOST_FLOPS: Mapping[str, float] = MappingProxyType({"cpu": 1.5e11, "mps": 3e12, "cuda": 4e13})
# Mask, softmax and pooling of one score take as long as this many FLOPs of a matrix product.
SCORE_FLOPS = 128.0
# The same of one unit of a mask's work, see ``Mask.work``.
RULE_FLOPS = 96.0
# Bytes that hashing takes for each score, of a mask that is drawn for each head or of dropout.
HASH_BYTES = 16
# Bytes that a rule of many parts takes for each pair, once for all heads.
RULE_BYTES = 24
# Bytes for each entry of the sines and cosines that are added to tokens, while they are made in float64.
WAVE_BYTES = 24
# Cells of scores that a fused call holds at once where its kernel lacks a step and plain operations stand in.
PLAIN_CELLS = 2**22
# Queries, and keys, of one of our own tiles.
TILE = 256
# Backends ask a mask for about so many cells at a time.
GRID_PIECE = 2**20

_TOO_MUCH = Text(
    "Refused before allocating anything: {length} × {key_length} tokens with {heads} heads and d_k {d_k} would take "
    "{need} and the time of {flops}; the limits are {most} ({share} % of the free memory of {device}) and "
    "{most_flops}. {hint}",
    "在分配内存之前已拒绝：{length} × {key_length} 个 token、{heads} 个头、d_k = {d_k} 约需 {need}，"
    "耗时相当于 {flops}；此处上限为 {most}（{device} 空闲内存的 {share} %）和 {most_flops}。{hint}",
)
_NEAREST = Text("The nearest length that fits is {size}.", "能放下的最接近长度是 {size}。")
_NONE = Text("No length fits; lower the heads or d_k.", "任何长度都放不下，请减少头数或 d_k。")


@dataclass(frozen=True)
class Prediction:
    """Predict what one view takes, in bytes and FLOPs.

    Args:
        making: The projections' matrices and what is made with them, all gone before attention begins.
        inputs: Token vectors, query, key and value.
        calling: What a fused call takes at its peak, with the dense mask it may need.
        kept: Output and row statistics of a fused call.
        block: Scores, weights and mask of the largest block of query rows held at once.
        flops: Multiply-adds counted twice, for QKᵀ and · V of what runs and what is drawn.
        effort: FLOPs that would take as long as all of it, the work on each single score included.
        blocks: Number of blocks of query rows.
    """

    making: int
    inputs: int
    calling: int
    kept: int
    block: int
    flops: float
    effort: float
    blocks: int

    @property
    def total(self) -> int:
        """The most bytes held at once: while tensors are made, while a fused kernel runs, or while rows are drawn."""
        return max(self.making, self.inputs + self.calling, self.inputs + self.kept + self.block)


def predict(view: View) -> Prediction:
    """Predict a view's memory and work from its shape alone."""
    size = config.dtype_size(view.dtype)
    tokens = view.length + (view.key_length if view.attention == "cross" else 0)
    entries = (view.heads * view.length + 2 * view.kv_heads * view.key_length) * view.d_k
    sizes = make_config(view)
    shapes = [4 * rows * cols for rows, cols in VARIANTS[view.layer].matrices(sizes).values()]
    matrices, matrix = sum(shapes), max(shapes)
    # Of MLA the latents, and its keys before their rotary part is put behind them.
    apart = 4 * view.key_length * (sizes.kept + view.heads * sizes.head_dim) if view.layer == "mla" else 0
    # Projected in float32 first, then held in the chosen type.
    taken = 4 * tokens * WIDTH + entries * (4 if size == 4 else 4 + size)
    extra, turning = _positions(view, size, tokens)
    is_fused = view.backend != "eager"
    mask = view.build_mask()
    drawn = len(view.drawn_heads)
    pairs = view.length * view.key_length
    rows = max(1, min(view.length, BLOCK_SCORES // (drawn * view.key_length)))
    # QKᵀ, scaled scores and weights, pooled in float32 at once; those of a fused kernel are worked out in float32.
    score = 3 * (max(4, size) if is_fused else size) + 8
    score += 0 if view.score_mod == "none" else max(4, size) if is_fused else size
    # A softmax over the wrong axis needs every column first: the rows are gone through once more.
    by_column = MISTAKES[view.mistake].by_column
    score += max(4, size) if by_column else 0
    score += HASH_BYTES if view.dropout > 0 or mask.per_head else 0
    flops = 4.0 * pairs * view.d_k * (drawn + (view.heads if is_fused or by_column else 0))
    return Prediction(
        making=max(matrices + max(2 * matrix, taken + apart), taken + turning),
        inputs=taken + extra,
        calling=_calling(view, mask, size) if is_fused else _columns(view, mask, size) if by_column else 0,
        kept=view.heads * view.length * (view.d_k * size + 4) if is_fused else 0,
        block=rows * view.key_length * (drawn * score + 1 + (RULE_BYTES if mask.work > 1 else 0)),
        flops=flops,
        effort=flops + SCORE_FLOPS * pairs * (drawn + (view.heads if by_column else 0)) + _ruling(view, mask),
        blocks=-(-view.length // rows),
    )


def _ruling(view: View, mask: Mask) -> float:
    """Predict the work of asking the mask about every pair; a simple rule's is among that of the scores."""
    return RULE_FLOPS * (mask.work - 1) * view.length * view.key_length * (view.heads if mask.per_head else 1)


def _positions(view: View, size: int, tokens: int) -> tuple[int, int]:
    """Predict what a position encoding keeps beside the inputs, and what it takes beside them while it works."""
    position = view.build_position()
    if position is None:
        return 0, 0
    if position.waves is not None:
        return 4 * view.length * WIDTH, WAVE_BYTES * tokens * WIDTH
    # Query and key as they were stay for the picture; each is turned in float32, in halves that are put together.
    queries, keys = view.heads * view.length * view.d_k, view.kv_heads * view.key_length * view.d_k
    return size * (queries + keys), 4 * (queries + keys + 3 * max(queries, keys))


def _calling(view: View, mask: Mask, size: int) -> int:
    """Predict what a fused call allocates at its peak, the grid of a mask that its kernel needs spread out included."""
    shape = config.Shape(1, view.heads, view.kv_heads, view.length, view.key_length, view.d_k)
    is_spread = view.backend == "sdpa" and not mask.exact
    cells = view.length * view.key_length * (view.heads if mask.per_head else 1)
    hashed = min(cells, GRID_PIECE) * 2 * HASH_BYTES if mask.per_head else 0
    return (
        BACKENDS[view.backend].peak_bytes(shape, size, is_spread)
        + hashed
        + (cells if is_spread else 0)
        + _changing(view, size)
    )


def _columns(view: View, mask: Mask, size: int) -> int:
    """Predict what it takes to sum up every column: a block of scores and weights, masked scores and exponentials."""
    row = view.heads * view.key_length
    cells = row * max(1, min(view.length, BLOCK_SCORES // row))
    hashed = HASH_BYTES if mask.per_head else 0
    return cells * ((2 if view.score_mod == "none" else 3) * size + 2 * max(4, size) + hashed + 1)


def _changing(view: View, size: int) -> int:
    """Predict what a fused call takes to change scores: a block of its bias, or of scores capped step by step."""
    mod = view.build_score_mod()
    if mod is None:
        return 0
    if view.backend == "flash":
        cells = view.heads * min(TILE, view.length) * min(TILE, view.key_length)
        return cells * (2 * size + 5) if mod.bias is not None else 0
    cells = min(max(PLAIN_CELLS, view.heads * view.key_length), view.heads * view.length * view.key_length)
    if mod.softcap is not None:
        # Scores, weights, the masked scores between them and a step's result; the output in parts and joined.
        return cells * (4 * size + 1) + view.heads * view.length * view.d_k * size
    return cells * 2 * size if mod.bias is not None else 0


def check(view: View, free_bytes: int | None = None) -> Prediction:
    """Give the prediction, or refuse the view.

    Args:
        view: The view.
        free_bytes: Free memory of the view's device; looked up when None.

    Raises:
        Refusal: If the view would take more than ``SHARE`` of the free memory or ``MOST_FLOPS``; the sentence gives
            both numbers and the nearest length that fits.
    """
    free = device.free_bytes(view.device) if free_bytes is None else free_bytes
    most, most_flops = int(free * SHARE), MOST_FLOPS.get(view.device.split(":")[0], MOST_FLOPS["cpu"])

    def fits(candidate: View) -> bool:
        prediction = predict(candidate)
        return prediction.total <= most and prediction.effort <= most_flops

    if view.compare != "now" and view.pinned is not None:
        check(view.pinned, free)
    if fits(view):
        return predict(view)
    size = _largest(lambda length: fits(_resized(view, length)), view.length)
    prediction = predict(view)
    raise Refusal(
        _TOO_MUCH.fill(
            length=units.count(view.length),
            key_length=units.count(view.key_length),
            heads=view.heads,
            d_k=view.d_k,
            need=units.binary_bytes(prediction.total),
            flops=units.flops(prediction.effort),
            most=units.binary_bytes(most),
            share=f"{SHARE:.0%}".rstrip("%"),
            device=view.device,
            most_flops=units.flops(most_flops),
            hint=_NEAREST.fill(size=units.count(size)) if size else _NONE,
        )
    )


def _resized(view: View, length: int) -> View:
    """Give the view at another length; with cross attention the keys shrink along where they are longer."""
    return replace(view, length=length, key_length=length if view.attention == "self" else min(view.key_length, length))


def _largest(fits: Callable[[int], bool], below: int) -> int:
    """Give the largest length under ``below`` that fits, 0 if none does; fitting only gets harder with length."""
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
