"""Shapes, their checks, and sizes of data types."""

import pytest
import torch

from attnviz import config
from attnviz.config import Shape
from attnviz.text import Refusal


@pytest.mark.parametrize("name", config.DTYPES)
def test_dtype_sizes_are_torchs(name):
    assert config.dtype_size(name) == torch.empty(1, dtype=getattr(torch, name)).element_size()


def test_an_unknown_dtype_is_refused_with_the_known_ones():
    with pytest.raises(Refusal, match=r"dtype must be one of .*float16, got 'float12'"):
        config.dtype_size("float12")


def test_a_shape_gives_the_shapes_of_its_tensors():
    shape = Shape(batch=2, heads=8, kv_heads=2, q_len=7, kv_len=9, head_dim=16, value_dim=4)
    assert shape.query == (2, 8, 7, 16)
    assert shape.key == (2, 2, 9, 16)
    assert shape.value == (2, 2, 9, 4)
    assert shape.scores == (2, 8, 7, 9)
    assert shape.group == 4


def test_value_width_follows_key_width():
    assert Shape(1, 1, 1, 1, 1, 16).value == (1, 1, 1, 16)


SIZES = {"batch": 1, "heads": 2, "kv_heads": 1, "q_len": 1, "kv_len": 1, "head_dim": 1, "value_dim": 1}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("bad", [0, -1])
def test_a_size_below_one_is_refused_by_name(name, bad):
    with pytest.raises(Refusal, match=f"{name} must be a whole number of at least 1, got {bad}"):
        Shape(**(SIZES | {name: bad}))


@pytest.mark.parametrize("bad", [True, 2.0, "2", None])
def test_what_is_no_whole_number_is_refused(bad):
    with pytest.raises(Refusal, match="heads must be a whole number"):
        config.check_size("heads", bad)


@pytest.mark.parametrize(("heads", "kv_heads", "options"), [(3, 2, "1, 3"), (33, 2, "1, 3, 11, 33"), (4, 8, "1, 2, 4")])
def test_case_30_kv_heads_that_do_not_divide_are_refused_with_those_that_do(heads, kv_heads, options):
    with pytest.raises(Refusal) as caught:
        Shape(1, heads, kv_heads, 1, 1, 8)
    assert str(caught.value) == f"kv_heads must divide heads = {heads}, got {kv_heads}; possible are {options}."
    assert f"可取 {options}" in caught.value.text.zh


@pytest.mark.parametrize("number", [1, 2, 7, 12, 36, 64, 97, 1024])
def test_divisors_are_those_that_leave_no_rest(number):
    assert config.divisors(number) == tuple(n for n in range(1, number + 1) if number % n == 0)


@pytest.mark.parametrize(
    ("value", "number", "nearest"), [(3, 8, 4), (7, 12, 6), (5, 12, 6), (100, 12, 12), (0, 12, 1), (4, 7, 7), (3, 7, 1)]
)
def test_nearest_divisor(value, number, nearest):
    assert config.nearest_divisor(value, number) == nearest


@pytest.mark.parametrize(
    ("value", "step", "nearest"), [(64, 3, 63), (5, 4, 4), (6, 4, 8), (7, 4, 8), (0, 4, 4), (-9, 4, 4)]
)
def test_nearest_multiple(value, step, nearest):
    assert config.nearest_multiple(value, step) == nearest
