"""Where x comes from: a sentence, or random numbers; or q, k and v themselves, to be checked by hand."""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.registry import Registry
from attnviz.text import Text


@dataclass(frozen=True)
class InputKind:
    """Describe an input that can be picked: what it is called, and one sentence on what its numbers are."""

    key: str
    label: Text
    help: Text


INPUTS: Registry[InputKind] = Registry(
    "input",
    (
        InputKind(
            "sentence",
            Text("sentence", "句子"),
            Text(
                "Each token has a fixed vector of random numbers, the same wherever it stands; nothing is trained.",
                "每个 token 对应一个固定的随机向量，与位置无关；没有经过训练。",
            ),
        ),
        InputKind(
            "normal",
            Text("random normal", "随机正态"),
            Text(
                "Independent numbers from the normal distribution with mean 0 and variance 1.",
                "相互独立、均值 0、方差 1 的正态随机数。",
            ),
        ),
        InputKind(
            "worked",
            Text("worked example", "手算示例"),
            Text(
                "Queries, keys and values are whole numbers from −1 to 2, small enough to check every step by hand.",
                "查询、键和值都是 −1 到 2 的整数，每一步都可以手算检查。",
            ),
        ),
    ),
)

# A tag and a formula without spaces are one token each, so that a label shows them as they were typed.
_MARKUP = re.compile(r"(</?[A-Za-z][^<>\s]*>|\$[^\s$]+\$)")
_KEYCAP = "\u20e3"
_JOINER = "\u200d"
_NON_JOINER = "\u200c"
# Code points that draw nothing by themselves: zero-width space, word joiner, byte order mark, writing directions.
_UNSEEN = frozenset("\u200b\u200e\u200f\u2060\ufeff\u061c") | {
    chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
# Written without spaces between words; first and last code point of each range.
_CHARACTER_SCRIPTS = (
    (0x1100, 0x11FF),  # Hangul letters
    (0x2E80, 0x2FDF),  # radicals
    (0x3005, 0x3007),  # iteration mark, closing mark, zero
    (0x3021, 0x3029),  # Suzhou numerals
    (0x3041, 0x318F),  # Hiragana, Katakana, Bopomofo, Hangul letters
    (0x31A0, 0x31BF),  # Bopomofo, further letters
    (0x31F0, 0x31FF),  # small Katakana
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),  # Hangul letters, further ones
    (0xAC00, 0xD7FF),  # Hangul syllables
    (0xF900, 0xFAFF),  # Han, compatibility forms
    (0xFF66, 0xFFDC),  # halfwidth Katakana and Hangul
    (0x1AFF0, 0x1B16F),  # Kana, older letters
    (0x20000, 0x3FFFF),  # Han, further planes
)


def tokenize(text: str) -> tuple[str, ...]:
    """Split a text into tokens: words and numbers, single punctuation marks and symbols.

    Chinese, Japanese and Korean are split by character; an emoji is one token with its skin tone, flag or joined parts;
    accents stay with their letter. A tag such as ``<b>`` and a formula such as ``$x$`` without spaces are one token.
    Spaces separate and are in no token; a tab and a line break are tokens themselves. Each visible character is
    in exactly one token, unchanged and in order; marks that draw nothing are left out.

    Args:
        text: Any text.

    Returns:
        The tokens; none for a text of nothing but spaces.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    tokens: list[str] = []
    # re.split with one group gives text and markup in turn.
    for turn, part in enumerate(_MARKUP.split(text)):
        tokens += [part] if turn % 2 else _words(part)
    return tuple(tokens)


def token_vectors(tokens: Sequence[str], width: int, seed: int) -> Tensor:
    """Give each token its vector from a table that is fixed by the seed and not trained.

    A token has the same vector at every position, in every sentence and process: it is drawn by a generator seeded with
    a hash of the token and the seed. There is no position in it; order has to come from a mask or a position encoding.

    Args:
        tokens: The tokens; may repeat.
        width: Number of entries of a vector, at least 1.
        seed: Which table.

    Returns:
        float32 ``[len(tokens), width]`` on the CPU, entries normal with mean 0 and variance 1.

    Raises:
        ValueError: If width is below 1.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    table = {token: _draw((width,), token_seed(token, seed)) for token in dict.fromkeys(tokens)}
    return torch.stack([table[token] for token in tokens]) if tokens else torch.empty(0, width)


