"""What the flash page says of bytes, FLOPs, exactness and recomputed weights, held to what torch really does."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from attnviz.backends import BACKENDS
from attnviz.backends.flash import trace
from attnviz.flash_view import precision as exactness
from attnviz.flash_view import traffic, weights
from attnviz.flash_view.settle import settle
from attnviz.flash_view.walk import tensors
from attnviz.masks import MASKS, dense
from tests.peak import peak_bytes


class Exponentials(TorchDispatchMode):
    """Count the numbers that an exponential function is taken of."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.exp, torch.ops.aten.exp_, torch.ops.aten._softmax):
            self.count += args[0].numel()
        return result


def run_eager(view):
    allowed = dense(view.build_mask(), view.length, view.key_length, align=view.align)
    return BACKENDS["eager"].attend(*tensors(view), allowed=allowed, scale=view.scale)


def run_flash(view):
    return list(trace(*tensors(view), allowed=view.build_mask(), align=view.align, scale=view.scale, tile=view.tile))


VIEWS = (
    {"mask": "full"},
    {"mask": "causal", "length": "70", "tile_rows": "16", "tile_cols": "24"},
    {"mask": "document", "length": "60", "key_length": "90", "d_k": "8"},
)


@pytest.mark.parametrize("settings", VIEWS, ids=str)
@pytest.mark.parametrize(("run", "count"), ((run_eager, traffic.eager_work), (run_flash, traffic.flash_work)))
def test_the_arithmetic_is_what_torch_counts(settings, run, count):
    view = settle(settings).view
    tensors(view)
    with FlopCounterMode(display=False) as products, Exponentials() as exponentials:
        run(view)
    assert count(view).products == products.get_total_flops()
    assert count(view).exponentials == exponentials.count


def test_flash_computes_more_where_no_tile_is_skipped_and_blocks_are_small():
    view = settle({"mask": "full", "tile_cols": "4"}).view
    assert traffic.flash_work(view).total > traffic.eager_work(view).total
    assert traffic.flash_work(view).products == traffic.eager_work(view).products
    causal = settle({}).view
    assert traffic.flash_work(causal).total < 0.6 * traffic.eager_work(causal).total


@pytest.mark.parametrize("d_k", (3, 64, 256))
def test_the_tile_is_the_largest_that_fits(d_k):
    for memory in traffic.MEMORIES:
        tile = traffic.tile_for(memory, d_k)
        assert tile is not None and tile[1] == min(tile[0], d_k)
        assert traffic.tile_bytes(*tile, d_k) <= memory
        assert traffic.tile_bytes(tile[0] + 1, min(tile[0] + 1, d_k), d_k) > memory
    assert traffic.tile_for(8, d_k) is None


def test_a_tile_holds_what_the_walk_holds():
    view = settle({"mask": "full", "length": "32", "tile_cols": "8"}).view
    query, key, value = tensors(view)
    for step in run_flash(view):
        rows, cols = slice(*step.rows), slice(*step.cols)
        inputs = (query[:, :, rows], key[:, :, cols], value[:, :, cols])
        held = (*inputs, step.exponentials, step.maximum, step.total, step.output)
        assert sum(tensor.numel() * 4 for tensor in held) == traffic.tile_bytes(16, 8, 64)


@pytest.mark.parametrize("tokens", ("512", "1024"))
@pytest.mark.parametrize("d_k", ("16", "64"))
def test_dots_lie_on_the_formula(tokens, d_k):
    curve = traffic.against_memory(settle({"tokens": tokens, "d_k": d_k}).view)
    there = np.isfinite(curve.counted)
    assert there.sum() >= 8
    np.testing.assert_array_equal(curve.counted[there], curve.predicted[there])
    masked = np.isfinite(curve.masked)
    assert (curve.masked[masked] <= curve.predicted[masked]).all()
    assert (np.diff(curve.predicted) <= 0).all()


def test_the_count_is_what_the_trace_reads_and_the_call_writes():
    view = settle({"length": "512", "key_length": "512", "d_k": "32"}).view
    query, key, value = tensors(view)
    for mask in (None, MASKS["causal"].build(), MASKS["document"].build(lengths=(100, 300))):
        read = sum(step.read for step in trace(query, key, value, allowed=mask, tile=(64, 32)))
        result = BACKENDS["flash"].attend(query, key, value, allowed=mask)
        written = result.output.nbytes + result.logsumexp.nbytes
        assert traffic.counted_bytes(512, 32, (64, 32), mask) == read + written


def test_eager_moves_its_own_tensors():
    view = settle({"mask": "full", "length": "96", "d_k": "16"}).view
    result = run_eager(view)
    inputs = sum(tensor.nbytes for tensor in tensors(view))
    moved = inputs + result.output.nbytes + 2 * result.scores.nbytes + 2 * result.weights.nbytes
    assert traffic.eager_bytes(96, 16) == moved


def test_still_quadratic_in_the_length_but_what_is_held_is_linear():
    curve = traffic.against_length(settle({}).view)
    assert 3.7 < curve.predicted[-1] / curve.predicted[-2] < 4 > curve.eager[-1] / curve.eager[-2] > 3.9
    held = [traffic.held_bytes(int(at), 64, "flash") for at in curve.at]
    steps = np.diff(held) / np.diff(curve.at)
    assert steps[-1] == pytest.approx(4 * (64 + 1))  # one row of output and its log-sum-exp for each token
    assert [traffic.held_bytes(int(at), 64, "eager") for at in curve.at][-1] > 8192**2 * 8


