"""The cost page: four ways to call a layer, heads split over devices, unequal batches, roofs, links good and bad."""

import json
import math
import re

import pytest

from attnviz import cost_view, units
from attnviz.benchmark import Contestant, Latency, Measurement, Point, Speed, predict
from attnviz.benchmark.pairs import PAIRS
from attnviz.cost import cost
from attnviz.cost_view import SCENARIOS, measurable, priced, probe, settle, split, unequal, whole
from attnviz.figures.roofline import Roof, roofline
from attnviz.hardware import HARDWARE
from attnviz.presets import PRESETS
from attnviz.text import LANGUAGES, Refusal
from attnviz.variants import VARIANTS
from pages.ui import cost_picture
from pages.ui.heatmap.frame import unpack
from pages.ui.translate import say
from tests.pages import check, link, plain, plots, said, visit


def view(**given):
    settled = settle(given)
    assert not settled.problems
    return settled.view


@pytest.mark.parametrize(("name", "q_len"), [("prefill", 1000), ("extend", 512), ("speculative", 5), ("decode", 1)])
def test_a_way_of_calling_is_a_number_of_queries(name, q_len):
    mine = view(context="1000", pair="mha-eager", heads="4", d_k="16", batch="3", dtype="float32")
    config = VARIANTS["mha"].config(hidden_size=64, num_attention_heads=4)
    sizes = {"q_len": q_len, "kv_len": 1000, "batch": 3}
    assert priced(mine, name) == cost("mha", config, **sizes, dtype="float32", backend="eager")
    assert view(context="4").queries("extend") == 4


@pytest.mark.parametrize("pair", PAIRS)
def test_every_pair_has_a_cost_in_every_way_and_when_split(pair):
    mine = view(pair=pair, heads="8", d_k="32", devices="2", context="256")
    prices = [priced(mine, name) for name in SCENARIOS]
    assert all(one.flops > 0 and one.bytes_moved > 0 for one in prices)
    assert prices[0].intensity > prices[-1].intensity
    share = split(mine)
    assert share.one.flops < prices[0].flops
    assert prices[0].kv_cache_bytes / 2 <= share.one.kv_cache_bytes <= prices[0].kv_cache_bytes


def test_heads_are_split_exactly_and_shared_ones_down_to_one():
    def shared(**given):
        return split(view(heads="32", d_k="128", context="1024", dtype="bfloat16", **given))

    whole = priced(view(pair="mha-sdpa", heads="32", d_k="128", context="1024"), "prefill")
    quarter = shared(pair="mha-sdpa", devices="4").one
    # Four parts of columns and rows are the whole, but for the output's bias, which each part declares.
    assert 4 * quarter.parameters - whole.parameters == 3 * 4096
    assert 4 * quarter.flops == whole.flops and 4 * quarter.kv_cache_bytes == whole.kv_cache_bytes
    assert shared(pair="gqa-sdpa", devices="4").kv_heads == 2 and shared(pair="gqa-sdpa", devices="16").kv_heads == 1
    latent = shared(pair="mla-sdpa", devices="8")
    assert latent.one.kv_cache_bytes == priced(view(pair="mla-sdpa", context="1024"), "prefill").kv_cache_bytes
    # A ring sends the output 2·(n − 1)/n times: 1,024 rows of 4,096 numbers of two bytes.
    assert shared(pair="mha-sdpa", devices="4").reduced_bytes == 1024 * 4096 * 2 * 2 * 3 // 4
    assert shared(pair="mha-sdpa", devices="1").reduced_bytes == 0


def test_what_devices_cannot_share_equally_is_refused():
    with pytest.raises(Refusal, match="Heads: 32 cannot be shared equally by 3 devices"):
        split(view(heads="32", devices="3"))
    # 24 heads over 6 KV heads: four devices divide the heads and not the KV heads, twelve hold each twice.
    with pytest.raises(Refusal, match="KV heads: 6 cannot be shared equally by 4 devices"):
        split(view(pair="gqa-sdpa", heads="24", devices="4"))
    mine = view(pair="gqa-sdpa", heads="24", devices="12")
    assert split(mine).kv_heads == 1
    assert split(mine).one.kv_cache_bytes * 6 == priced(mine, "decode").kv_cache_bytes


