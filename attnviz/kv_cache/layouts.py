"""Which tokens a cache keeps as it grows, and in what pieces its memory is taken."""

from collections.abc import Callable
from dataclasses import dataclass, field

from attnviz.knobs import Integer, Knob, Value
from attnviz.masks import MASKS, Mask
from attnviz.registry import Registry
from attnviz.text import Text

_TOKENS = Text("tokens", "token")
_BLOCK = Integer(
    "block",
    Text("Block", "块大小"),
    16,
    Text("Tokens that one block of memory holds.", "一个内存块容纳的 token 数。"),
    _TOKENS,
    low=1,
    high=4096,
    slider_high=64,
)


@dataclass(frozen=True)
class Layout:
    """Say what a cache keeps of the tokens seen so far.

    Args:
        mask: Who may attend to whom; it also holds among the tokens that are kept, counted from the first of them.
        sinks: First tokens that stay for ever.
        window: Last tokens that stay; None is all.
        block: Tokens by which memory is taken.
    """

    mask: Mask = field(repr=False)
    sinks: int = 0
    window: int | None = None
    block: int = 1

    def keeps(self, token: int, seen: int) -> bool:
        """Say whether a token, counted from 0, is still kept when ``seen`` have been seen."""
        return self.window is None or token < self.sinks or token >= seen - self.window

    def allocated(self, kept: int) -> int:
        """Give for how many tokens memory is taken when so many are kept."""
        return -(-kept // self.block) * self.block


@dataclass(frozen=True)
class LayoutKind:
    """Describe a layout that can be picked: name, help, settings, source."""

    key: str
    label: Text
    help: Text
    make: Callable[..., Layout] = field(repr=False)
    source: str
    knobs: tuple[Knob, ...] = ()

    def build(self, **settings: object) -> Layout:
        """Give the layout with these settings; what is not given has its default.

        Raises:
            ValueError: If a name is not one of the knobs, or a value is not allowed (a ``Refusal``).
        """
        unknown = set(settings) - {knob.name for knob in self.knobs}
        if unknown:
            raise ValueError(f"{self.key} has no setting {', '.join(sorted(unknown))}")
        values: dict[str, Value] = {knob.name: knob.parse(settings.get(knob.name, knob.default)) for knob in self.knobs}
        return self.make(**values)


LAYOUTS: Registry[LayoutKind] = Registry(
    "cache layout",
    (
        LayoutKind(
            "full",
            Text("Everything", "全部保留"),
            Text("Keeps every token: grows with the sequence.", "保留每个 token：随序列增长。"),
            lambda: Layout(MASKS["causal"].build()),
            "https://arxiv.org/abs/1911.02150",
        ),
        LayoutKind(
            "sliding_window",
            Text("Sliding window", "滑动窗口"),
            Text("Keeps the last tokens: stops growing.", "只保留最近的 token：不再增长。"),
            lambda window: Layout(MASKS["sliding_window"].build(window=window), window=window),
            "https://arxiv.org/abs/2310.06825",
            MASKS["sliding_window"].knobs,
        ),
        LayoutKind(
            "attention_sinks",
            Text("Sinks and window", "汇聚点加窗口"),
            Text(
                "Keeps the last tokens and the first few, on which trained models put much weight.",
                "保留最近的和开头几个 token，训练好的模型常把大量权重放在开头。",
            ),
            lambda sinks, window: Layout(MASKS["attention_sinks"].build(sinks=sinks, window=window), sinks, window),
            "https://arxiv.org/abs/2309.17453",
            MASKS["attention_sinks"].knobs,
        ),
        LayoutKind(
            "paged",
            Text("Paged", "分页"),
            Text(
                "Keeps every token in blocks taken one by one: at most one block per sequence is partly empty.",
                "把每个 token 存入逐块申请的内存：每个序列至多有一块未装满。",
            ),
            lambda block: Layout(MASKS["causal"].build(), block=block),
            "https://arxiv.org/abs/2309.06180",
            (_BLOCK,),
        ),
    ),
)
