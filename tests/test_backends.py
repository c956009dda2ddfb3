"""Every backend gives what loops in float64 give, for every mask, shape, option and edge."""

from functools import lru_cache

import numpy as np
import pytest
import torch

from attnviz.backends import BACKENDS, nonfinite_rows
from attnviz.masks import MASKS, dense
from attnviz.text import Refusal
from tests.oracle import attention

SHAPES = ((1, 1), (7, 9), (16, 16), (33, 17))
BATCH, HEADS, KV_HEADS, WIDTH, VALUE_WIDTH = 2, 4, 2, 6, 5
SETTINGS = {"padding": {"lengths": (5, 2)}}  # the others' own defaults suit these shapes


def build(key):
    return MASKS[key].build(**SETTINGS.get(key, {}))


@lru_cache
def inputs(q_len, kv_len, *, kv_heads=KV_HEADS, value_width=VALUE_WIDTH):
    draw = torch.Generator().manual_seed(q_len * 100 + kv_len)
    shapes = ((HEADS, q_len, WIDTH), (kv_heads, kv_len, WIDTH), (kv_heads, kv_len, value_width))
    return tuple(torch.randn(BATCH, *shape, generator=draw, dtype=torch.float64) for shape in shapes)


@lru_cache
def expected(shape, mask=None, align="top_left", *, value_width=VALUE_WIDTH):
    grid = None if mask is None else dense(build(mask), *shape, align=align, batch=BATCH, heads=HEADS).numpy()
    return attention(*(tensor.numpy() for tensor in inputs(*shape, value_width=value_width)), allowed=grid)