def test_padding_costs_what_the_longest_costs_each():
    padded, packed = unequal(view(pair="mha-eager", heads="4", d_k="16", lengths="8,4", dtype="float32"))
    config = VARIANTS["mha"].config(hidden_size=64, num_attention_heads=4)
    eight, four = (cost("mha", config, q_len=n, kv_len=n).flops for n in (8, 4))
    assert (padded.flops, packed.flops) == (2 * eight, eight + four)
    assert (padded.tokens, packed.tokens) == (16, 12)
    # A token keeps a key and a value of 64 numbers of four bytes.
    assert (padded.cache_bytes, packed.cache_bytes) == (16 * 512, 12 * 512)
    # Padded, the batch is a batch of the longest: the weights are read once for all.
    assert padded.step_bytes == cost("mha", config, q_len=1, kv_len=8, batch=2, backend="eager").bytes_moved
    assert 512 * 4 <= padded.step_bytes - packed.step_bytes < 2 * 512 * 4
    same = unequal(view(lengths="7,7,7"))
    assert same.padded == same.packed


def test_heads_too_wide_together_are_named():
    settled = settle({"heads": "256", "d_k": "512"})
    assert "256 heads of 512: hidden_size must be a whole number from 1 to 65,536" in settled.problems[0].en
    assert (settled.view.heads, settled.view.d_k, settled.view.kv_heads) == (32, 128, 8) and settled.link() == {}


def test_kv_heads_are_chosen_for_grouped_queries_alone_and_divide_the_heads():
    # 64 heads of 128 over 8 KV heads, as published models have them: 2 · 8 · 128 numbers of two bytes a token.
    settled = settle({"heads": "64", "kv_heads": "8", "context": "4096"})
    assert priced(settled.view, "decode").kv_cache_bytes == 4096 * 2 * 8 * 128 * 2
    assert settled.link() == {"heads": "64", "kv_heads": "8"} and not settled.notes
    assert settle({"heads": "64"}).view.kv_heads == 16
    followed = settle({"heads": "12", "kv_heads": "8"})
    assert (
        followed.view.kv_heads == 6
        and "kv_heads was 8, which does not divide 12 heads; using 6." in followed.notes[0].en
    )
    other = settle({"pair": "mha-sdpa", "kv_heads": "5"})
    assert "kv_heads" not in other.knobs and not other.notes and other.link() == {"pair": "mha-sdpa"}
    assert priced(other.view, "decode").kv_cache_bytes == 4 * priced(view(), "decode").kv_cache_bytes
    # What is measured is what is priced.
    assert all(one.contestants[0].config == settled.view.sizes for one in measurable(settled.view))


def test_a_layer_that_does_not_fit_has_no_least_time():
    app = visit(page="cost", context="1048576", batch="64", hardware="rtx-4090,apple-m3-ultra")
    (text,) = [entry.value for entry in app.markdown if "Least time" in entry.value]
    rows = {row.strip("| ").split(" | ")[0]: row.strip("| ").split(" | ")[1:] for row in text.splitlines()}
    # 64 sequences of 2**20 tokens of 4 KiB are 256 GiB.
    assert rows["Least time, RTX 4090"] == ["does not fit"] * 4
    assert all(cell.startswith("≥ ") for cell in rows["Least time, Apple M3 Ultra (memory alone)"])


def annotations(figure):
    return {notice["text"]: 10 ** notice["y"] for notice in figure["layout"]["annotations"]}


