"""Memory for the caches of many sequences: one long reservation each, or blocks that are taken as they fill."""

from typing import NamedTuple

from attnviz.config import check_size


class Memory(NamedTuple):
    """Hold what the caches of several sequences take, in tokens: ``used`` by them, ``taken`` from memory for them."""

    used: int
    taken: int

    @property
    def waste(self) -> float:
        """Share of the memory taken that holds nothing."""
        return 1 - self.used / self.taken


def reserved(lengths: tuple[int, ...], most: int) -> Memory:
    """Give what sequences take when each reserves room for ``most`` tokens at its start."""
    _check(lengths)
    check_size("most", most)
    return Memory(sum(lengths), most * len(lengths))


def paged(lengths: tuple[int, ...], block: int) -> Memory:
    """Give what sequences take in blocks of ``block`` tokens."""
    return Memory(sum(lengths), block * sum(len(table) for table in block_tables(lengths, block)))


def block_tables(lengths: tuple[int, ...], block: int) -> tuple[tuple[int, ...], ...]:
    """Give each sequence's blocks when all grow by a token in turn and a block is taken when the last one is full.

    Source:
        PagedAttention, section 4.2, https://arxiv.org/abs/2309.06180
    """
    _check(lengths)
    check_size("block", block)
    tables: list[list[int]] = [[] for _ in lengths]
    taken = 0
    for token in range(0, max(lengths), block):
        for table, length in zip(tables, lengths, strict=True):
            if token < length:
                table.append(taken)
                taken += 1
    return tuple(map(tuple, tables))


def _check(lengths: tuple[int, ...]) -> None:
    check_size("number of lengths", len(lengths))
    for length in lengths:
        check_size("lengths", length)
