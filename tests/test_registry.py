"""The ordered, read-only table."""

from typing import NamedTuple

import pytest

from attnviz.registry import Registry


class Thing(NamedTuple):
    """An entry."""

    key: str
    size: int = 0


TABLE = Registry("thing", (Thing("b", 1), Thing("a", 2)))


def test_entries_keep_the_order_given():
    assert list(TABLE) == ["b", "a"]
    assert [thing.size for thing in TABLE.values()] == [1, 2]
    assert len(TABLE) == 2


def test_an_unknown_key_lists_the_valid_ones():
    with pytest.raises(KeyError, match="unknown thing 'c'; valid: b, a"):
        TABLE["c"]


@pytest.mark.parametrize("key", [["b"], None, 0])
def test_what_is_no_key_is_not_in_it_and_named_like_any_other(key):
    assert key not in TABLE
    with pytest.raises(KeyError, match="valid: b, a"):
        TABLE[key]


def test_a_key_twice_is_refused():
    with pytest.raises(ValueError, match="thing 'a' is registered twice"):
        Registry("thing", (Thing("a"), Thing("a")))


def test_it_cannot_be_written():
    with pytest.raises(TypeError):
        TABLE["c"] = Thing("c")  # type: ignore[index]
    with pytest.raises(TypeError):
        del TABLE["a"]  # type: ignore[attr-defined]