def test_a_roof_is_the_smaller_of_two_speeds():
    figure = roofline(
        [Roof("a", 100.0, 10.0)], {"left": 1.0, "right": 1000.0}, {"left": (1.0, 7.0)},
        x_title="x", measured_name="here",
    )  # fmt: skip
    roof, left, right, here = figure["data"]
    assert dict(zip(roof["x"], roof["y"], strict=True))[10.0] == 100.0 and max(roof["y"]) == 100.0
    assert (left["y"], right["y"]) == ([10.0], [100.0]) and here["y"] == [7.0] and here["text"] == ["left"]
    # The roof is named behind its end, work above its mark; a phone has no room for either.
    assert annotations(figure) == {"a": 100.0, "left": 10.0, "right": 100.0}
    assert {notice["name"] for notice in figure["layout"]["annotations"]} == {"wide"}


def test_a_device_without_a_peak_is_a_slope_that_stops_and_carries_only_what_is_before():
    figure = roofline([Roof("a", 100.0, 10.0), Roof("open", None, 5.0)], {"left": 1.0, "right": 1000.0}, {},
                      x_title="x", measured_name="here")  # fmt: skip
    _, slope, left, right = figure["data"]
    assert (slope["x"][-1], slope["y"][-1]) == (10.0, 50.0) and slope["line"]["dash"] == "dot"
    assert left["text"] == ["a", "open"] and left["y"] == [10.0, 5.0] and right["text"] == ["a"]


def test_names_of_near_roofs_stand_apart_and_far_ones_stay():
    roofs = [Roof(name, peak, 1.0) for name, peak in (("a", 1000.0), ("b", 1010.0), ("c", 1e7))]
    figure = roofline(roofs, {"left": 1.0}, {}, x_title="x", measured_name="here")
    heights = annotations(figure)
    low, high = figure["layout"]["yaxis"]["range"]
    assert math.log10(heights["b"] / heights["a"]) * 290 / (high - low) == pytest.approx(15)
    assert heights["a"] < 1000 < heights["b"] and heights["c"] == pytest.approx(1e7)


def test_works_that_stand_together_are_named_together():
    work = {"decode": 1.0, "extend": 500.0, "prefill": 510.0}
    figure = roofline([Roof("a", 100.0, 10.0)], work, {}, x_title="x", measured_name="here")
    assert list(annotations(figure)) == ["a", "decode", "extend, prefill"]
    apart = roofline([Roof("a", 1e9, 10.0)], {"left": 1.0, "right": 1.5}, {}, x_title="x", measured_name="here")
    assert list(annotations(apart)) == ["a", "left, right"]
    steep = roofline([Roof("a", 1e6, 1.0)], {"left": 1.0, "right": 5.0}, {}, x_title="x", measured_name="here")
    assert list(annotations(steep)) == ["a", "left", "right"]


def test_what_was_measured_has_a_colour_of_its_own():
    roofs = [Roof(str(index), 100.0, 10.0) for index in range(6)]
    figure = roofline(roofs, {"left": 1.0}, {"left": (1.0, 7.0)}, x_title="x", measured_name="here")
    *lines, marks, here = figure["data"]
    taken = {trace["line"]["color"] for trace in lines} | {marks["marker"]["color"]}
    assert here["marker"]["color"] == here["marker"]["line"]["color"] == "theme-text" not in taken
    assert here["marker"]["symbol"] == ["circle-open"]


def test_this_machine_carries_work_at_its_own_data_type(monkeypatch):
    monkeypatch.setattr(type(cost_picture.desk()), "speed", lambda desk, asked: Speed(1e11, 1e10))
    mine = view(dtype="bfloat16", hardware="h100,apple-m4")
    published, apple, own = cost_picture.roofs(mine, "en")
    assert (published.name, apple.name) == ("H100", "Apple M4: no peak published")
    assert published.work is None and apple.flops is None and own.work is not None
    assert own.work["decode"] == priced(mine, "decode", probe(mine).dtype).intensity
    assert own.name == f"this machine, {probe(mine).dtype}"


