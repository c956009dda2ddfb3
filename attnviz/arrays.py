"""Tensors as NumPy arrays, for everything that draws or writes files."""

import numpy as np
import torch
from torch import Tensor


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Give a tensor's values as a C-contiguous NumPy array.

    Types that NumPy lacks or that pictures should not compute in (float16, bfloat16, float8) become float32; float32,
    float64, integers and bool stay. On the CPU the array may share memory with the tensor: write to neither.

    Args:
        tensor: Any real tensor on any device, with or without gradient.

    Returns:
        Array of the tensor's shape.

    Raises:
        ValueError: If the tensor is complex.
    """
    if tensor.is_complex():
        raise ValueError(f"tensor must be real, got {tensor.dtype}")
    tensor = tensor.detach()
    if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.to(torch.float32)
    return tensor.cpu().resolve_neg().contiguous().numpy()
