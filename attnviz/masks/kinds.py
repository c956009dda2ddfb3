"""MASKS: the masks that can be picked; each is one pure rule and its entry."""

import torch
from torch import Tensor

from attnviz.knobs import Choice, Integer, Knob, Lengths, Number
from attnviz.masks.base import Mask, MaskKind
from attnviz.registry import Registry
from attnviz.text import Refusal, Text

MOST_TOKENS = 131_072
_SLIDER = 4096
_TOKENS = Text("tokens", "token")


def _tokens(name: str, label: Text, default: int, low: int = 1) -> Integer:
    return Integer(name, label, default, unit=_TOKENS, low=low, high=MOST_TOKENS, slider_high=_SLIDER)


def _window(default: int, help: Text) -> Knob:
    label = Text("Window", "窗口")
    return Integer("window", label, default, help, _TOKENS, low=1, high=MOST_TOKENS, slider_high=_SLIDER)


_BLOCK = _tokens("block", Text("Block", "块大小"), 4)
_WITH_SELF = Text("Number of keys a query sees, its own included.", "一个查询能看到的键的个数，包括它自己。")


def full() -> Mask:
    """Let every query see every key."""
    return Mask(lambda batch, head, q_idx, kv_idx: torch.ones_like(q_idx + kv_idx, dtype=torch.bool), exact=True)


FULL = MaskKind(
    "full",
    Text("Full", "全部可见"),
    Text("Every query sees every key, as in an encoder.", "每个查询都能看到所有键，如编码器。"),
    full,
    "https://arxiv.org/abs/1706.03762",
)


def causal() -> Mask:
    """Let a query see itself and what came before it."""
    return Mask(lambda batch, head, q_idx, kv_idx: kv_idx <= q_idx, (None, 0), exact=True)


CAUSAL = MaskKind(
    "causal",
    Text("Causal", "因果"),
    Text(
        "A query sees itself and earlier keys, so that no token learns from what it has yet to predict.",
        "查询只能看到自己和之前的键，因此不会用到尚待预测的内容。",
    ),
    causal,
    "https://arxiv.org/abs/1706.03762",
)


def padding(lengths: tuple[int, ...], side: str) -> Mask:
    """Hide the keys that only fill a sequence up to the length of its batch; queries keep their rows.

    Args:
        lengths: Number of real tokens of each sequence of the batch.
        side: ``right`` (real tokens first) or ``left`` (real tokens last; then kv_len must be known: ``Mask.at``).
    """

    def last(kv_len: int) -> Mask:
        def rule(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
            return (kv_idx >= kv_len - torch.tensor(lengths, device=batch.device)[batch]) & (q_idx == q_idx)

        return Mask(rule, per_batch=True)

    def first(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return (kv_idx < torch.tensor(lengths, device=batch.device)[batch]) & (q_idx == q_idx)

    def unknown(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        raise ValueError("padding on the left depends on the number of keys: call mask.at(batch, kv_len) first")

    def fit(batch: int, kv_len: int) -> Mask:
        if len(lengths) < batch:
            raise ValueError(
                f"padding needs one length for each sequence: lengths has {len(lengths)} entries, batch is {batch}"
            )
        return last(kv_len) if side == "left" else Mask(first, per_batch=True)

    return Mask(unknown if side == "left" else first, per_batch=True, fit=fit)


PADDING = MaskKind(
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
            _TOKENS,
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
)


def sliding_window(window: int) -> Mask:
    """Let a query see the last ``window`` keys, its own included."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (kv_idx <= q_idx) & (kv_idx > q_idx - window), (window - 1, 0), exact=True
    )


SLIDING_WINDOW = MaskKind(
    "sliding_window",
    Text("Sliding window", "滑动窗口"),
    Text(
        "Causal, and only the last few keys: window w shows w keys, the query's own included.",
        "因果，且只看最近的几个键：窗口 w 表示包括自己在内的 w 个键。",
    ),
    sliding_window,
    "https://arxiv.org/abs/2310.06825",
    (_window(8, _WITH_SELF),),
)


def local_window(radius: int) -> Mask:
    """Let a query see keys up to ``radius`` away on both sides."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (kv_idx <= q_idx + radius) & (kv_idx >= q_idx - radius),
        (radius, radius),
        exact=True,
    )


LOCAL_WINDOW = MaskKind(
    "local_window",
    Text("Local window", "双向局部窗口"),
    Text(
        "Keys up to a radius away on both sides: radius r shows 2r + 1 keys.",
        "左右两侧距离不超过半径的键：半径 r 表示 2r + 1 个键。",
    ),
    local_window,
    "https://arxiv.org/abs/2004.05150",
    (_tokens("radius", Text("Radius", "半径"), 4, low=0),),
)


def prefix_lm(prefix: int) -> Mask:
    """Let every query see the first ``prefix`` keys; behind them the mask is causal."""
    return Mask(lambda batch, head, q_idx, kv_idx: (kv_idx <= q_idx) | (kv_idx < prefix))


PREFIX_LM = MaskKind(
    "prefix_lm",
    Text("Prefix LM", "前缀语言模型"),
    Text(
        "The first tokens see each other in both directions; what follows is causal.",
        "开头的 token 双向互相可见，其后为因果。",
    ),
    prefix_lm,
    "https://arxiv.org/abs/1910.10683",
    (_tokens("prefix", Text("Prefix", "前缀长度"), 8, low=0),),
)


def document(lengths: tuple[int, ...]) -> Mask:
    """Let a query see the keys of its own document; what is left after the listed ones is one more document."""

    def number(index: Tensor) -> Tensor:
        end, count = 0, torch.zeros_like(index)
        for length in lengths:
            end += length
            count = count + (index >= end)
        return count

    return Mask(lambda batch, head, q_idx, kv_idx: number(q_idx) == number(kv_idx))


DOCUMENT = MaskKind(
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
            _TOKENS,
            low=1,
            high=MOST_TOKENS,
        ),
    ),
)


