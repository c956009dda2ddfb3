"""A pin: the settings of a view in a link's own words, set aside to compare the view on screen with it."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote

from attnviz.text import Refusal, Text

# How a view is drawn, not what is computed: the pinned view is drawn as the one on screen.
DRAWING = ("stage", "head", "log", "own_range", "reduce", "cell", "compare", "pin")
MOST_LETTERS = 3000
# What would end a setting early; everything else, Chinese above all, stays one sign that an address encodes once.
_SPECIAL = frozenset("%&=+;#")

_TOO_LONG = Text(
    "Settings with so long a text cannot be pinned: they take {got:,} letters, a pin holds {most:,}.",
    "文本太长，无法固定：这些设置共 {got:,} 个字符，最多可存 {most:,} 个。",
)
_UNREADABLE = Text("it is no list of settings", "它不是一组设置")


def write(settings: Mapping[str, str], length: int) -> str:
    """Give the settings of a link as the text of a pin.

    Args:
        settings: Settings as a link carries them; those of the drawing are left out.
        length: Number of queries, always written, so that no pin is empty.

    Raises:
        Refusal: If that would take more than ``MOST_LETTERS``.
    """
    kept = {"length": str(length)} | {name: text for name, text in settings.items() if name not in DRAWING}
    text = "&".join(f"{name}={_escape(value)}" for name, value in kept.items())
    if len(text) > MOST_LETTERS:
        raise Refusal(_TOO_LONG.fill(got=len(text), most=MOST_LETTERS))
    return text


def _escape(value: str) -> str:
    return "".join(quote(char) if char in _SPECIAL or char.isspace() else char for char in value)


def read(pin: str) -> dict[str, str]:
    """Give the settings of a pin, those of the drawing left out.

    Raises:
        Refusal: If the text is no list of settings.
    """
    try:
        pairs = parse_qsl(pin, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=64)
    except ValueError:
        raise Refusal(_UNREADABLE) from None
    return {name: value for name, value in pairs if name not in DRAWING}
