"""Tensors as NumPy arrays."""

import numpy as np
import pytest
import torch

from attnviz.arrays import to_numpy


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_half_types_are_widened_without_changing_a_value(dtype):
    tensor = torch.tensor([[0.0, -1.5, 2.0]]).to(dtype)
    array = to_numpy(tensor)
    assert array.dtype == np.float32
    assert array.tolist() == [[0.0, -1.5, 2.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool])
def test_other_types_stay(dtype):
    tensor = torch.tensor([0, 1, 1]).to(dtype)
    array = to_numpy(tensor)
    assert str(array.dtype) == str(dtype).removeprefix("torch.")
    assert array.tolist() == tensor.tolist()


def test_a_strided_view_becomes_contiguous_in_its_own_order():
    tensor = torch.arange(12.0).view(3, 4).T[::2]
    array = to_numpy(tensor)
    assert array.flags.c_contiguous
    assert array.tolist() == tensor.tolist()


def test_an_expanded_tensor_is_filled_in():
    array = to_numpy(torch.tensor([[True], [False]]).expand(2, 3))
    assert array.flags.c_contiguous
    assert array.tolist() == [[True] * 3, [False] * 3]


def test_a_tensor_with_gradient_is_taken():
    assert to_numpy(torch.ones(2, requires_grad=True) * 2).tolist() == [2.0, 2.0]


def test_special_values_survive():
    array = to_numpy(torch.tensor([float("nan"), float("inf"), -float("inf")], dtype=torch.bfloat16))
    np.testing.assert_array_equal(array, [np.nan, np.inf, -np.inf])


def test_a_lazily_negated_tensor_is_taken():
    assert to_numpy(torch.tensor([1 + 2j]).conj().imag).tolist() == [-2.0]


def test_complex_numbers_are_refused():
    with pytest.raises(ValueError, match=r"tensor must be real, got torch.complex64"):
        to_numpy(torch.tensor([1j]))
