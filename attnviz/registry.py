"""An ordered, read-only table of things that pickers, links and tests run over."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Keyed(Protocol):
    """Anything with a plain string key."""

    @property
    def key(self) -> str:
        """Give the string that finds the entry."""
        ...


Entry = TypeVar("Entry", bound=Keyed)


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Hold entries by key in the order given.

    Args:
        kind: What the entries are, in the singular, for error messages ("mask").
        entries: The entries; each has a ``key``.

    Raises:
        ValueError: If two entries share a key.
    """

    def __init__(self, kind: str, entries: Iterable[Entry]):
        self._kind = kind
        table: dict[str, Entry] = {}
        for entry in entries:
            if entry.key in table:
                raise ValueError(f"{kind} {entry.key!r} is registered twice")
            table[entry.key] = entry
        self._table = table

    def __getitem__(self, key: object) -> Entry:
        """Give the entry with this key.

        Raises:
            KeyError: If there is none; the message lists the valid keys.
        """
        if not isinstance(key, str) or key not in self._table:
            raise KeyError(f"unknown {self._kind} {key!r}; valid: {', '.join(self._table)}")
        return self._table[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"Registry({self._kind}: {', '.join(self._table)})"