@pytest.mark.parametrize("way", ("eager", "flash"))
def test_what_is_held_is_measured(way):
    inputs = [torch.randn(1, 1, 1024, 64) for _ in range(3)]
    measured = peak_bytes(lambda: BACKENDS[way].attend(*inputs))
    assert traffic.held_bytes(1024, 64, way) == pytest.approx(measured, rel=0.05)


def test_the_more_fast_memory_the_fewer_bytes_as_theorem_2_says():
    """From d to L d elements the product of M and the bytes stays within a small factor, where eager's is constant."""
    curve = traffic.against_memory(settle({"tokens": "4096", "d_k": "64", "mask": "full"}).view)
    inside = (curve.at >= 2**14) & (curve.at <= 2**19)
    products = (curve.at * curve.predicted)[inside]
    assert products.max() / products.min() < 2
    assert set(curve.eager) == {curve.eager[0]}


# ---- precision ----


@pytest.mark.parametrize("settings", ({}, {"sharpness": "8"}, {"mask": "sliding_window", "length": "200"}), ids=str)
def test_each_way_stays_within_twice_the_error_of_eager(settings):
    found = exactness.precision(settle(settings).view)
    for dtype, ways in found.errors.items():
        limit = 2 * ways["eager"].largest + torch.finfo(getattr(torch, dtype)).eps * found.largest
        assert all(error.largest <= limit for error in ways.values())
        assert 0 < ways["eager"].relative < 0.1


def test_in_short_types_eager_is_the_less_exact_one():
    errors = exactness.precision(settle({"length": "512", "sharpness": "8"}).view).errors
    for dtype in ("bfloat16", "float16"):
        assert errors[dtype]["flash"].relative < errors[dtype]["eager"].relative / 2
        assert errors[dtype]["sdpa"].relative < errors[dtype]["eager"].relative / 2


def test_the_error_is_the_distance_from_float64():
    view = settle({"length": "64"}).view
    query, key, value = (tensor.bfloat16() for tensor in tensors(view))
    hidden = torch.ones(64, 64, dtype=torch.bool).triu(1)
    scores = (query.double() @ key.double().mT * view.scale).masked_fill(hidden, -torch.inf)
    exact = torch.softmax(scores, -1) @ value.double()
    ours = BACKENDS["flash"].attend(query, key, value, allowed=view.build_mask(), scale=view.scale).output
    error = exactness.precision(view).errors["bfloat16"]["flash"]
    assert error.largest == pytest.approx(float((ours.double() - exact).abs().max()))
    assert error.relative == pytest.approx(float((ours.double() - exact).norm() / exact.norm()))


def test_long_views_are_measured_on_their_beginning():
    assert exactness.precision(settle({"length": "2048", "key_length": "16"}).view).size == (1024, 16)


# ---- weights ----


@pytest.mark.parametrize("mask", MASKS)
def test_any_region_of_the_weights_is_eager_s(mask):
    view = settle({"mask": mask, "length": "50", "key_length": "70", "align": "bottom_right"}).view
    exact = run_eager(view).weights[0, 0]
    for rows, cols in (((0, 50), (0, 70)), ((13, 29), (5, 6)), ((49, 50), (0, 70))):
        found, _ = weights.weights(view, rows, cols)
        torch.testing.assert_close(found, exact[slice(*rows), slice(*cols)], atol=2e-6, rtol=0)
    found = weights.proof(view)
    assert found.sums < 1e-5 and found.output < 1e-5 and found.eager < 1e-5
    allowed = dense(view.build_mask(), 50, 70, align="bottom_right")[0, 0]
    assert found.empty == int((~allowed.any(-1)).sum())


def test_a_pooled_map_shows_the_largest_and_what_is_hidden():
    view = settle({"mask": "padding", "side": "left", "lengths": "40", "length": "100", "key_length": "100"}).view
    exact = run_eager(view).weights[0, 0].numpy()
    drawn = weights.region(view, (0, 100), (0, 100), 30)
    assert drawn.pool == (4, 4) and drawn.values.shape == drawn.state.shape == (25, 25)
    np.testing.assert_allclose(drawn.values, exact.reshape(25, 4, 25, 4).max((1, 3)), atol=2e-6)
    np.testing.assert_array_equal(drawn.state, np.broadcast_to(np.arange(25) < 15, (25, 25)).astype(np.uint8))
    gone = weights.region(
        settle({"mask": "own", "rule": "q_idx > 3 and kv_idx < 9", "length": "20"}).view, (0, 20), (0, 20), 20
    )
    assert set(gone.state[:4].ravel()) == {2} and set(gone.state[4:, :9].ravel()) == {0}


def test_a_wrong_statistic_is_seen(monkeypatch):
    view = settle({"length": "40", "seed": "77"}).view
    real = BACKENDS["flash"].attend(*tensors(view), allowed=view.build_mask(), scale=view.scale)
    monkeypatch.setattr(weights, "_fused", lambda view: type(real)(real.output, logsumexp=real.logsumexp + 0.01))
    weights._proof.cache_clear()
    found = weights.proof(view)
    assert min(found.sums, found.eager) > 1e-3 and found.output > 1e-3
    weights._proof.cache_clear()


@pytest.mark.parametrize("d_k", [1, 2, 64, 128, 256, 1024])
@pytest.mark.parametrize("tokens", [1, 2, 100, 1024])
def test_the_least_memory_with_which_flash_moves_less_is_exact(tokens, d_k):
    def moves_less(memory: int) -> bool:
        tile = traffic.tile_for(memory, d_k)
        return tile is not None and traffic.predicted_bytes(tokens, d_k, tile[0]) < traffic.eager_bytes(tokens, d_k)

    least = traffic.least_memory(tokens, d_k)
    if least is None:
        assert not moves_less(1 << 40)
    else:
        assert moves_less(least) and not moves_less(least - 1)
