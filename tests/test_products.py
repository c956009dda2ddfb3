"""Stacked queries over many keys as two products: the same numbers, taken only where they hold and pay."""

import pytest
import torch

from attnviz.backends import BACKENDS, products
from attnviz.config import Shape
from tests.peak import peak_bytes

NAME = f"packed decode · {products.KERNEL}"
# batch, heads, kv_heads, q_len, kv_len, width, value width
SHAPES = [(1, 32, 1, 1, 1024, 576, 576), (2, 64, 2, 1, 4096, 128, 96), (1, 8, 1, 16, 1100, 128, 130)]


def tensors(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    batch, heads, kv_heads, q_len, kv_len, width, value_width = shape
    drawn = torch.Generator().manual_seed(0)
    sizes = ((heads, q_len, width), (kv_heads, kv_len, width), (kv_heads, kv_len, value_width))
    return [torch.randn(batch, *size, generator=drawn, dtype=torch.float64).to(dtype) for size in sizes]


def kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **given: object) -> str | None:
    return BACKENDS["sdpa"].attend(query, key, value, **given).kernel  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("scale", [None, 0.0, 30.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_products_give_what_the_reference_gives(shape, scale):
    given = tensors(shape)
    exact = BACKENDS["eager"].attend(*(each.double() for each in given), scale=scale)
    own = BACKENDS["eager"].attend(*given, scale=scale)
    found = BACKENDS["sdpa"].attend(*given, scale=scale)
    assert found.kernel == NAME and found.logsumexp is not None
    for name in ("output", "logsumexp"):
        wanted = getattr(exact, name)
        most = 2 * (getattr(own, name) - wanted).abs().max() + torch.finfo(torch.float32).eps * wanted.abs().max()
        assert (getattr(found, name) - wanted).abs().max() <= most


def test_the_start_of_a_longer_cache_is_taken_as_it_is():
    query, key, value = tensors(SHAPES[0])
    assert kernel(query, key[:, :, :1000], value[:, :, :1000]) == NAME


@pytest.mark.parametrize("case", ["mask", "bias", "few", "double", "half", "gradient", "own heads", "spread rows"])
def test_all_else_stays_with_the_fused_call(case):
    query, key, value = tensors(SHAPES[0])
    given: dict[str, object] = {}
    if case == "mask":
        given = {"allowed": torch.ones(1, 1024, dtype=torch.bool)}
    elif case == "bias":
        given = {"bias": torch.zeros(1, 1024)}
    elif case == "few":
        key, value = key[:, :, :800], value[:, :, :800]
    elif case in ("double", "half"):
        dtype = torch.float64 if case == "double" else torch.bfloat16
        query, key, value = (each.to(dtype) for each in (query, key, value))
    elif case == "gradient":
        value.requires_grad_()
    elif case == "own heads":
        key, value = (each.expand(-1, 32, -1, -1) for each in (key, value))
    else:
        value = torch.cat((value, value), dim=-1)[..., :576]
    assert products.KERNEL not in str(kernel(query, key, value, **given))


def test_a_torch_without_the_operator_uses_the_fused_call(monkeypatch):
    given = tensors(SHAPES[0])
    with_products = BACKENDS["sdpa"].attend(*given).output
    monkeypatch.setattr(products, "_linear", None)
    without = BACKENDS["sdpa"].attend(*given)
    assert without.kernel == "packed decode · flash"
    torch.testing.assert_close(without.output, with_products)


def test_without_gradients_wanted_what_could_have_one_is_taken():
    query, key, value = tensors(SHAPES[0])
    with torch.no_grad():
        assert kernel(query, key, value.requires_grad_()) == NAME


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_peak_is_predicted_but_for_scratch(shape):
    given = tensors(shape)
    batch, heads, kv_heads, q_len, kv_len, width, value_width = shape
    predicted = BACKENDS["sdpa"].peak_bytes(Shape(batch, heads, kv_heads, q_len, kv_len, width, value_width), 4, False)
    assert 0 <= peak_bytes(lambda: BACKENDS["sdpa"].attend(*given)) - predicted < 2**16