def test_measured_points_are_flops_by_the_shortest_time():
    mine = view(heads="4", d_k="16", context="64")
    requests = measurable(mine)
    assert [one.q_len for one in requests] == [64, 64, 5, 1] and {one.keys for one in requests} == {64}
    point = Point(requests[0].contestants[0].label, Latency.of([2.0, 1.0, 3.0]))
    drawn = cost_picture.draw(mine, "en", requests, [Measurement((point,))])
    tokens = units.count(max(request.kv_len for request in requests))
    assert f"measured here in float32, with {tokens} tokens at most" in drawn.caption
    assert "measured here" not in cost_picture.draw(mine, "en", requests).caption
    here = drawn.figure["data"][-1]
    assert here["y"] == [predict(requests[0].contestants[0], requests[0]).flops / 1.0] and here["text"] == ["prefill"]
    # A roof that was found lower than a point is raised to it.
    raised = cost_picture.roofs(mine, "en", 1e18)
    assert not [roof for roof in raised if roof.own] or raised[-1].flops == 1e18
    assert all(one.keys <= 1024 for one in measurable(view(context="1048576")))
    assert isinstance(requests[0].contestants[0], Contestant) and requests[0].contestants[0].what == "layer"


@pytest.mark.parametrize(
    ("model", "given", "said_as"),
    [
        ("llama-3-8b", {"context": "4096"}, "512 MiB"),
        ("deepseek-v3-1", {"context": "163840"}, "10.7 GiB"),
        ("gemma-3-1b", {"context": "32768"}, "139 MiB"),
        ("gemma-3-27b", {"context": "131072"}, "10.4 GiB"),
        ("gpt-oss-20b", {"context": "8192", "batch": "32"}, "6.09 GiB"),
        ("qwen3-0-6b", {"context": "40960"}, "4.38 GiB"),
    ],
)
def test_a_published_model_has_the_cache_of_all_its_layers(model, given, said_as):
    mine = view(model=model, **given)
    every = whole(mine)
    assert units.binary_bytes(every.cache_bytes) == said_as
    caption = cost_picture.draw(mine, "en").caption
    assert f"{said_as} in all {every.layers}" in caption
    # One layer keeps more than its share of what layers with windows keep: the caption says which layer that is.
    assert ("keeps every token, as drawn here" in caption) == bool(PRESETS[model].sliding_layers)
    assert caption.startswith(PRESETS[model].label.en)


@pytest.mark.parametrize(
    ("model", "kib"),
    [("llama-2-7b", 512), ("llama-3-1-8b", 128), ("llama-3-1-405b", 504), ("falcon-7b", 8), ("gpt-oss-120b", 72),
     ("deepseek-v3-r1-671b", 68.625)],
)  # fmt: skip
def test_a_published_model_keeps_so_much_of_one_token(model, kib):
    assert whole(view(model=model, context="16")).token_bytes == kib * 1024
    # A state does not grow.
    assert whole(view(pair="linear-chunked", heads="2", d_k="8")).token_bytes == 0


def test_a_full_window_takes_no_more():
    """Gemma-3-27B: 10 of 62 layers still grow, by 8 KiB each; Mistral 7B v0.1 has windows alone."""
    assert whole(view(model="gemma-3-27b", context="1023")).token_bytes == 62 * 8 * 1024
    assert whole(view(model="gemma-3-27b", context="1024")).token_bytes == 10 * 8 * 1024
    assert whole(view(model="mistral-7b-v0-1", context="32768")).token_bytes == 0


@pytest.mark.parametrize(("name", "asked"), [("prefill", 8192), ("extend", 512), ("speculative", 5), ("decode", 1)])
def test_a_layer_is_counted_by_hand_in_every_way(name, asked):
    """Llama-3-8B: 32 heads of 128 over 8 KV heads, a token vector of 4,096, two bytes a number."""
    taken = priced(view(model="llama-3-8b", context="8192"), name)
    weights = 2 * 4096 * 4096 + 2 * 4096 * 1024
    assert taken.flops == 2 * weights * asked + 2 * 32 * asked * 8192 * (128 + 128)
    # Each projection reads its input and writes its output; the core reads queries, all keys and values, and writes.
    projected = asked * (2 * (4096 + 4096) + 2 * (4096 + 1024))
    assert taken.bytes_moved == 2 * (weights + projected + asked * 2 * 4096 + 8192 * 2 * 1024)
    assert taken.kv_cache_bytes == 8192 * 2 * 1024 * 2


