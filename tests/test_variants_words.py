"""What the variants page says: the MHA that is compared with, what is counted, and nothing twice."""

import json
import math
import re

import pytest

from attnviz.kv_cache_view.memory import versions
from attnviz.kv_cache_view.view import settle as settle_cache
from attnviz.presets import PRESETS
from attnviz.text import LANGUAGES
from attnviz.variant_view import race
from attnviz.variant_view.run import table
from attnviz.variant_view.settings import VARIANTS as KINDS
from attnviz.variant_view.view import settle
from attnviz.variants import VARIANTS
from attnviz.variants.additive import _BLOCK_ROWS, _TILE_ENTRIES
from pages.ui.heatmap.frame import unpack
from pages.ui.translate import say
from pages.ui.variants_picture import frame
from tests.pages import check, component, keys, link, plain, plots, said, visit

LATENT = [key for key, preset in PRESETS.items() if preset.variant == "mla"]


@pytest.mark.parametrize("model", LATENT)
def test_both_pages_compare_mla_with_the_same_mha(model):
    rows = {row.variant: row.elements for row in table(settle({"model": model}).view)}
    for variant, (preset, _) in versions(settle_cache({"model": model}).view).items():
        if variant in ("mha", "mqa"):
            kept = sum(math.prod(shape) for shape in VARIANTS[variant].cache(preset.config, 1).values())
            assert kept == rows[variant]
    # As DeepSeek-V2's table 1 counts it: 2 · n_h · d_h, with d_h = 128.
    assert rows["mha"] == 2 * 128 * 128 and rows["mla"] == 512 + 64


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_pages_say_which_mha_that_is(language):
    width = {"en": "128 numbers", "zh": "128 个数"}[language]
    fields = {"width": width, "rope": 64, "expanded": f"{128 * (192 + 128):,}"}
    sentence = say(language, "variants.numbers.mha", **fields)
    for page in ("variants", "kv_cache"):
        assert sentence in said(visit(language, page=page, model="deepseek-v3-1"))
    fields = {"width": width.replace("128", "64"), "rope": 64, "expanded": "1,536"}
    assert say(language, "variants.numbers.mha", **fields) in said(visit(language, page="variants"))
    assert "1,536" not in said(visit(language, page="kv_cache", model="llama-3-8b"))


def test_mla_s_flops_are_said_to_be_those_of_what_runs():
    sizes = VARIANTS["mla"].config(**PRESETS["deepseek-v3-1"].sizes)
    # Both products of a pair are 576 wide.
    assert VARIANTS["mla"].mix_flops(sizes, 1, 4096) == 128 * 4096 * 2 * (576 + 576)
    words = said(visit(page="variants", model="deepseek-v3-1"))
    assert say("en", "variants.numbers.absorbed") in words
    assert say("en", "variants.numbers.wide", kept=576, latent=512) in words
    # With no rotary key there is nothing more than the latent, and a single token is not worth absorbing for.
    alone = said(visit(page="variants", variant="mla", rope="0"))
    assert say("en", "variants.numbers.absorbed") in alone
    assert "512 wide" not in alone and "rotary key of 0 stands" not in alone
    assert say("en", "variants.numbers.absorbed") not in said(visit(page="variants", variant="mla", context="1"))


@pytest.mark.parametrize("page", ["variants", "kv_cache"])
def test_nothing_is_said_twice_of_a_model(page):
    for key, preset in PRESETS.items():
        if preset.sliding_layers or preset.linear_layers:
            words = plain(said(visit(page=page, model=key)))
            (line,) = [line for line in words.splitlines() if preset.label.en in line and preset.source in line]
            assert line.count(f"{preset.window:,}" if preset.window else "window") == bool(preset.window), line
            assert line.count("fixed size") == line.count("not counted") == bool(preset.linear_layers), line


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("variant", KINDS)
def test_the_line_below_the_title_is_of_what_can_be_dragged(variant, language):
    words = said(visit(language, page="variants", variant=variant))
    assert [kind for kind in KINDS if say(language, f"variants.lead.{kind}") in words] == [variant]
    assert KINDS["additive"].say(language).lower() in say(language, "variants.title")


