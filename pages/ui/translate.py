"""The prose of the pages in both languages, from the locale files."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

from attnviz import units
from attnviz.text import LANGUAGES, Text

LOCALES = Path(__file__).resolve().parent.parent / "locales"


def _flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, entry in table.items():
        if isinstance(entry, Mapping):
            flat |= _flatten(entry, f"{prefix}{name}.")
        else:
            flat[prefix + name] = str(entry).strip("\n")
    return flat


@cache
def words(language: str) -> Mapping[str, str]:
    """Give every text of one language by its dotted key.

    Raises:
        ValueError: If the language is not known.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language must be one of {', '.join(LANGUAGES)}, got {language!r}")
    return MappingProxyType(_flatten(tomllib.loads((LOCALES / f"{language}.toml").read_text(encoding="utf-8"))))


def table(language: str, prefix: str) -> dict[str, str]:
    """Give the texts below ``prefix`` by the rest of their key, as the components take them."""
    start = prefix + "."
    return {key.removeprefix(start): text for key, text in words(language).items() if key.startswith(start)}


def needed(words: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    """Give those of the words that a component asks for.

    Raises:
        ValueError: If one is missing.
    """
    missing = [key for key in keys if key not in words]
    if missing:
        raise ValueError(f"words must have {', '.join(keys)}, got none for {', '.join(missing)}")
    return {key: words[key] for key in keys}


def say(language: str, key: str, **fields: object) -> str:
    """Give the text under ``key``; a field that is a ``Text`` is said in the same language.

    Raises:
        KeyError: If the key is not in the locale file.
    """
    text = words(language)[key]
    if not fields:
        return text
    return text.format(**{name: f.say(language) if isinstance(f, Text) else f for name, f in fields.items()})


def counted(language: str, what: str, count: int) -> str:
    """Say how many there are of something that ``count`` in the locale files names, one in the singular."""
    return say(language, f"count.{what}_one" if count == 1 else f"count.{what}", count=units.count(count))


def kernel(language: str, name: str) -> str:
    """Say what ran; names that are torch's own, such as flash and math, stay as they are."""
    theirs = table(language, "kernel")
    # The longest first: one phrase is a part of another.
    for key, phrase in sorted(table("en", "kernel").items(), key=lambda entry: -len(entry[1])):
        name = name.replace(phrase, theirs[key])
    return name