def test_the_layer_that_is_drawn_is_one_that_the_model_has():
    """Mistral 7B v0.1 has windows of 4,096 alone: a step reads so many keys and values of 8 heads of 128."""
    mistral = settle({"model": "mistral-7b-v0-1", "context": "32768"})
    assert "layer" not in mistral.knobs and mistral.view.window == 4096
    step, full = priced(mistral.view, "decode"), priced(view(model="mistral-7b-v0-3", context="32768"), "decode")
    assert step.kv_cache_bytes == 4096 * 2 * 8 * 128 * 2 == full.kv_cache_bytes // 8
    assert full.bytes_moved - step.bytes_moved == (32_768 - 4096) * 2 * 8 * 128 * 2
    assert full.flops - step.flops == 2 * 32 * (32_768 - 4096) * 256
    # The prompt's queries see 4,096 keys each.
    assert priced(mistral.view, "prefill").flops == 32_768 * (2 * 41_943_040 + 2 * 32 * 4096 * 256)
    every, one = whole(mistral.view), whole(mistral.view, layers=1)
    assert (every.cache_bytes, every.step) == (32 * one.cache_bytes, tuple(32 * taken for taken in one.step))
    assert one.reserved_bytes == full.kv_cache_bytes
    # What several devices share, unequal lengths and what is measured are of that layer too.
    assert split(mistral.view).one.kv_cache_bytes == step.kv_cache_bytes // 4
    assert unequal(view(model="mistral-7b-v0-1", lengths="9000,100")).packed.cache_bytes == (4096 + 100) * 4096
    assert all(one.keys <= 128 for one in measurable(view(model="gpt-oss-20b", layer="window")))


def test_layers_of_two_kinds_are_chosen_by_link():
    both = {"model": "gemma-3-1b", "context": "32768"}
    every, window = settle(both), settle(both | {"layer": "window"})
    assert "layer" in every.knobs and window.link() == both | {"layer": "window"} and not window.notes
    # One KV head of 256, two bytes.
    kept = [priced(settled.view, "decode").kv_cache_bytes for settled in (every, window)]
    assert kept == [32_768 * 1024, 512 * 1024]
    assert whole(every.view) == whole(window.view)
    assert "139 MiB in all 26, windows kept" in cost_picture.draw(every.view, "en").caption
    said = cost_picture.draw(window.view, "en").caption
    assert "512 KiB in a layer with a window of 512 tokens, as drawn here, 139 MiB in all 26." in said
    for given in (
        {"layer": "window"},
        {"model": "llama-3-8b", "layer": "window"},
        both | {"heads": "2", "layer": "window"},
    ):
        settled = settle(given)
        assert "layer was window, which can be chosen only where" in settled.notes[0].en
        assert settled.view.window is None and "layer" not in settled.link()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_kind_of_layer_is_chosen_on_the_page(language):
    app = visit(language, page="cost", model="gemma-3-27b", context="131072")
    # Keys and values of 16 heads of 128 in two bytes, of 131,072 tokens.
    assert f"| {say(language, 'cost.model.one_every')} |" in said(app) and re.search(
        r"\| 1 GiB \| 10.4 GiB \|", said(app)
    )
    app.selectbox(key="cost.layer").set_value("window")
    check(app.run())
    assert link(app) == {"model": "gemma-3-27b", "context": "131072", "layer": "window"}
    assert f"| {say(language, 'cost.model.one_window')} |" in said(app) and re.search(
        r"\| 8 MiB \| 10.4 GiB \|", said(app)
    )
    assert say(language, "cost.table.note_window", window="1,024") in said(app)
    app.selectbox(key="cost.model").set_value("gemma-3-1b")
    check(app.run())
    assert link(app) == {"model": "gemma-3-1b", "context": "131072"} and not app.warning
    app.selectbox(key="cost.model").set_value("mistral-7b-v0-1")
    check(app.run())
    assert link(app) == {"model": "mistral-7b-v0-1", "context": "131072"}
    assert say(language, "cost.table.note_window", window="4,096") in said(app)
    app.selectbox(key="cost.pair").set_value("gqa-eager")
    check(app.run())
    assert say(language, "cost.table.note_eager", window="4,096") in said(app)


