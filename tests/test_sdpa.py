"""What only the fused call has: which kernel runs, what is handed to it, and statistics that come late."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnviz.backends import BACKENDS
from attnviz.masks import MASKS, dense
from tests.peak import peak_bytes

attend = BACKENDS["sdpa"].attend
eager = BACKENDS["eager"].attend
CAUSAL = MASKS["causal"].build()


def draw(heads, length, width=16, batch=1):
    return torch.randn(batch, heads, length, width)


@pytest.mark.parametrize("masked", (None, "causal", "tensor", "bias"))
def test_the_output_is_that_of_the_bare_call(masked):
    q, k, v = draw(4, 48), draw(4, 48), draw(4, 48)
    grid, bias = torch.rand(48, 48) > 0.3, torch.randn(4, 48, 48)
    ours, theirs = {
        None: ({}, {}),
        "causal": ({"allowed": CAUSAL}, {"is_causal": True}),
        "tensor": ({"allowed": grid}, {"attn_mask": grid}),
        "bias": ({"bias": bias}, {"attn_mask": bias[None]}),
    }[masked]
    assert torch.equal(attend(q, k, v, **ours).output, F.scaled_dot_product_attention(q, k, v, **theirs))


KERNELS = {
    "plain": ((4, 48, 16), (4, 48, 16), {}, "flash"),
    "causal": ((4, 48, 16), (4, 48, 16), {"allowed": CAUSAL}, "flash"),
    "value width": ((4, 48, 16), (4, 48, 8), {}, "math"),
    "shared heads": ((4, 48, 16), (2, 48, 16), {"allowed": CAUSAL}, "flash"),
    "decode": ((4, 1, 16), (2, 48, 16), {}, "packed decode · flash"),
    "decode bottom right": (
        (4, 1, 16),
        (1, 48, 16),
        {"allowed": CAUSAL, "align": "bottom_right"},
        "packed decode · flash",
    ),
    "decode value width": ((4, 1, 16), (2, 48, 8), {}, "packed decode · math"),
    "softcap": ((4, 48, 16), (4, 48, 16), {"softcap": 5.0}, "eager in row blocks (softcap)"),
    "window": ((4, 150, 16), (4, 150, 16), {"allowed": MASKS["sliding_window"].build(window=8)}, "flash · row blocks"),
    "unseen": ((4, 3, 16), (4, 48, 16), {"allowed": ~MASKS["full"].build() & CAUSAL}, "flash"),
}


@pytest.mark.parametrize("case", KERNELS)
def test_the_kernel_that_ran_is_named(case):
    (heads, q_len, width), (kv_heads, kv_len, value_width), options, kernel = KERNELS[case]
    q, k, v = draw(heads, q_len, width), draw(kv_heads, kv_len, width), draw(kv_heads, kv_len, value_width)
    assert attend(q, k, v, **options).kernel == kernel


def test_a_kernel_that_is_asked_for_is_the_one_that_is_named():
    q, k, v = draw(4, 48), draw(2, 48), draw(2, 48)
    with sdpa_kernel(SDPBackend.MATH):
        result = attend(q, k, v)
    assert result.kernel == "math"
    torch.testing.assert_close(result.logsumexp, eager(q, k, v).logsumexp)


def test_torch_itself_runs_the_kernel_that_we_call():
    """The name in a trace of the bare call is the name of the kernel called here."""
    q = draw(4, 48)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        F.scaled_dot_product_attention(q, q, q)
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in {event.key for event in profile.key_averages()}


def test_late_statistics_are_worked_out_once_and_let_the_inputs_go():
    q, k, v = draw(4, 48), draw(2, 48), draw(2, 48, width=8)
    result = attend(q, k, v, allowed=CAUSAL)
    assert "logsumexp" not in vars(result)
    assert result.logsumexp is result.logsumexp
    assert "_statistics" not in vars(result)
    torch.testing.assert_close(result.logsumexp, eager(q, k, v, allowed=CAUSAL).logsumexp)


def test_late_statistics_are_kept_in_float32():
    q, k, v = draw(4, 48), draw(4, 48), draw(4, 48, width=8)
    half = [tensor.bfloat16() for tensor in (q, k, v)]
    right = eager(*(tensor.double() for tensor in half)).logsumexp
    torch.testing.assert_close(attend(*half).logsumexp, right.float(), rtol=1e-6, atol=1e-6)


LENGTH = 1024
MATRIX = LENGTH**2 * 4  # one float32 matrix of one head


@pytest.mark.parametrize("align", ("top_left", "bottom_right"))
@pytest.mark.parametrize(
    "mask", (CAUSAL, MASKS["sliding_window"].build(window=64), MASKS["local_window"].build(radius=9))
)
def test_a_mask_of_known_shape_is_never_spread_out(mask, align):
    q, k, v = draw(2, LENGTH - 200), draw(2, LENGTH), draw(2, LENGTH)
    assert peak_bytes(lambda: attend(q, k, v, allowed=mask, align=align)) < MATRIX


def test_no_mask_is_made_for_a_causal_call():
    q, k, v = draw(2, LENGTH), draw(2, LENGTH), draw(2, LENGTH)
    bare = peak_bytes(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    assert peak_bytes(lambda: attend(q, k, v, allowed=CAUSAL)) == bare


def test_late_statistics_and_softcap_hold_a_block_of_rows(monkeypatch):
    monkeypatch.setattr("attnviz.backends.sdpa_memory._BLOCK_CELLS", 2 * LENGTH * 16)
    q, k, v = draw(2, LENGTH), draw(2, LENGTH), draw(2, LENGTH, width=8)
    result = attend(q, k, v)
    assert peak_bytes(lambda: result.logsumexp) < MATRIX / 4
    assert peak_bytes(lambda: attend(q, k, v, softcap=2.0)) < MATRIX / 4
    right = eager(q, k, v)
    torch.testing.assert_close(result.logsumexp, right.logsumexp)
    torch.testing.assert_close(attend(q, k, v, softcap=2.0).output, eager(q, k, v, softcap=2.0).output)


def test_packed_decode_makes_no_copy_of_the_cache():
    q, k, v = draw(8, 1), draw(2, 4096), draw(2, 4096)
    assert peak_bytes(lambda: attend(q, k, v)) < k.nbytes / 4


@pytest.mark.parametrize("mask", ("causal", "sliding_window"))
@pytest.mark.parametrize("kv_heads", (4, 2))
def test_gradients_are_those_of_eager(kv_heads, mask):
    tensors = [draw(4, 80).double(), draw(kv_heads, 80).double(), draw(kv_heads, 80).double()]
    grads = []
    for call in (attend, eager):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        call(*leaves, allowed=MASKS[mask].build()).output.square().sum().backward()
        grads.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("scale", (0.0, -0.5))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float64))
def test_a_causal_mask_survives_a_scale_that_is_not_positive(dtype, scale):
    """The kernel of torch scales behind its own causal mask: 0 · −inf is NaN, and a negative scale makes +inf of it."""
    q, k, v = (torch.randn(1, 2, 9, 4, dtype=dtype) for _ in range(3))
    found = BACKENDS["sdpa"].attend(q, k, v, allowed=MASKS["causal"].build(), scale=scale)
    exact = BACKENDS["eager"].attend(
        q.double(), k.double(), v.double(), allowed=dense(MASKS["causal"].build(), 9, 9), scale=scale
    )
    tolerance = 4 * torch.finfo(dtype).eps * float(exact.output.abs().max())
    torch.testing.assert_close(found.output.double(), exact.output, atol=tolerance, rtol=0)
    torch.testing.assert_close(
        found.logsumexp.double(), exact.logsumexp, atol=0.05 if dtype == torch.bfloat16 else 1e-5, rtol=0
    )