def random_normal(shape: Sequence[int], seed: int) -> Tensor:
    """Draw independent normal numbers with mean 0 and variance 1 on the CPU, so that a seed means the same everywhere.

    Args:
        shape: Any shape, such as ``[batch, length, width]``.
        seed: Seed of the generator, 0 or more.

    Returns:
        float32 tensor of that shape on the CPU.
    """
    return _draw(tuple(shape), seed)


def small_integers(shape: tuple[int, int, int], seed: int, stream: int) -> Tensor:
    """Draw whole numbers from -1 to 2 by a hash of seed, stream and place, so that a larger shape keeps the numbers.

    Args:
        shape: ``(heads, length, width)``.
        seed: Which example, 0 or more.
        stream: 0 for queries, 1 for keys, 2 for values.

    Returns:
        float32 ``[1, heads, length, width]`` on the CPU.
    """
    heads, length, width = (torch.arange(size) for size in shape)
    mixed = heads[:, None, None] * 0x9E3779B1 + length[:, None] * 0x85EBCA77 + width * 0xC2B2AE3D
    mixed = mixed + (3 * seed + stream + 1) * 0x27D4EB2F
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 15)) & 3).to(torch.float32)[None] - 1.0


def _draw(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def token_seed(token: str, seed: int) -> int:
    """Give the seed of one token's vector in the table that ``seed`` fixes, the same in every process."""
    # Python's own hash differs from process to process. 32 bits are what torch's CPU generator takes of a seed.
    digest = hashlib.blake2b(f"{seed} {token}".encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "little")


def _words(text: str) -> Iterator[str]:
    """Give the tokens of a text without markup: letters and digits joined to words, all else by character."""
    parts = list(_characters(text))
    word = ""
    for place, part in enumerate(parts):
        after = parts[place + 1] if place + 1 < len(parts) else " "
        if _in_word(part) or (word and _inside(word[-1], part, after)):
            word += part
            continue
        if word:
            yield word
            word = ""
        if not _separates(part):
            yield part
    if word:
        yield word


def _characters(text: str) -> Iterator[str]:
    """Give what a reader sees as single characters: a code point with the marks, joiners and halves that follow it."""
    part = ""
    for point in text:
        if point in _UNSEEN:
            # A zero-width space still parts words, as it does for a line break.
            point = " " if point == "\u200b" else ""
        if part and point and _continues(part, point):
            part += point
        elif point:
            if part:
                yield part
            part = point
    if part:
        yield part


def _continues(part: str, point: str) -> bool:
    """Say whether a code point belongs to the character before it."""
    if _separates(part) or part in ("\t", "\n"):
        return False
    if unicodedata.category(point)[0] == "M" or point in (_JOINER, _NON_JOINER, "\u00ad", "\uff9e", "\uff9f"):
        return True
    code = ord(point)
    if 0x1F3FB <= code <= 0x1F3FF or 0xE0020 <= code <= 0xE007F:  # skin tones, letters of regional flags
        return not part[0].isalnum()
    if 0x1160 <= code <= 0x11FF:  # vowel and final letter of a Hangul syllable
        return 0x1100 <= ord(part[0]) <= 0x11FF or 0xAC00 <= ord(part[0]) <= 0xD7A3
    if 0x1F1E6 <= code <= 0x1F1FF:  # two of these letters make a flag
        return len(part) == 1 and 0x1F1E6 <= ord(part) <= 0x1F1FF
    return part[-1] == _JOINER and not part[0].isalnum() and not point.isalnum() and not _separates(point)


def _separates(part: str) -> bool:
    """Say whether a character only keeps others apart: spaces, and control characters that draw nothing."""
    return part not in ("\t", "\n") and (part.isspace() or unicodedata.category(part[0]) == "Cc")


def _in_word(part: str) -> bool:
    if _KEYCAP in part or any(low <= ord(part[0]) <= high for low, high in _CHARACTER_SCRIPTS):
        return False
    return part[0].isalnum() or part[0] == "_"


def _inside(before: str, part: str, after: str) -> bool:
    """Say whether a mark stands inside a word, as in "don't", or a number, as in 3.14."""
    if part in ("'", "\u2019"):
        return before.isalpha() and after[0].isalpha() and _in_word(after)
    return part in (".", ",") and before.isdigit() and after[0].isdigit() and _in_word(after)
