"""What a live request asks for: settings, language and a place on a picture, each checked, refused in a sentence."""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from attnviz.reading import Settled
from attnviz.text import LANGUAGES, Refusal, Text

V = TypeVar("V")

OF_CELL = ("lang", "part", "map", "row", "col")
OF_REGION = ("lang", "part", "map", "rows", "cols")
# So much of what was received is quoted.
_QUOTED = 40
_SPAN = Text(
    "{name} must be two whole numbers start-stop inside the map, got {value}.",
    "{name} 应为图内的两个整数 start-stop，收到的是 {value}。",
)
_INDEX = Text(
    "{name} must be a whole number from {low} to {high}, got {value}.",
    "{name} 应为 {low} 到 {high} 之间的整数，收到的是 {value}。",
)
_ONE_OF = Text("{name} must be one of {options}, got {value}.", "{name} 应为以下之一：{options}，收到的是 {value}。")


def read(
    params: Mapping[str, str],
    settle: Callable[[Mapping[str, object]], Settled[V]],
    own: Collection[str] = ("lang",),
    check: Callable[[V], object] | None = None,
) -> tuple[V, str, dict[str, str]]:
    """Read a live request: the view, the language, and the settings as they came.

    Args:
        params: The request's parameters.
        settle: Turns settings into a view, as the page does.
        own: Names that belong to the request and are no settings.
        check: Refuses a view that is too large.

    Raises:
        Refusal: For the first setting that cannot be read, and for a view that is too large.
    """
    given = {name: text for name, text in params.items() if name not in own}
    settled = settle(given)
    if settled.problems:
        raise Refusal(settled.problems[0])
    if check is not None:
        check(settled.view)
    return settled.view, params["lang"] if params.get("lang") in LANGUAGES else LANGUAGES[0], given


def span(params: Mapping[str, str], name: str, length: int) -> tuple[int, int]:
    """Give first row or column and the one behind the last, all of them where none are named.

    Raises:
        Refusal: For anything but "start-stop" within ``length``.
    """
    parts = params.get(name, f"0-{length}").split("-")
    if len(parts) == 2 and all(map(_is_number, parts)) and 0 <= int(parts[0]) < int(parts[1]) <= length:
        return int(parts[0]), int(parts[1])
    raise Refusal(_SPAN.fill(name=name, value=_quoted(params, name)))


def index(params: Mapping[str, str], name: str, length: int, low: int = 0) -> int:
    """Give a whole number from ``low`` on, below ``length``.

    Raises:
        Refusal: For anything else.
    """
    text = params.get(name, "")
    if _is_number(text) and low <= int(text) < length:
        return int(text)
    raise Refusal(_INDEX.fill(name=name, low=low, high=length - 1, value=_quoted(params, name)))


def place(params: Mapping[str, str], sides: tuple[int, int], start: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Give row and column of a cell on a map of these sides, which begins at ``start``.

    Raises:
        Refusal: For a cell outside.
    """
    return index(params, "row", sides[0], start[0]), index(params, "col", sides[1], start[1])


def one_of(params: Mapping[str, str], name: str, options: Collection[str], usual: str = "") -> str:
    """Give one of several words.

    Raises:
        Refusal: For any other.
    """
    text = params.get(name, usual)
    if text not in options:
        raise Refusal(_ONE_OF.fill(name=name, options=", ".join(options), value=_quoted(params, name)))
    return text


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _quoted(params: Mapping[str, str], name: str) -> str:
    return repr(params.get(name, "")[:_QUOTED])