def close(result, right, tolerance=1e-12):
    """Compare output and log-sum-exp, and what eager keeps besides."""
    pairs = [(result.output, right.output), (result.logsumexp, right.logsumexp)]
    if result.weights is not None:
        pairs += [(result.weights, right.weights), (result.scores, right.scores)]
    for given, wanted in pairs:
        assert given.dtype == torch.float64
        assert tuple(given.shape) == wanted.shape
        np.testing.assert_allclose(given.numpy(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("align", ("top_left", "bottom_right"))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_mask_in_every_shape(backend, mask, shape, align):
    result = BACKENDS[backend].attend(*inputs(*shape), allowed=build(mask), align=align)
    close(result, expected(shape, mask, align))


@pytest.mark.parametrize("align", ("top_left", "bottom_right"))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("backend", ("sdpa", "flash"))
def test_every_mask_where_the_fused_kernel_runs(backend, mask, shape, align):
    result = BACKENDS[backend].attend(*inputs(*shape, value_width=WIDTH), allowed=build(mask), align=align)
    close(result, expected(shape, mask, align, value_width=WIDTH))
    assert "math" not in result.kernel


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_and_its_grid_are_one(backend, mask):
    grid = dense(build(mask), 33, 17, batch=BATCH, heads=HEADS)
    result = BACKENDS[backend].attend(*inputs(33, 17), allowed=grid)
    close(result, expected((33, 17), mask))


@pytest.mark.parametrize("value_width", (WIDTH, VALUE_WIDTH))
@pytest.mark.parametrize("options", ({"scale": 0.0}, {"scale": 1.7}, {"softcap": 1.5}, {"scale": 3.0, "softcap": 0.5}))
@pytest.mark.parametrize("biased", (False, True))
@pytest.mark.parametrize("masked", (False, True))
@pytest.mark.parametrize("backend", BACKENDS)
def test_options_alone_and_together(backend, options, biased, masked, value_width):
    q, k, v = inputs(7, 9, value_width=value_width)
    terms = {}
    if biased:
        terms["bias"] = torch.randn(HEADS, 7, 9, dtype=torch.float64)
        terms["bias"][1, 2:4] = -torch.inf
        terms["bias"][2, :, 3] = -torch.inf
    if masked:
        terms["allowed"] = torch.rand(BATCH, 1, 7, 9) > 0.5
        terms["allowed"][1, :, 4] = False
    right = attention(q, k, v, **options, **{name: term.numpy() for name, term in terms.items()})
    close(BACKENDS[backend].attend(q, k, v, **options, **terms), right)


@pytest.mark.parametrize("shape", ((9,), (7, 1), (1, 9), (1, 1, 9), (HEADS, 1, 9), (BATCH, 1, 1, 9), (1, HEADS, 7, 1)))
@pytest.mark.parametrize("value_width", (WIDTH, VALUE_WIDTH))
@pytest.mark.parametrize("backend", BACKENDS)
def test_masks_and_biases_spread_from_any_axis(backend, shape, value_width):
    q, k, v = inputs(7, 9, value_width=value_width)
    allowed, bias = torch.rand(shape) > 0.4, torch.randn(shape, dtype=torch.float64)
    right = attention(q, k, v, allowed=allowed.numpy(), bias=bias.numpy())
    close(BACKENDS[backend].attend(q, k, v, allowed=allowed, bias=bias), right)
    close(BACKENDS[backend].attend(q, k, v, allowed=allowed), attention(q, k, v, allowed=allowed.numpy()))


@pytest.mark.parametrize("q_len", (1, 3, 16, 17))
@pytest.mark.parametrize("kv_heads", (1, 2, 4))
@pytest.mark.parametrize("masked", ("nothing", "causal", "tensor"))
@pytest.mark.parametrize("backend", BACKENDS)
def test_shared_heads_are_repeated_heads(backend, q_len, kv_heads, masked):
    q, k, v = inputs(q_len, 21, kv_heads=kv_heads, value_width=WIDTH)
    options = {"nothing": None, "causal": MASKS["causal"].build(), "tensor": torch.rand(BATCH, HEADS, q_len, 21) > 0.3}
    terms = {"allowed": options[masked], "align": "bottom_right"}
    shared = BACKENDS[backend].attend(q, k, v, **terms)
    repeated = (tensor.repeat_interleave(HEADS // kv_heads, dim=1) for tensor in (k, v))
    plain = BACKENDS[backend].attend(q, *repeated, **terms)
    torch.testing.assert_close(shared.output, plain.output, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(shared.logsumexp, plain.logsumexp, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_that_are_not_contiguous(backend):
    q, k, v = inputs(16, 16)
    strided = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v))
    close(BACKENDS[backend].attend(*strided), expected((16, 16)))


@pytest.mark.parametrize("mask", ("causal", "sliding_window", "document"))
@pytest.mark.parametrize("backend", ("sdpa", "flash"))
def test_many_blocks_give_what_one_matrix_gives(backend, mask):
    draw = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, heads, 700, 8, generator=draw, dtype=torch.float64) for heads in (2, 1, 1))
    settings = {"sliding_window": {"window": 130}, "document": {"lengths": (100, 333)}}
    allowed = MASKS[mask].build(**settings.get(mask, {}))
    for q_len in (700, 390):
        terms = {"allowed": allowed, "align": "bottom_right"}
        right = BACKENDS["eager"].attend(q[:, :, :q_len], k, v, **terms)
        result = BACKENDS[backend].attend(q[:, :, :q_len], k, v, **terms)
        torch.testing.assert_close(result.output, right.output, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(result.logsumexp, right.logsumexp, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", ((600,), (300, 1)))
@pytest.mark.parametrize("backend", ("sdpa", "flash"))
def test_many_blocks_of_a_mask_that_spreads(backend, shape):
    q, k, v = (torch.randn(1, 1, length, 8, dtype=torch.float64) for length in (300, 600, 600))
    terms = {"allowed": torch.rand(shape) > 0.3, "bias": torch.randn(shape, dtype=torch.float64)}
    right = BACKENDS["eager"].attend(q, k, v, **terms)
    torch.testing.assert_close(BACKENDS[backend].attend(q, k, v, **terms).output, right.output)
    causal = {"allowed": MASKS["causal"].build(), "bias": terms["bias"]}
    right = BACKENDS["eager"].attend(q, k, v, **causal)
    torch.testing.assert_close(BACKENDS[backend].attend(q, k, v, **causal).output, right.output)


@pytest.mark.parametrize("peaky", (1.0, 20.0))
@pytest.mark.parametrize("mask", (None, "causal", "sliding_window"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("backend", ("sdpa", "flash"))
def test_rounding_stays_within_twice_that_of_eager(backend, dtype, mask, peaky):
    draw = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, 4, 64, 32, generator=draw).mul(factor).to(dtype) for factor in (peaky, 1.0, 1.0))
    allowed = None if mask is None else build(mask)
    truth = BACKENDS["eager"].attend(q.double(), k.double(), v.double(), allowed=allowed)
    eager, result = (BACKENDS[name].attend(q, k, v, allowed=allowed) for name in ("eager", backend))
    assert (result.output.dtype, result.logsumexp.dtype) == (dtype, torch.float32)
    for given, reference, right, eps in (
        (result.output, eager.output, truth.output, torch.finfo(dtype).eps),
        (result.logsumexp, eager.logsumexp, truth.logsumexp, torch.finfo(torch.float32).eps),
    ):
        own = (reference.double() - right).abs().max()
        assert (given.double() - right).abs().max() <= 2 * own + eps * right.abs().max()


@pytest.mark.parametrize("backend", BACKENDS)
def test_very_large_scores_stay_finite(backend):
    q, k, v = inputs(16, 16)
    result = BACKENDS[backend].attend(q * 1e8, k * 1e8, v)
    close(result, attention(q * 1e8, k * 1e8, v), 1e-6)
    assert not nonfinite_rows(result).any()


@pytest.mark.parametrize("value_width", (8, 3))
@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_without_a_key_is_zero(backend, dtype, value_width):
    """pytorch/pytorch#103749: rows 0 to 4 see a lower triangle of 10 keys, row 5 sees nothing."""
    q, k, v = (torch.randn(1, 1, length, width).to(dtype) for length, width in ((6, 8), (10, 8), (10, value_width)))
    allowed = torch.ones(6, 10, dtype=torch.bool).tril()
    allowed[5] = False
    result = BACKENDS[backend].attend(q, k, v, allowed=allowed, scale=0.125)
    assert torch.isfinite(result.output).all()
    assert (result.output[0, 0, 5] == 0).all()
    assert torch.isneginf(result.logsumexp[0, 0]).tolist() == [False] * 5 + [True]
    assert (result.output[0, 0, :5].abs().amax(-1) > 0).all()
    if result.weights is not None:
        assert (result.weights[0, 0, 5] == 0).all()
    everything = BACKENDS[backend].attend(q, k, v, allowed=torch.zeros(1, dtype=torch.bool))
    assert (everything.output == 0).all()
    assert torch.isneginf(everything.logsumexp).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_score_of_zero_is_no_empty_row(backend):
    """A log-sum-exp of exactly 0 is what torch's kernel also reports for a row without a key."""
    q, k = torch.zeros(1, 1, 2, 4), torch.ones(1, 1, 3, 4)
    allowed = torch.tensor([[True, False, False], [False, False, False]])
    result = BACKENDS[backend].attend(q, k, torch.ones(1, 1, 3, 4), allowed=allowed)
    assert result.logsumexp[0, 0].tolist() == [0.0, -torch.inf]
    assert result.output[0, 0].tolist() == [[1.0] * 4, [0.0] * 4]


@pytest.mark.parametrize("backend", BACKENDS)
def test_masked_keys_get_nothing_at_any_score(backend):
    """TransformerLens#318: scores near -2e5 lie below a mask value of -1e5; ours are left out instead."""
    q, k = torch.ones(1, 1, 1, 1), torch.full((1, 1, 3, 1), -2e5)
    allowed = torch.tensor([True, False, False])
    result = BACKENDS[backend].attend(q, k, torch.eye(3)[None, None], allowed=allowed, scale=1.0)
    assert result.output.flatten().tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(("align", "counts"), (("top_left", [1, 2]), ("bottom_right", [4, 5])))
@pytest.mark.parametrize("backend", BACKENDS)
def test_both_alignments_of_a_causal_mask(backend, align, counts):
    """pytorch/pytorch#103082, #108108; flash-attention#20: 2 queries and 5 keys."""
    q, k = torch.randn(1, 1, 2, 5), torch.randn(1, 1, 5, 5)
    result = BACKENDS[backend].attend(q, k, torch.eye(5)[None, None], allowed=MASKS["causal"].build(), align=align)
    assert (result.output > 0).sum(-1).flatten().tolist() == counts


@pytest.mark.parametrize("backend", ("sdpa", "flash"))
def test_weights_recomputed_from_the_row_statistics_are_those_that_were_used(backend):
    """huggingface/transformers#31990: the map on screen must be the one that the fast path used."""
    q, k, v = (torch.randn(2, 4, 48, 16) for _ in range(3))
    fast = BACKENDS[backend].attend(q, k, v, allowed=MASKS["causal"].build())
    slow = BACKENDS["eager"].attend(q, k, v, allowed=MASKS["causal"].build())
    weights = (slow.scores - fast.logsumexp[..., None]).exp() * torch.ones(48, 48).tril()
    torch.testing.assert_close(weights, slow.weights, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights @ v, fast.output, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("unmasked", (True, False))
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_masked_value_can_do(backend, unmasked):
    """pytorch/pytorch#101967: a large masked key changes nothing; a NaN among its values reaches every output."""
    x = torch.arange(8.0).reshape(1, 1, 2, 4)
    allowed = torch.tensor([True, unmasked])
    plain = BACKENDS[backend].attend(x, x, x, allowed=allowed)
    huge, broken = x.clone(), x.clone()
    huge[..., 1, :], broken[..., 1, :] = 1e10, torch.nan
    loud = BACKENDS[backend].attend(x, huge, huge, allowed=allowed)
    assert torch.equal(loud.output, plain.output) != unmasked
    assert BACKENDS[backend].attend(x, broken, broken, allowed=allowed).output.isnan().all()


@pytest.mark.parametrize(("heads", "kv_heads"), ((3, 2), (33, 2)))
@pytest.mark.parametrize("backend", BACKENDS)
def test_heads_that_do_not_divide_are_refused(backend, heads, kv_heads):
    """fla-org/flash-linear-attention#1029; wandb/senpai PR#2309."""
    q, k = torch.randn(1, heads, 4, 8), torch.randn(1, kv_heads, 4, 8)
    with pytest.raises(
        Refusal, match=f"^kv_heads must be a divisor of the {heads} query heads, got {kv_heads}\\.$"
    ) as caught:
        BACKENDS[backend].attend(q, k, k)
    assert str(heads) in caught.value.text.zh


WRONG = {
    "query": ({"query": torch.ones(2, 3, 4)}, r"\[batch, heads, length, head_dim\], got \[2, 3, 4\] float32"),
    "integers": (
        {"key": torch.ones(1, 2, 5, 4, dtype=torch.int64)},
        "key must be float32, bfloat16, float16 or float64",
    ),
    "eight bits": ({"query": torch.ones(1, 2, 3, 4).to(torch.float8_e5m2)}, "query must be float32, .* float8_e5m2"),
    "nothing": ({"query": torch.ones(1, 2, 0, 4)}, "query must be at least 1 long on every axis"),
    "key width": ({"key": torch.ones(1, 2, 5, 3)}, r"key must be \[1, kv_heads, kv_len, 4\]"),
    "key batch": ({"key": torch.ones(2, 2, 5, 4)}, r"key must be \[1, kv_heads"),
    "value length": ({"value": torch.ones(1, 2, 6, 4)}, r"value must be \[1, 2, 5, any width\]"),
    "dtype": ({"value": torch.ones(1, 2, 5, 4, dtype=torch.float64)}, "value must be of the dtype"),
    "float mask": (
        {"allowed": torch.ones(3, 5)},
        r"allowed must be a Mask or a boolean tensor .*, got \[3, 5\] float32",
    ),
    "mask shape": (
        {"allowed": torch.ones(4, 5, dtype=torch.bool)},
        r"broadcastable to \[1, 2, 3, 5\], got \[4, 5\] bool",
    ),
    "mask axes": ({"allowed": torch.ones(1, 1, 1, 3, 5, dtype=torch.bool)}, "allowed must be broadcastable"),
    "bias": ({"bias": torch.ones(3, 5, dtype=torch.bool)}, "bias must be a floating-point tensor"),
    "bias shape": ({"bias": torch.ones(3, 4)}, "bias must be broadcastable"),
    "align": ({"align": "left"}, "align must be one of top_left, bottom_right, got 'left'"),
    "scale": ({"scale": float("nan")}, "scale must be a finite number or None, got nan"),
    "softcap": ({"softcap": 0.0}, "softcap must be a finite number above 0 or None, got 0.0"),
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("backend", BACKENDS)
def test_misuse_names_argument_rule_and_value(backend, fault):
    changed, words = WRONG[fault]
    right = {"query": torch.ones(1, 2, 3, 4), "key": torch.ones(1, 2, 5, 4), "value": torch.ones(1, 2, 5, 4)}
    with pytest.raises(Refusal, match=words) as caught:
        BACKENDS[backend].attend(**(right | changed))
    assert caught.value.text.zh != caught.value.text.en


def test_the_registry_says_what_runs():
    assert list(BACKENDS) == ["eager", "sdpa", "flash"]
    for key, backend in BACKENDS.items():
        assert backend.key == key
        assert backend.label.en and backend.label.zh and backend.help.en and backend.help.zh
        assert backend.source.startswith("https://")
        assert BACKENDS[key].attend(*inputs(7, 9)).kernel