def attention_sinks(sinks: int, window: int) -> Mask:
    """Let a query see the first ``sinks`` keys and the last ``window`` ones, its own included."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (kv_idx <= q_idx) & ((kv_idx < sinks) | (kv_idx > q_idx - window)),
        (None, 0),
    )


ATTENTION_SINKS = MaskKind(
    "attention_sinks",
    Text("Attention sinks", "注意力汇聚点"),
    Text(
        "A sliding window that also keeps the first few keys, on which trained models put much weight.",
        "滑动窗口外再保留开头几个键，训练好的模型常把大量权重放在那里。",
    ),
    attention_sinks,
    "https://arxiv.org/abs/2309.17453",
    (_tokens("sinks", Text("Sinks", "保留的首部键数"), 4, low=0), _window(8, _WITH_SELF)),
)


def dilated(window: int, dilation: int) -> Mask:
    """Let a query see ``window`` keys ``dilation`` apart, going back from its own."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (
            (kv_idx <= q_idx) & (kv_idx > q_idx - window * dilation) & (q_idx % dilation == kv_idx % dilation)
        ),
        ((window - 1) * dilation, 0),
        exact=dilation == 1,
    )


DILATED = MaskKind(
    "dilated",
    Text("Dilated window", "空洞窗口"),
    Text(
        "Causal, with gaps: the same number of keys reaches further back.",
        "因果且有间隔：同样数量的键可以看到更远处。",
    ),
    dilated,
    "https://arxiv.org/abs/2004.05150",
    (
        _window(4, _WITH_SELF),
        Integer("dilation", Text("Dilation", "间隔"), 2, unit=_TOKENS, low=1, high=MOST_TOKENS, slider_high=64),
    ),
)


def global_local(globals: int, window: int) -> Mask:
    """Let the first ``globals`` tokens see all and be seen by all; the others see half of ``window`` on each side."""
    half = window // 2
    return Mask(
        lambda batch, head, q_idx, kv_idx: (
            ((kv_idx <= q_idx + half) & (kv_idx >= q_idx - half)) | (q_idx < globals) | (kv_idx < globals)
        )
    )


GLOBAL_LOCAL = MaskKind(
    "global_local",
    Text("Global and local", "全局加局部"),
    Text(
        "The first tokens see all and are seen by all; the others see half a window on each side.",
        "开头的 token 与所有 token 互相可见，其余只看左右各半个窗口。",
    ),
    global_local,
    "https://arxiv.org/abs/2004.05150",
    (
        _tokens("globals", Text("Global tokens", "全局 token 数"), 2, low=0),
        _window(8, Text("Half of it lies on each side of a query.", "查询左右各占一半。")),
    ),
)