def cells(app, first):
    """Give a table's rows by their names, of the table whose first row begins so."""
    (text,) = [entry.value for entry in app.markdown if entry.value.startswith(f"| {first} |")]
    return {row.split(" | ")[0].strip("| "): row.strip("| ").split(" | ")[1:] for row in text.splitlines()}


def test_a_state_is_called_one_and_takes_no_mask():
    app = visit(page="cost", pair="linear-chunked")
    rows = cells(app, "One layer")
    # 32 heads of 128 by 128 and 128 sums, in float32.
    assert rows["State"] == ["2.02 MiB"] * 4 and units.binary_bytes(32 * 128 * 129 * 4) == "2.02 MiB"
    assert rows["Dense mask"] == rows["Whole score matrix"] == ["none"] * 4
    assert cells(app, "Attention alone")["State, whatever the context"] == ["2.02 MiB", "64.5 MiB"]
    assert (
        "State, whatever the context: 2.02 MiB in a layer"
        in cost_picture.draw(view(pair="linear-chunked"), "en").caption
    )
    assert "KV cache" not in said(app).replace("KV cache on", "") and "State on each" in [
        one.label for one in app.metric
    ]
    assert say("en", "cost.table.note_parallel") not in said(app)
    assert say("en", "cost.table.note_parallel") in said(visit(page="cost", pair="linear-parallel", context="128"))


def test_numbers_of_two_kernels_are_said_to_be():
    """Fused kernels of torch take no values narrower than keys on a CPU: there the peak is the plain kernel's."""
    app = visit(page="cost", model="deepseek-v3-r1-671b", context="131072")
    rows = cells(app, "One layer")
    # 128 heads of 131,072 by 131,072 scores in two bytes; scores and weights in four.
    assert rows["Whole score matrix"][0] == "4 TiB" and rows["Peak of the core, torch on a CPU"][0] == "18.1 TiB"
    # A few queries attend over the latents, whose values are as wide as their keys.
    assert say("en", "cost.table.note_plain", ways="prefill, extend") in said(app)
    for pair in ("gqa-sdpa", "mla-flash", "mla-eager", "linear-chunked"):
        assert cost_view.plain(view(pair=pair, context="128")) == ()
        assert "are of two kernels" not in said(visit(page="cost", pair=pair, context="128"))
    # Of two tokens both ask in all of these.
    assert cost_view.plain(view(model="deepseek-v3-1", context="2")) == ("prefill", "extend", "speculative")


@pytest.mark.parametrize("key", PRESETS)
def test_every_published_model_sets_the_layer(key):
    settled, preset = settle({"model": key, "context": "3000", "batch": "2"}), PRESETS[key]
    assert not settled.problems and not settled.notes
    assert settled.link() == {"model": key, "context": "3000", "batch": "2"} and settled.view.preset is preset
    bare = {} if preset.variant == "mla" else {"biases": False}
    assert settled.view.sizes == VARIANTS[preset.variant].config(**preset.sizes, **bare)
    every = whole(settled.view)
    assert every.cache_bytes == preset.kv_cache_bytes(3000, batch=2)
    assert every.reserved_bytes == preset.kv_cache_bytes(3000, batch=2, windows=False)
    assert split(view(model=key, devices="1")).one == priced(view(model=key), "prefill")


