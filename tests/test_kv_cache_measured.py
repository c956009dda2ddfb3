"""What the KV cache page measures: requests at one shape, times beside predictions, both sections in both languages."""

from dataclasses import replace

import pytest

from attnviz.benchmark import Failure, Latency, Measurement, Point, measure, predict
from attnviz.kv_cache_view import measured as measuring
from attnviz.kv_cache_view.knobs import VARIANT_KEYS
from attnviz.kv_cache_view.view import settle
from attnviz.text import LANGUAGES
from attnviz.variants import VARIANTS
from pages.ui.translate import say
from tests.pages import check, keys, link, plots, said, visit, widgets

NAMES = ("with", "without")


def view(**given):
    return settle(given).view


def test_every_variant_decodes_packed_and_expanded():
    """Really run, small: every contestant has a time, and which kernel ran says whether anything was expanded."""
    request = measuring.step_request(view(), "packed", "expanded")
    assert [one.label for one in request.contestants] == [
        "MHA 32/32", "GQA 32/8 · packed", "GQA 32/8 · expanded", "MQA 32/1 · packed", "MQA 32/1 · expanded",
        "MLA 256 + 32 · packed", "MLA 256 + 32 · expanded",
    ]  # fmt: skip
    assert request.keys == 8192 and {one.what for one in request.contestants} == {"decode"}
    result = measure(replace(request, kv_len=64, rounds=3, budget_s=0.1, limit_s=120))
    assert isinstance(result, Measurement)
    assert all(point.latency_s is not None and point.failure is None for point in result.points)
    packed, expanded = (
        [point.kernel for point, one in zip(result.points, request.contestants, strict=True) if one.kv == kv]
        for kv in ("packed", "expanded")
    )
    assert (len(packed), len(expanded)) == (4, 3)
    assert all("packed decode" in kernel for kernel in packed[1:])
    assert not any("packed decode" in kernel or "absorbed" in kernel for kernel in expanded)


def test_caches_are_those_of_the_declarations():
    request = measuring.step_request(view(decode_context="512"), "p", "e")
    sizes = {one.variant: measuring.cache_bytes(request, one) for one in request.contestants}
    assert sizes == {"mha": 512 * 4096 * 4, "gqa": 512 * 1024 * 4, "mqa": 512 * 128 * 4, "mla": 512 * 288 * 4}


def test_expanded_copies_are_in_the_least_time():
    """The copy is as large as MHA's cache and is written and read: no machine has it for nothing."""
    request = measuring.step_request(view(), "packed", "expanded")
    found = {one.label: predict(one, request) for one in request.contestants}
    mha = 8192 * 4096 * 4
    for name in ("GQA 32/8", "MQA 32/1"):
        packed, expanded = found[f"{name} · packed"], found[f"{name} · expanded"]
        assert expanded.bytes_moved - packed.bytes_moved == 2 * mha
        assert expanded.peak_bytes - packed.peak_bytes == mha and expanded.flops == packed.flops
        assert expanded.bytes_moved > found["MHA 32/32"].bytes_moved > packed.bytes_moved
    packed, expanded = found["MLA 256 + 32 · packed"], found["MLA 256 + 32 · expanded"]
    # Keys and values of 64 for 32 heads, projected from 256 anew for each of 8,192 tokens, and read.
    assert expanded.bytes_moved - packed.bytes_moved > 8192 * 32 * 2 * (64 + 64) * 4
    assert expanded.flops - packed.flops > 2 * 8192 * 256 * 32 * 100


@pytest.mark.parametrize("variant", VARIANT_KEYS)
def test_work_is_predicted_by_the_declaration(variant):
    requests = measuring.work_requests(view(variant=variant), NAMES)
    kept, again = measuring.grown(requests, ())
    assert kept.contexts == measuring.CONTEXTS and kept.xs == () and kept.predicted is None
    config = VARIANTS[variant].config(**measuring.sizes_of(variant))
    for place, context in enumerate(kept.contexts):
        assert kept.flops[place] == VARIANTS[variant].flops(config, 1, context, 1)
        assert again.flops[place] == VARIANTS[variant].flops(config, context, context, context)


def test_times_stand_beside_what_the_flops_say():
    requests = measuring.work_requests(view(variant="mha"), NAMES)

    def point(seconds):
        return Point("x", Latency(seconds, seconds * 0.9, seconds * 1.1, seconds * 0.8, 9))

    results = [
        Measurement((point(0.002), point(0.01))),
        Failure("time", "1 s", partial=Measurement((point(0.003), Point("without")))),
        Measurement((point(0.004), point(0.08))),
    ]
    kept, again = measuring.grown(requests, results)
    assert (kept.xs, kept.medians) == ((64, 128, 256), (0.002, 0.003, 0.004))
    assert (again.xs, again.medians) == ((64, 256), (0.01, 0.08))
    assert again.predicted is not None and kept.predicted is not None
    # The line goes through the largest pass without a cache, and gives every number of FLOPs that speed.
    assert again.predicted[2] == pytest.approx(0.08)
    assert kept.predicted[0] == pytest.approx(0.08 * kept.flops[0] / again.flops[2])


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_sections_open_before_anything_is_measured(language):
    app = visit(language, page="kv_cache", decode_context="2048", variant="mla")
    app.session_state["kv_cache.fold.work"] = True
    check(app.run())
    assert widgets(app)["kv_cache.decode_context"] == "2048"  # the link opened its section
    assert link(app) == {"decode_context": "2048", "variant": "mla"}
    assert "kv_cache.work.flops" in plots(app) and "kv_cache.work.time" not in plots(app)
    assert "kv_cache.latency.bars" not in plots(app)  # no labels without bars
    assert [one.value for one in app.info] == [say(language, f"kv_cache.{name}.ask") for name in ("work", "latency")]
    assert {"kv_cache.work.start", "kv_cache.latency.start"} <= keys(app)
    words = said(app)
    # Which latent the numbers belong to stands beside them.
    assert words.count("256 + 32") == 2 and "512 + 64" in words
    assert ("14 times fewer" if language == "en" else "1/14") in words and "4.5" in words
    assert "MHA 32 MiB · GQA 8 MiB · MQA 1 MiB · MLA 2.25 MiB" in words
    names = [trace["name"] for trace in plots(app)["kv_cache.work.flops"]["data"]]
    assert names == [say(language, f"kv_cache.work.{name}") for name in NAMES]
