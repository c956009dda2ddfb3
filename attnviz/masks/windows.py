"""Masks that keep the keys near a query, with or without some far ones."""

from attnviz.knobs import Integer
from attnviz.masks.base import Mask, MaskKind
from attnviz.masks.token_knobs import MOST_TOKENS, TOKENS, WITH_SELF, tokens_knob, window_knob
from attnviz.text import Text


def sliding_window(window: int) -> Mask:
    """Let a query see the last ``window`` keys, its own included."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (kv_idx <= q_idx) & (kv_idx > q_idx - window), (window - 1, 0), exact=True
    )


def local_window(radius: int) -> Mask:
    """Let a query see keys up to ``radius`` away on both sides."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (kv_idx <= q_idx + radius) & (kv_idx >= q_idx - radius),
        (radius, radius),
        exact=True,
    )


def attention_sinks(sinks: int, window: int) -> Mask:
    """Let a query see the first ``sinks`` keys and the last ``window`` ones, its own included."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (kv_idx <= q_idx) & ((kv_idx < sinks) | (kv_idx > q_idx - window)),
        (None, 0),
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


def global_local(globals: int, window: int) -> Mask:
    """Let the first ``globals`` tokens see all and be seen by all; the others see half of ``window`` on each side."""
    half = window // 2
    return Mask(
        lambda batch, head, q_idx, kv_idx: (
            ((kv_idx <= q_idx + half) & (kv_idx >= q_idx - half)) | (q_idx < globals) | (kv_idx < globals)
        )
    )


def strided(stride: int) -> Mask:
    """Let a query see the last ``stride`` keys and, further back, each key a multiple of ``stride`` away."""
    return Mask(
        lambda batch, head, q_idx, kv_idx: (
            (kv_idx <= q_idx) & ((kv_idx > q_idx - stride) | (q_idx % stride == kv_idx % stride))
        ),
        (None, 0),
    )


WINDOWS = (
    MaskKind(
        "sliding_window",
        Text("Sliding window", "滑动窗口"),
        Text(
            "Causal, and only the last few keys: window w shows w keys, the query's own included.",
            "因果，且只看最近的几个键：窗口 w 表示包括自己在内的 w 个键。",
        ),
        sliding_window,
        "https://arxiv.org/abs/2310.06825",
        (window_knob(8, WITH_SELF),),
        code=lambda window: f"(kv_idx <= q_idx) & (kv_idx > q_idx - {window})",
    ),
    MaskKind(
        "local_window",
        Text("Local window", "双向局部窗口"),
        Text(
            "Keys up to a radius away on both sides: radius r shows 2r + 1 keys.",
            "左右两侧距离不超过半径的键：半径 r 表示 2r + 1 个键。",
        ),
        local_window,
        "https://arxiv.org/abs/2004.05150",
        (tokens_knob("radius", Text("Radius", "半径"), 4, low=0),),
        code=lambda radius: f"(kv_idx - q_idx).abs() <= {radius}",
    ),
    MaskKind(
        "attention_sinks",
        Text("Attention sinks", "注意力汇聚点"),
        Text(
            "A sliding window that also keeps the first few keys, on which trained models put much weight.",
            "滑动窗口外再保留开头几个键，训练好的模型常把大量权重放在那里。",
        ),
        attention_sinks,
        "https://arxiv.org/abs/2309.17453",
        (tokens_knob("sinks", Text("Sinks", "保留的首部键数"), 4, low=0), window_knob(8, WITH_SELF)),
        code=lambda sinks, window: f"(kv_idx <= q_idx) & ((kv_idx < {sinks}) | (kv_idx > q_idx - {window}))",
    ),
    MaskKind(
        "dilated",
        Text("Dilated window", "空洞窗口"),
        Text(
            "Causal, with gaps: the same number of keys reaches further back.",
            "因果且有间隔：同样数量的键可以看到更远处。",
        ),
        dilated,
        "https://arxiv.org/abs/2004.05150",
        (
            window_knob(4, WITH_SELF),
            Integer("dilation", Text("Dilation", "间隔"), 2, unit=TOKENS, low=1, high=MOST_TOKENS, slider_high=64),
        ),
        code=lambda window, dilation: (
            f"(kv_idx <= q_idx) & (kv_idx > q_idx - {window * dilation}) & ((q_idx - kv_idx) % {dilation} == 0)"
        ),
    ),
    MaskKind(
        "global_local",
        Text("Global and local", "全局加局部"),
        Text(
            "The first tokens see all and are seen by all; the others see half a window on each side.",
            "开头的 token 与所有 token 互相可见，其余只看左右各半个窗口。",
        ),
        global_local,
        "https://arxiv.org/abs/2004.05150",
        (
            tokens_knob("globals", Text("Global tokens", "全局 token 数"), 2, low=0),
            window_knob(8, Text("Half of it lies on each side of a query.", "查询左右各占一半。")),
        ),
        code=lambda globals, window: (
            f"((kv_idx - q_idx).abs() <= {window // 2}) | (q_idx < {globals}) | (kv_idx < {globals})"
        ),
    ),
    MaskKind(
        "strided",
        Text("Strided", "跨步"),
        Text(
            "Causal: the latest keys, and further back one key in every stride.",
            "因果：最近的键全部可见，更早的每隔一个步长看一个。",
        ),
        strided,
        "https://arxiv.org/abs/1904.10509",
        (tokens_knob("stride", Text("Stride", "步长"), 8),),
        code=lambda stride: f"(kv_idx <= q_idx) & ((kv_idx > q_idx - {stride}) | ((q_idx - kv_idx) % {stride} == 0))",
    ),
)
