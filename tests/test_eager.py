"""What only the reference has: every matrix, exact memory, gradients, and rows that overflow."""

import pytest
import torch

from attnviz.backends import BACKENDS, nonfinite_rows
from attnviz.masks import MASKS
from tests.peak import peak_bytes

attend = BACKENDS["eager"].attend


def draw(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype)


@pytest.mark.parametrize(("heads", "kv_heads"), ((4, 4), (4, 1)))
def test_memory_without_a_mask_is_two_matrices_and_four_rows(heads, kv_heads):
    length, width = 128, 16
    q, k, v = (draw(1, count, length, width) for count in (heads, kv_heads, kv_heads))
    matrix, output, row = heads * length**2 * 4, heads * length * width * 4, heads * length * 4
    assert peak_bytes(lambda: attend(q, k, v)) == 2 * matrix + output + 4 * row
    assert peak_bytes(lambda: attend(q, k, v, softcap=5.0)) == 2 * matrix + output + 4 * row


def test_memory_with_a_mask_is_three_matrices():
    q, k, v = (draw(1, 4, 128, 16) for _ in range(3))
    matrix, output = 4 * 128**2 * 4, 4 * 128 * 16 * 4
    allowed = torch.ones(128, 128, dtype=torch.bool).tril()
    allowed[7] = False
    peak = peak_bytes(lambda: attend(q, k, v, allowed=allowed))
    assert 3 * matrix <= peak <= 3 * matrix + 2 * output


def test_a_block_of_queries_is_that_block_of_the_whole():
    q, k, v = draw(2, 4, 33, 8), draw(2, 2, 17, 8), draw(2, 2, 17, 5)
    allowed = torch.rand(2, 1, 33, 17) > 0.4
    whole = attend(q, k, v, allowed=allowed)
    for start in range(0, 33, 8):
        rows = slice(start, start + 8)
        part = attend(q[:, :, rows], k, v, allowed=allowed[:, :, rows])
        for name in ("output", "weights", "scores", "logsumexp"):
            torch.testing.assert_close(getattr(part, name), getattr(whole, name)[:, :, rows])


def test_rows_of_weights_sum_to_one():
    weights = attend(draw(1, 1, 4, 8), draw(1, 1, 4, 8), draw(1, 1, 4, 8)).weights
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 4))
    assert (weights.sum(-2) - 1).abs().max() > 0.01


@pytest.mark.parametrize("options", ({}, {"softcap": 2.0}, {"scale": 0.3}))
@pytest.mark.parametrize("masked", (False, True))
def test_gradients_are_those_of_finite_differences(masked, options):
    tensors = [draw(1, 4, 3, 4), draw(1, 2, 5, 4), draw(1, 2, 5, 2), draw(4, 3, 5)]
    tensors = [tensor.double().requires_grad_() for tensor in tensors]
    allowed = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 1, 0, 0]]).bool() if masked else None

    def numbers(q, k, v, bias):
        result = attend(q, k, v, bias=bias, allowed=allowed, **options)
        seen = result.logsumexp if allowed is None else result.logsumexp[:, :, [0, 2]]
        return result.output, result.weights, seen

    assert torch.autograd.gradcheck(numbers, tensors)


def test_a_row_without_a_key_sends_no_nan_back():
    q, k, v = (draw(1, 1, 4, 8).requires_grad_() for _ in range(3))
    bias = torch.zeros(4, 4).requires_grad_()
    allowed = torch.ones(4, 4, dtype=torch.bool).tril(-1)
    result = attend(q, k, v, allowed=allowed, bias=bias)
    (result.output.sum() + result.weights.square().sum() + result.logsumexp[..., 1:].sum()).backward()
    for tensor in (q, k, v, bias):
        assert torch.isfinite(tensor.grad).all()
    assert (q.grad[0, 0, 0] == 0).all()
    assert q.grad[0, 0, 1:].abs().sum() > 0


@pytest.mark.parametrize(("dtype", "marked"), ((torch.float16, [False, True, False]), (torch.bfloat16, [False] * 3)))
def test_rows_that_overflow_are_marked(dtype, marked):
    """huggingface/transformers PR#33317: float16 gave NaN where bfloat16 did not."""
    q = torch.ones(1, 1, 3, 64, dtype=dtype)
    k = torch.full((1, 1, 5, 64), 40.0, dtype=dtype)
    q[:, :, 1] = 40.0  # 64 · 40 · 40 = 102,400 is more than float16 can hold
    result = attend(q, k, torch.ones_like(k))
    assert nonfinite_rows(result).flatten().tolist() == marked
    for fused in ("sdpa", "flash"):
        assert not nonfinite_rows(BACKENDS[fused].attend(q, k, torch.ones_like(k))).any()


def test_one_output_out_of_range_marks_its_row():
    q, k = draw(1, 1, 2, 8), draw(1, 1, 2, 8)
    v = torch.ones(1, 1, 2, 8)
    v[..., 1, 7] = torch.inf
    assert nonfinite_rows(attend(q, k, v, allowed=torch.ones(2, 2, dtype=torch.bool).tril())).all()
    assert not nonfinite_rows(attend(q, k, v[..., :7])).any()
    broken = q.clone()
    broken[..., 1, 0] = torch.nan
    assert nonfinite_rows(attend(broken, k, k)).flatten().tolist() == [False, True]
    assert not nonfinite_rows(attend(q, k, k, allowed=torch.zeros(2, 2, dtype=torch.bool))).any()


def test_scores_are_those_before_the_mask():
    q, k = draw(1, 1, 4, 8), draw(1, 1, 4, 8)
    bias = torch.zeros(4, 4)
    bias[0, 3] = -torch.inf
    result = attend(q, k, k, allowed=MASKS["causal"].build(), bias=bias)
    torch.testing.assert_close(result.scores, q @ k.transpose(-2, -1) / 8**0.5)
    assert (result.weights[0, 0].triu(1) == 0).all()
