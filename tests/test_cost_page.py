"""The cost page: four ways to call a layer, heads split over devices, unequal batches, roofs, links good and bad."""

import json
import re

import pytest

from attnviz.benchmark import Contestant, Latency, Measurement, Point, predict
from attnviz.benchmark.pairs import PAIRS
from attnviz.cost import cost
from attnviz.cost_view import SCENARIOS, measurable, priced, settle, split, unequal
from attnviz.figures.roofline import Roof, roofline
from attnviz.hardware import HARDWARE
from attnviz.text import LANGUAGES, Refusal
from attnviz.variants import VARIANTS
from pages.ui import cost_picture
from pages.ui.heatmap.frame import unpack
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
    assert share is not None and share.one.flops < prices[0].flops
    assert prices[0].kv_cache_bytes / 2 <= share.one.kv_cache_bytes <= prices[0].kv_cache_bytes


def test_heads_are_split_exactly_and_shared_ones_down_to_one():
    def shared(**given):
        found = split(view(heads="32", d_k="128", context="1024", dtype="bfloat16", **given))
        assert found is not None
        return found

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
    assert split(view(heads="32", devices="3")) is None


def test_padding_costs_what_the_longest_costs_each():
    found = unequal(view(pair="mha-eager", heads="4", d_k="16", lengths="8,4"))
    config = VARIANTS["mha"].config(hidden_size=64, num_attention_heads=4)
    eight, four = (cost("mha", config, q_len=n, kv_len=n).flops for n in (8, 4))
    assert (found.padded_flops, found.packed_flops) == (2 * eight, eight + four)
    assert (found.padded_tokens, found.tokens) == (16, 12)
    same = unequal(view(lengths="7,7,7"))
    assert same.padded_flops == same.packed_flops


def test_a_roof_is_the_smaller_of_two_speeds():
    figure = roofline(
        [Roof("a", 100.0, 10.0)], {"left": 1.0, "right": 1000.0}, {"left": (1.0, 7.0)},
        x_title="x", measured_name="here",
    )  # fmt: skip
    roof, left, right, here = figure["data"]
    assert dict(zip(roof["x"], roof["y"], strict=True))[10.0] == 100.0 and max(roof["y"]) == 100.0
    assert (left["y"], right["y"]) == ([10.0], [100.0]) and here["y"] == [7.0] and here["text"] == ["left"]
    # The roof is named at its flat end, work above its mark; a phone has no room for either.
    heights = {notice["text"]: notice["y"] for notice in figure["layout"]["annotations"]}
    assert heights == {"a": 2.0, "left": 1.0, "right": 2.0}
    assert {notice["name"] for notice in figure["layout"]["annotations"]} == {"wide"}


def test_measured_points_are_flops_by_the_shortest_time():
    mine = view(heads="4", d_k="16", context="64")
    requests = measurable(mine)
    assert [one.q_len for one in requests] == [64, 64, 5, 1] and {one.keys for one in requests} == {64}
    point = Point(requests[0].contestants[0].label, Latency.of([2.0, 1.0, 3.0]))
    drawn = cost_picture.draw(mine, "en", requests, [Measurement((point,))])
    here = drawn.figure["data"][-1]
    assert here["y"] == [predict(requests[0].contestants[0], requests[0]).flops / 1.0] and here["text"] == ["prefill"]
    # A roof that was found lower than a point is raised to it.
    raised = cost_picture.roofs(mine, "en", 1e18)
    assert not [roof for roof in raised if roof.own] or raised[-1].flops == 1e18
    assert all(one.keys <= 1024 for one in measurable(view(context="1048576")))
    assert isinstance(requests[0].contestants[0], Contestant) and requests[0].contestants[0].what == "layer"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_shows_roofs_and_the_table(language):
    app = visit(language, page="cost", context="1024")
    assert "cost.roofs" in plots(app)
    (text,) = [entry.value for entry in app.markdown if entry.value.startswith("| ")]
    rows = [row.strip("| ").split(" | ") for row in text.splitlines()[2:]]
    assert len(rows) == len(SCENARIOS) and all(len(row) == 12 for row in rows)
    for key in ("rtx-4090", "h100"):
        assert HARDWARE[key].source in said(app)


def test_roofs_without_the_dtype_are_left_out():
    header, _ = unpack(cost_picture.frame({"dtype": "float64", "hardware": "b200,h100", "lang": "zh"}))
    figure = header["figures"]["roofs"]
    names = [trace["name"] for trace in (figure if isinstance(figure, dict) else json.loads(figure))["data"]]
    assert "NVIDIA H100 (SXM)" in names and "NVIDIA B200" not in names


def test_devices_that_do_not_divide_the_heads_are_named():
    app = visit(page="cost", devices="3", context="128")
    assert "32 heads cannot be shared equally by 3 devices" in plain(
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
    "<b>=1": "'<b>' is not a setting of this page.",
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
