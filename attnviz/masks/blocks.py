"""Masks over blocks of tokens of equal size."""

import torch
from torch import Tensor

from attnviz.knobs import Integer, Number
from attnviz.masks.base import Mask, MaskKind
from attnviz.masks.token_knobs import BLOCK, tokens_knob
from attnviz.text import Text

# Four rounds of a hash take as long as so many simple rules.
HASH_WORK = 12


def chunked(chunk: int) -> Mask:
    """Let a query see itself and the earlier keys of its own chunk."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (kv_idx <= q_idx) & (kv_idx // chunk == q_idx // chunk), (chunk - 1, 0)
    )


def block_sparse(block: int, radius: int, globals: int) -> Mask:
    """Let a query see whole blocks: those near its own and the first ones, whose queries see all."""

    def rule(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        q, k = q_idx // block, kv_idx // block
        return ((k <= q + radius) & (k >= q - radius)) | (q < globals) | (k < globals)

    return Mask(rule)


def random_block(block: int, share: float, seed: int) -> Mask:
    """Let a query see its own block and, in each head, other blocks drawn with chance ``share``.

    A block pair's draw is a hash of head, both block indices and seed, so any part of the grid can be made by itself.
    """

    def mix(state: Tensor, index: Tensor) -> Tensor:
        # Masked products stay below 2^64 and wrap alike on every device; only their low 32 bits are kept.
        state = ((state ^ index) * 0x9E3779B1) & 0xFFFFFFFF
        return ((state ^ (state >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF

    def rule(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        q, k = q_idx // block, kv_idx // block
        draw = mix(mix(mix(mix(torch.zeros_like(head), head + seed), q), k), q ^ k)
        return (q == k) | ((draw ^ (draw >> 16)) < share * 2**32)

    return Mask(rule, per_head=True, work=HASH_WORK)


def block_diffusion(block: int) -> Mask:
    """Let a query see all of its own block, also what comes later in it, and all blocks before."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: kv_idx // block <= q_idx // block, (None, block - 1), exact=block == 1
    )


def _random_block_code(block: int, share: float, seed: int) -> str:
    return f"""\
q_block, kv_block = q_idx // {block}, kv_idx // {block}
drawn = torch.zeros_like(head)
for index in (head + {seed}, q_block, kv_block, q_block ^ kv_block):
    drawn = ((drawn ^ index) * 0x9E3779B1) & 0xFFFFFFFF
    drawn = ((drawn ^ (drawn >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
(q_block == kv_block) | ((drawn ^ (drawn >> 16)) < {share} * 2**32)"""


_DRAWN = Text(
    "The query is in block {query}, the key in block {key}: a query sees its own block and those drawn.",
    "查询在第 {query} 块，键在第 {key} 块：查询能看到自己的块和抽中的块。",
)


def _random_block_why(q: int, k: int, block: int, share: float, seed: int) -> Text:
    return _DRAWN.fill(query=q // block, key=k // block)


BLOCKS = (
    MaskKind(
        "chunked",
        Text("Chunked", "分段"),
        Text(
            "Causal inside chunks of equal size; nothing is seen across their borders.",
            "序列等分成段，段内为因果，各段之间互不可见。",
        ),
        chunked,
        "https://huggingface.co/docs/transformers/model_doc/llama4",
        (tokens_knob("chunk", Text("Chunk", "段长"), 8),),
        code=lambda chunk: f"(kv_idx <= q_idx) & (kv_idx // {chunk} == q_idx // {chunk})",
    ),
    MaskKind(
        "block_sparse",
        Text("Block sparse", "块稀疏"),
        Text(
            "Whole blocks are seen or not: those near the query's own, and the first ones, which also see all.",
            "以整块为单位：可见邻近的块和开头的块，开头的块则能看到全部。",
        ),
        block_sparse,
        "https://arxiv.org/abs/2007.14062",
        (
            BLOCK,
            tokens_knob("radius", Text("Blocks on each side", "左右各几块"), 1, low=0),
            tokens_knob("globals", Text("Global blocks", "全局块数"), 1, low=0),
        ),
        code=lambda block, radius, globals: (
            f"q_block, kv_block = q_idx // {block}, kv_idx // {block}\n"
            f"((kv_block - q_block).abs() <= {radius}) | (q_block < {globals}) | (kv_block < {globals})"
        ),
    ),
    MaskKind(
        "random_block",
        Text("Random blocks", "随机块"),
        Text(
            "A query sees its own block and some drawn at random, others in each head.",
            "查询能看到自己所在的块和随机抽取的若干块，各个头不同。",
        ),
        random_block,
        "https://arxiv.org/abs/2007.14062",
        (
            BLOCK,
            Number("share", Text("Share of blocks", "块的比例"), 0.25, low=0.0, high=1.0, step=0.01),
            Integer("seed", Text("Seed", "随机种子"), 0, low=0, high=2**31 - 1, slider_high=100),
        ),
        code=_random_block_code,
        why=_random_block_why,
    ),
    MaskKind(
        "block_diffusion",
        Text("Block diffusion", "块扩散"),
        Text(
            "Tokens of a block are filled in together, so they see each other and all blocks before.",
            "同一块的 token 一起生成，因此互相可见，也能看到之前的所有块。",
        ),
        block_diffusion,
        "https://arxiv.org/abs/2503.09573",
        (BLOCK,),
        code=lambda block: f"kv_idx // {block} <= q_idx // {block}",
    ),
)