def chunked(chunk: int) -> Mask:
    """Let a query see itself and the earlier keys of its own chunk."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (kv_idx <= q_idx) & (kv_idx // chunk == q_idx // chunk), (chunk - 1, 0)
    )


CHUNKED = MaskKind(
    "chunked",
    Text("Chunked", "分块"),
    Text(
        "Causal inside chunks of equal size; nothing is seen across their borders.",
        "序列等分成块，块内为因果，块之间互不可见。",
    ),
    chunked,
    "https://huggingface.co/docs/transformers/model_doc/llama4",
    (_tokens("chunk", Text("Chunk", "块大小"), 8),),
)


def block_sparse(block: int, radius: int, globals: int) -> Mask:
    """Let a query see whole blocks: those near its own and the first ones, whose queries see all."""

    def rule(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        q, k = q_idx // block, kv_idx // block
        return ((k <= q + radius) & (k >= q - radius)) | (q < globals) | (k < globals)

    return Mask(rule)


BLOCK_SPARSE = MaskKind(
    "block_sparse",
    Text("Block sparse", "块稀疏"),
    Text(
        "Whole blocks are seen or not: those near the query's own, and the first ones, which also see all.",
        "以整块为单位：可见邻近的块和开头的块，开头的块则能看到全部。",
    ),
    block_sparse,
    "https://arxiv.org/abs/2007.14062",
    (
        _BLOCK,
        _tokens("radius", Text("Blocks on each side", "左右各几块"), 1, low=0),
        _tokens("globals", Text("Global blocks", "全局块数"), 1, low=0),
    ),
)


def strided(stride: int) -> Mask:
    """Let a query see the last ``stride`` keys and, further back, each key a multiple of ``stride`` away."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (
            (kv_idx <= q_idx) & ((kv_idx > q_idx - stride) | (q_idx % stride == kv_idx % stride))
        ),
        (None, 0),
    )


STRIDED = MaskKind(
    "strided",
    Text("Strided", "跨步"),
    Text(
        "Causal: the latest keys, and further back one key in every stride.",
        "因果：最近的键全部可见，更早的每隔一个步长看一个。",
    ),
    strided,
    "https://arxiv.org/abs/1904.10509",
    (_tokens("stride", Text("Stride", "步长"), 8),),
)


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

    return Mask(rule, per_head=True)


RANDOM_BLOCK = MaskKind(
    "random_block",
    Text("Random blocks", "随机块"),
    Text(
        "A query sees its own block and some drawn at random, others in each head.",
        "查询能看到自己所在的块和随机抽取的若干块，各个头不同。",
    ),
    random_block,
    "https://arxiv.org/abs/2007.14062",
    (
        _BLOCK,
        Number("share", Text("Share of blocks", "块的比例"), 0.25, low=0.0, high=1.0, step=0.01),
        Integer("seed", Text("Seed", "随机种子"), 0, low=0, high=2**31 - 1, slider_high=100),
    ),
)


def block_diffusion(block: int) -> Mask:
    """Let a query see all of its own block, also what comes later in it, and all blocks before."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: kv_idx // block <= q_idx // block, (None, block - 1), exact=block == 1
    )


BLOCK_DIFFUSION = MaskKind(
    "block_diffusion",
    Text("Block diffusion", "块扩散"),
    Text(
        "Tokens of a block are filled in together, so they see each other and all blocks before.",
        "同一块的 token 一起生成，因此互相可见，也能看到之前的所有块。",
    ),
    block_diffusion,
    "https://arxiv.org/abs/2503.09573",
    (_BLOCK,),
)


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
                "parents：第 {number} 个草稿 token 的父节点应在 0 到 {most} 之间，收到的是 {parent}。",
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


TREE = MaskKind(
    "tree",
    Text("Draft tree", "草稿树"),
    Text(
        "Several guessed continuations are checked in one call: each token sees the context and its own branch.",
        "一次调用验证多种猜测的续写：每个 token 只看上下文和自己所在的分支。",
    ),
    tree,
    "https://arxiv.org/abs/2305.09781",
    (
        _tokens("prefix", Text("Context", "上下文长度"), 8, low=0),
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
)


MASKS: Registry[MaskKind] = Registry(
    "mask",
    (
        FULL,
        CAUSAL,
        PADDING,
        SLIDING_WINDOW,
        LOCAL_WINDOW,
        PREFIX_LM,
        DOCUMENT,
        ATTENTION_SINKS,
        DILATED,
        GLOBAL_LOCAL,
        CHUNKED,
        BLOCK_SPARSE,
        STRIDED,
        RANDOM_BLOCK,
        BLOCK_DIFFUSION,
        TREE,
    ),
)