def test_weights_of_a_published_layer_are_those_of_its_matrices():
    # Query and output 4,096 by 4,096, key and value 4,096 by 1,024.
    assert priced(view(model="llama-3-8b"), "decode").parameters == 41_943_040
    assert whole(view(model="llama-3-8b")).parameters == 32 * 41_943_040


def test_a_window_is_read_by_the_step_no_further():
    # 26 layers of one KV head of 256: 4 read all 32,768 tokens and 22 a window of 512, two bytes a number.
    every, full = whole(view(model="gemma-3-1b", context="32768")), priced(view(model="gemma-3-1b"), "decode")
    kept = (4 * 32_768 + 22 * 512) * 2 * 256 * 2
    assert every.cache_bytes == kept and 0 < every.step[1] - kept - 26 * full.weight_bytes < 26 * 2**16


def test_a_changed_model_is_no_longer_the_published_one():
    mine = view(model="llama-2-7b", heads="16")
    assert mine.preset is None and mine.width == 4096 and whole(mine).layers == 32
    assert (
        whole(view(model="gemma-3-1b", layers="3")).cache_bytes
        == 3 * priced(view(model="gemma-3-1b"), "decode").kv_cache_bytes
    )
    assert split(view(model="llama-2-7b", devices="4")).one.kv_cache_bytes * 4 == 4096 * 2 * 4096 * 2
    settled = settle({"model": "deepseek-v3-1", "d_k": "32"})
    assert "qk_rope_head_dim must be at most head_dim = 32" in settled.problems[0].en
    assert settled.view.preset is PRESETS["deepseek-v3-1"] and settled.link() == {"model": "deepseek-v3-1"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_layers_stand_beside_one_and_the_model_is_chosen_on_the_page(language):
    app = visit(language, page="cost", heads="8", context="4096")
    app.selectbox(key="cost.model").set_value("llama-3-8b")
    check(app.run())
    assert link(app) == {"model": "llama-3-8b"}
    assert re.search(r"\| 16 MiB \| 512 MiB \|", said(app)) and re.search(r"\| 4 KiB \| 128 KiB \|", said(app))
    assert PRESETS["llama-3-8b"].source in said(app)
    app.number_input(key="cost.layers").set_value(2)
    check(app.run())
    assert re.search(r"\| 16 MiB \| 32 MiB \|", said(app))
    assert say(language, "cost.model.changed") in said(app)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_shows_roofs_and_the_table(language):
    app = visit(language, page="cost", context="1024")
    assert "cost.roofs" in plots(app)
    layers, text, batch = [entry.value for entry in app.markdown if entry.value.startswith("| ")]
    assert len(batch.splitlines()) == 2 + 4 and len(layers.splitlines()) == 2 + 5
    rows = [row.strip("| ").split(" | ") for row in text.splitlines()[2:]]
    # Seven quantities and the least time on four devices.
    assert len(rows) == 7 + 4 and all(len(row) == 1 + len(SCENARIOS) for row in rows)
    for key in ("rtx-4090", "h100"):
        assert HARDWARE[key].source in said(app)


def test_roofs_without_the_dtype_are_left_out():
    header, _ = unpack(cost_picture.frame({"dtype": "float64", "hardware": "b200,h100", "lang": "zh"}))
    figure = header["figures"]["roofs"]
    names = [trace["name"] for trace in (figure if isinstance(figure, dict) else json.loads(figure))["data"]]
    assert "H100" in names and "B200" not in names
    assert "gives no peak for float64: B200." in said(visit(page="cost", dtype="float64", hardware="b200,h100"))


def test_a_device_without_a_peak_has_the_time_of_its_memory():
    app = visit(page="cost", hardware="apple-m4", context="1024", heads="8", d_k="64")
    moved = priced(view(context="1024", heads="8", d_k="64"), "prefill").bytes_moved
    (text,) = [entry.value for entry in app.markdown if entry.value.startswith("| One")]
    assert f"| Least time, Apple M4 (memory alone) | ≥ {units.seconds(moved / 120e9)} |" in text


def test_devices_that_do_not_divide_the_heads_are_named():
    app = visit(page="cost", devices="3", context="128")
    assert "Heads: 32 cannot be shared equally by 3 devices" in plain(
        said(app) + " ".join(one.value for one in app.info)
    )
    app.number_input(key="cost.devices").set_value(2)
    check(app.run())
    assert link(app) == {"devices": "2", "context": "128"} and not app.info


HOSTILE = {
    "pair=hydra": "pair must be one of",
    "context=1": "context must be a whole number from 2",
    "context=9999999": "context must be",
    "lengths=a": "lengths must be whole numbers",
    "lengths=" + ",".join(["5"] * 33): "lengths must be at most 32 whole numbers",
    "devices=0": "devices must be a whole number from 1",
    "hardware=abacus": "hardware must be 1 to 6 of",
    "model=<b>": "model must be one of own, gpt-2-small",
    "width=65537": "width must be a whole number from 1 to 65,536",
    "layers=0": "layers must be a whole number from 1",
    "kv_heads=0": "kv_heads must be a whole number from 1",
    "d_k=513": "d_k must be a whole number from 8 to 512",
    "<b>=1": "'<b>' is not a setting of this page.",
    # Own sizes have no choice of layers.
    "layer=<b>": "layer must be one of all, window",
}


@pytest.mark.parametrize("given", HOSTILE)
def test_a_bad_value_is_named_and_the_page_stays(given):
    name, _, value = given.partition("=")
    app = visit(page="cost", **{name: value})
    (warning,) = app.warning
    assert HOSTILE[given] in plain(warning.value) and not re.search(r"(?<!\\)[<$\[*]", warning.value)
    assert link(app) == {} and "cost.roofs" in plots(app)
    with pytest.raises(Refusal):
        cost_picture.frame({name: value})


def test_a_bad_value_of_a_setting_that_does_not_apply_is_named_too():
    app = visit(page="cost", pair="mha-sdpa", kv_heads="0")
    (warning,) = app.warning
    assert "kv_heads must be a whole number from 1" in plain(warning.value) and link(app) == {"pair": "mha-sdpa"}


def test_short_contexts_are_called_what_they_are():
    app = visit(page="cost", context="2", drafts="64")
    assert "extend: 2 new tokens behind a cache; speculative: 1 drafted tokens and one more" in said(app)
    assert say("en", "cost.table.note_short", context="2") in said(app)
    assert cells(app, "One layer")["FLOPs"][0] == cells(app, "One layer")["FLOPs"][1]
    longer = visit("zh", page="cost")
    assert "holds no more than" not in said(longer) and "；投机解码：" in said(longer)


def test_the_scores_of_a_window_are_no_whole_matrix():
    settings = {"page": "cost", "model": "gemma-3-27b", "layer": "window"}
    rows = cells(visit(**settings), "One layer, window")
    # 32 heads, 4,096 queries with the 1,024 keys of each, in two bytes.
    assert rows["Scores within the window"][0] == units.binary_bytes(32 * 4096 * 1024 * 2) == "256 MiB"
    eager = visit(page="cost", model="mistral-7b-v0-1", context="131072", pair="gqa-eager")
    assert "Whole score matrix" in cells(eager, "One layer, window")
    assert "Whole score matrix" in cells(visit(page="cost"), "One layer")


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_each_device_keeps_is_said_of_what_it_is(language):
    latent = said(visit(language, page="cost", model="deepseek-v3-r1-671b"))
    assert say(language, "cost.split.cache_words", devices=4, kept="100%") in latent
    state = said(visit(language, page="cost", pair="linear-chunked"))
    assert say(language, "cost.split.state_words", devices=4, kept="25%") in state
    alone = said(visit(language, page="cost", devices="1"))
    assert say(language, "cost.split.alone") in alone and say(language, "cost.split.sum") not in alone


def test_a_phone_has_room_for_the_legend():
    layout = cost_picture.draw(view(), "en").figure["layout"]
    assert layout["meta"]["narrow_height"] > layout["height"] + 19 * 6
