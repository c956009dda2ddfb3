"""Settings of masks that count tokens."""

from attnviz.knobs import Integer
from attnviz.text import Text

MOST_TOKENS = 131_072
TOKENS = Text("tokens", "token")
WITH_SELF = Text("Number of keys a query sees, its own included.", "一个查询能看到的键的个数，包括它自己。")


def tokens_knob(name: str, label: Text, default: int, low: int = 1, help: Text | None = None) -> Integer:
    """Give a setting that counts tokens, from ``low`` to the longest sequence."""
    return Integer(name, label, default, help, TOKENS, low=low, high=MOST_TOKENS, slider_high=4096)


def window_knob(default: int, help: Text) -> Integer:
    """Give the setting ``window``; ``help`` says how it counts."""
    return tokens_knob("window", Text("Window", "窗口"), default, help=help)


BLOCK = tokens_knob("block", Text("Block", "块大小"), 4)