@pytest.mark.parametrize(("heads", "length"), [(8, 363), (1, 1025), (64, 129)])
def test_the_score_matrix_outgrows_the_tile_where_the_words_say(heads, length):
    view = settle({"heads": str(heads)}).view
    assert race.outgrows(view) == length and race.TILE_ENTRIES == _TILE_ENTRIES == 4 * 2**20 // 4
    assert heads * (length - 1) ** 2 <= race.TILE_ENTRIES < heads * length**2
    words = said(visit(page="variants", heads=str(heads), open="race"))
    assert f"at length {length:,} one whole score matrix" in words and str(_BLOCK_ROWS) in words


@pytest.mark.parametrize(
    ("settings", "name", "high"),
    [({}, "heads", 64), ({"heads": "100"}, "heads", 100), ({"model": "falcon-180b"}, "heads", 232),
     ({"model": "falcon-180b", "heads": "9"}, "heads", 232), ({"model": "deepseek-v3-1"}, "heads", 128),
     ({"model": "deepseek-v3-1", "heads": "200"}, "heads", 200)],
    ids=str,
)  # fmt: skip
def test_a_slider_s_track_holds_its_value_and_the_model_s(settings, name, high):
    data = json.loads(component(visit(page="variants", **settings), f"variants.{name}").proto.json)
    assert data["value"] <= data["high"] == high


@pytest.mark.parametrize(
    ("given", "shown"),
    [({"model": "deepseek-v3-1"}, range(32)), ({"model": "deepseek-v3-1", "cell": "70,3,2"}, range(64, 96)),
     ({"model": "falcon-180b", "show": "change", "first": "230"}, range(200, 232)),
     ({"model": "llama-2-70b", "show": "weights", "first": "9"}, range(64)),
     ({"model": "deepseek-v3-1", "latent": "3", "show": "change", "first": "5"}, range(5, 37)),
     ({"model": "falcon-180b"}, range(4))],
    ids=str,
)  # fmt: skip
def test_of_very_many_heads_some_are_drawn_and_the_others_are_one_choice_away(given, shown):
    settled = settle(given)
    assert settled.view.shown == shown and not settled.notes and not settled.problems
    header, _ = unpack(frame(given))
    grid = header["parts"]["maps"]
    assert sorted({int(drawn["key"].split(".")[-1]) for drawn in grid["maps"]}) == list(shown)
    head = int(re.findall(r"head (\d+), query", grid["alt"])[0]) if settled.view.show != "compare" else shown[0]
    assert head in shown
    app = visit(page="variants", **given)
    assert ("variants.first" in keys(app)) == (len(shown) < settled.view.heads)
    if len(shown) < settled.view.heads:
        last = settled.view.heads - len(shown)
        app.selectbox(key="variants.first").set_value(last)
        assert settle(link(check(app.run()))).view.shown.start == last


@pytest.mark.parametrize("more", [{}, {"variant": "mla", "latent": "1", "rope": "0"}, {"variant": "additive"},
                                  {"show": "weights"}, {"variant": "mla", "d_k": "1"}], ids=str)  # fmt: skip
def test_one_of_anything_is_said_in_the_singular(more):
    given = {"heads": "1", "text": "a", "context": "1", "open": "race", **more}
    app = visit(page="variants", **given)
    figures = plots(app)["variants.wires"]["layout"]
    names = [note["text"] for note in figures["annotations"]]
    header, _ = unpack(frame({name: text for name, text in given.items() if name != "open"}))
    words = "\n".join([plain(said(app)), *names, figures["meta"]["alt"], header["parts"]["maps"]["alt"]])
    assert not re.findall(r".{20}\b1 (?:\w+ )?(?:heads|tokens|numbers|others|maps|layers)\b", words)
    assert "<b>1 query head</b>" in names and "KV cache for 1 token " in words


@pytest.mark.parametrize("language", LANGUAGES)
def test_more_than_one_is_said_in_the_plural(language):
    app = visit(language, page="variants")
    names = {note["text"] for note in plots(app)["variants.wires"]["layout"]["annotations"]}
    wanted = {"en": ("8 query heads", "2 KV heads", "KV cache for 8,192 tokens"),
              "zh": ("8 个查询头", "2 个 KV 头", "8,192 个 token 的 KV 缓存")}[language]  # fmt: skip
    assert {f"<b>{name}</b>" for name in wanted[:2]} <= names and wanted[2] in said(app)
