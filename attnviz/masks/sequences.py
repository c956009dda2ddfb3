"""Masks that follow from what the tokens are: order, padding, prefix, documents, draft trees."""

from bisect import bisect_right
from itertools import accumulate

import torch
from torch import Tensor

from attnviz.knobs import Choice, Lengths
from attnviz.masks.base import Mask, MaskKind
from attnviz.masks.token_knobs import MOST_TOKENS, TOKENS, tokens_knob
from attnviz.text import Refusal, Text


def full() -> Mask:
    """Let every query see every key."""
    return Mask(lambda batch, head, q_idx, kv_idx: torch.ones_like(q_idx + kv_idx, dtype=torch.bool), exact=True)


def causal() -> Mask:
    """Let a query see itself and what came before it."""
    return Mask(lambda batch, head, q_idx, kv_idx: kv_idx <= q_idx, (None, 0), exact=True)


def padding(lengths: tuple[int, ...], side: str) -> Mask:
    """Hide the keys that only fill a sequence up to the length of its batch; queries keep their rows.

    Args:
        lengths: Number of real tokens of each sequence of the batch.
        side: ``right`` (real tokens first) or ``left`` (real tokens last; then kv_len must be known: ``Mask.at``).
    """

    def last(kv_len: int) -> Mask:
        def rule(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
            return (kv_idx >= kv_len - torch.tensor(lengths, device=batch.device)[batch]) & (q_idx == q_idx)

        return Mask(rule, per_batch=True, inside=True)

    def first(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return (kv_idx < torch.tensor(lengths, device=batch.device)[batch]) & (q_idx == q_idx)

    def unknown(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        raise ValueError("padding on the left depends on the number of keys: call mask.at(batch, kv_len) first")

    def fit(batch: int, kv_len: int) -> Mask:
        if len(lengths) < batch:
            raise ValueError(
                f"padding needs one length for each sequence: lengths has {len(lengths)} entries, batch is {batch}"
            )
        return last(kv_len) if side == "left" else Mask(first, per_batch=True, inside=True)

    return Mask(unknown if side == "left" else first, per_batch=True, fit=fit, inside=True)


def prefix_lm(prefix: int) -> Mask:
    """Let every query see the first ``prefix`` keys; behind them the mask is causal."""
    return Mask(lambda batch, head, q_idx, kv_idx: (kv_idx <= q_idx) | (kv_idx < prefix))


def document(lengths: tuple[int, ...]) -> Mask:
    """Let a query see the keys of its own document; what is left after the listed ones is one more document."""

    def number(index: Tensor) -> Tensor:
        end, count = 0, torch.zeros_like(index)
        for length in lengths:
            end += length
            count = count + (index >= end)
        return count

    return Mask(lambda batch, head, q_idx, kv_idx: number(q_idx) == number(kv_idx))


def tree(prefix: int, parents: tuple[int, ...]) -> Mask:
    """Let each token of a draft tree see the context, its own ancestors and itself.

    Args:
        prefix: Number of tokens of the context, which is causal; the draft's tokens follow in the order of ``parents``.
        parents: Parent of each draft token: 0 is the end of the context, n the n-th draft token. Tokens beyond the
            list hang on the context.

    Raises:
        Refusal: If a parent does not come before its child.
    """
    lines: list[frozenset[int]] = []
    for number, parent in enumerate(parents, 1):
        if not 0 <= parent < number:
            fault = Text(
                "parents: the parent of draft token {number} must be from 0 to {most}, got {parent}.",
                "父节点（parents）：第 {number} 个草稿 token 的父节点应在 0 到 {most} 之间，收到的是 {parent}。",
            )
            raise Refusal(fault.fill(number=number, most=number - 1, parent=parent))
        lines.append((lines[parent - 1] if parent else frozenset()) | {number - 1})

    def rule(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        size = len(lines)
        table = torch.tensor([[k in line for k in range(size)] for line in lines], device=q_idx.device)
        q, k = q_idx - prefix, kv_idx - prefix
        on_line = table[q.clamp(0, size - 1), k.clamp(0, size - 1)] & (q >= 0) & (q < size) & (k >= 0) & (k < size)
        return (kv_idx <= q_idx) & ((k < 0) | (k == q) | on_line)

    return Mask(rule, (None, 0))


def _padding_code(lengths: tuple[int, ...], side: str) -> str:
    return f"kv_idx >= kv_len - {lengths[0]}" if side == "left" else f"kv_idx < {lengths[0]}"


def _document_code(lengths: tuple[int, ...]) -> str:
    return (
        f"ends = torch.tensor({list(lengths)}).cumsum(0)\n"
        "torch.bucketize(q_idx, ends, right=True) == torch.bucketize(kv_idx, ends, right=True)"
    )


def _tree_code(prefix: int, parents: tuple[int, ...]) -> str:
    return f"""\
size, lines = {len(parents)}, []
for number, parent in enumerate({list(parents)}):
    lines.append((lines[parent - 1] if parent else set()) | {{number}})
on_line = torch.tensor([[k in line for k in range(size)] for line in lines])
q_draft, kv_draft = q_idx - {prefix}, kv_idx - {prefix}
both = (q_draft >= 0) & (q_draft < size) & (kv_draft >= 0) & (kv_draft < size)
own = both & on_line[q_draft.clamp(0, size - 1), kv_draft.clamp(0, size - 1)]
(kv_idx <= q_idx) & ((kv_idx < {prefix}) | (kv_idx == q_idx) | own)"""


_DOCUMENTS = Text(
    "The query is in document {query}, the key in document {key}, counted from 1.",
    "查询在第 {query} 篇文档，键在第 {key} 篇（从 1 数起）。",
)
_CONTEXT = Text("The key belongs to the context, which is causal.", "键属于上下文，上下文为因果。")
_BRANCH = Text(
    "The query's branch back to the context is {line}; the key is draft token {key}.",
    "查询回到上下文的分支是 {line}；键是第 {key} 个草稿 token。",
)


def _document_why(q: int, k: int, lengths: tuple[int, ...]) -> Text:
    ends = list(accumulate(lengths))
    return _DOCUMENTS.fill(query=bisect_right(ends, q) + 1, key=bisect_right(ends, k) + 1)


def _tree_why(q: int, k: int, prefix: int, parents: tuple[int, ...]) -> Text:
    if k < prefix or q < prefix:
        return _CONTEXT
    line, at = [q - prefix + 1], q - prefix + 1
    while 0 < at <= len(parents) and parents[at - 1]:
        at = parents[at - 1]
        line.append(at)
    return _BRANCH.fill(line=" → ".join(map(str, line)), key=k - prefix + 1)


SEQUENCES = (
    MaskKind(
        "full",
        Text("Full", "全部可见"),
        Text("Every query sees every key, as in an encoder.", "每个查询都能看到所有键，如编码器。"),
        full,
        "https://arxiv.org/abs/1706.03762",
        code=lambda: "kv_idx == kv_idx",
    ),
    MaskKind(
        "causal",
        Text("Causal", "因果"),
        Text(
            "A query sees itself and earlier keys, so that no token learns from what it has yet to predict.",
            "查询只能看到自己和之前的键，因此不会用到尚待预测的内容。",
        ),
        causal,
        "https://arxiv.org/abs/1706.03762",
        code=lambda: "kv_idx <= q_idx",
    ),
    MaskKind(
        "padding",
        Text("Padding", "填充"),
        Text(
            "Keys that only fill a short sequence up to the batch's length are hidden; no query loses its row.",
            "为凑齐批次长度而补的键不可见；查询的行不会因此消失。",
        ),
        padding,
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html",
        (
            Lengths(
                "lengths",
                Text("Real lengths", "真实长度"),
                (24,),
                Text("One for each sequence of the batch.", "批次中每个序列一个。"),
                TOKENS,
                high=MOST_TOKENS,
                most=256,
            ),
            Choice(
                "side",
                Text("Padding side", "填充位置"),
                "right",
                options={"right": Text("right", "右侧"), "left": Text("left", "左侧")},
            ),
        ),
        code=_padding_code,
    ),
    MaskKind(
        "prefix_lm",
        Text("Prefix LM", "前缀语言模型"),
        Text(
            "The first tokens see each other in both directions; what follows is causal.",
            "开头的 token 双向互相可见，其后为因果。",
        ),
        prefix_lm,
        "https://arxiv.org/abs/1910.10683",
        (tokens_knob("prefix", Text("Prefix", "前缀长度"), 8, low=0),),
        code=lambda prefix: f"(kv_idx <= q_idx) | (kv_idx < {prefix})",
    ),
    MaskKind(
        "document",
        Text("Documents", "文档隔离"),
        Text(
            "Several documents are packed into one sequence, and a query sees only its own.",
            "多篇文档拼成一个序列，查询只能看到自己所在的文档。",
        ),
        document,
        "https://arxiv.org/abs/2407.21783",
        (
            Lengths(
                "lengths",
                Text("Document lengths", "文档长度"),
                (12, 8, 12),
                Text("What is left of the sequence is one more document.", "序列剩余的部分算作另一篇文档。"),
                TOKENS,
                low=1,
                high=MOST_TOKENS,
            ),
        ),
        code=_document_code,
        why=_document_why,
    ),
    MaskKind(
        "tree",
        Text("Draft tree", "草稿树"),
        Text(
            "Several guessed continuations are checked in one call: each token sees the context and its own branch.",
            "一次调用验证多种猜测的续写：每个 token 只看上下文和自己所在的分支。",
        ),
        tree,
        "https://arxiv.org/abs/2305.09781",
        (
            tokens_knob("prefix", Text("Context", "上下文长度"), 8, low=0),
            Lengths(
                "parents",
                Text("Parents", "父节点"),
                (0, 1, 1, 2, 2, 3, 0, 7),
                Text(
                    "Parent of each draft token: 0 is the end of the context, n the n-th draft token.",
                    "每个草稿 token 的父节点：0 为上下文末尾，n 为第 n 个草稿 token。",
                ),
                high=63,
            ),
        ),
        code=_tree_code,
        why=_tree_why,
    ),
)
