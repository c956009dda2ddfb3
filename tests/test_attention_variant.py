"""Variants in the attention page's picker: by link, with their own sliders, their stages and their words."""

import pytest

from attnviz import guard, units
from attnviz.families import FAMILIES
from attnviz.text import LANGUAGES
from attnviz.variants import VARIANTS
from attnviz.view import settle
from attnviz.view_run import run
from pages.ui.attention_row import frame
from pages.ui.heatmap.frame import unpack
from pages.ui.translate import say
from tests.pages import check, keys, link, plain, said, shown, visit, widgets


def test_every_family_names_variants_whose_weights_a_softmax_makes():
    for family in FAMILIES.values():
        for heads, kv_heads in ((4, 4), (4, 2), (4, 1)):
            assert hasattr(VARIANTS[family.variant(heads, kv_heads)], "project")
        assert family.source.startswith("https://") and family.help.zh and family.shares in (True, False)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("more", [{}, {"position": "rope", "rope": "6"}, {"cell": "1,5,3", "latent": "3"}], ids=str)
def test_mla_by_link(more, language):
    given = {"variant": "mla", **more}
    app = visit(language, **given)
    assert link(app) == given and not app.warning and not app.error
    own, codes = shown(app)
    header, sent = unpack(frame({**given, "lang": language}))
    assert own["parts"]["main"]["maps"] == header["parts"]["main"]["maps"]
    assert all((one == other).all() for one, other in zip(codes["main"], sent["main"], strict=True))
    assert "MLA 4" in header["parts"]["main"]["caption"]
    found = keys(app)
    assert {"attention.latent", "attention.rope"} <= found and "attention.kv_heads" not in found
    # What the picker cannot offer is said where it stands, the section being open.
    assert widgets(app)["attention.variant"] == "mla" and say(language, "attention.rules.others") in said(app)
    links = {entry.proto.label: entry.proto for entry in app.get("page_link")}
    for page in ("variants", "linear"):
        found = links[say(language, f"{page}.nav")]
        assert found.page == page and f"lang={language}" in found.query_string
    assert FAMILIES["mla"].source in said(app)


@pytest.mark.parametrize("variant", ["additive", "linear", "mha"])
def test_a_variant_without_these_stages_is_named(variant):
    app = visit(variant=variant)
    assert f"variant must be one of grouped, mla, got {variant!r}." in plain(app.warning[0].value)
    assert link(app) == {} and settle({"variant": variant}).view.variant == "grouped"
    # Where it is, and why not here; the names of grouped attention's own sizes are no other page's.
    where = {"additive": "no product of q and k, and so no such stages; it is at /variants?variant=additive.",
             "linear": "no softmax, and so no such stages; it is at /linear."}  # fmt: skip
    assert plain(app.warning[0].value).endswith(where.get(variant, f"got {variant!r}."))
    chinese = plain(visit("zh", variant=variant).warning[0].value)
    assert ("也就没有这些阶段" in chinese) == (variant in where) and ("/variants?" in chinese) == (
        variant == "additive"
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_ledger_and_the_code_follow(language):
    app = visit(language, variant="mla")
    app.session_state["attention.ledger"] = True
    app.session_state["attention.snippet"] = True
    check(app.run())
    words = said(app)
    assert say(language, "attention.ledger.rotary") in words and "c = x W_C" in words
    assert "latent, rope = 512, 20" in app.code[0].value


WORDS = {
    ("grouped", 4): ("this is MHA", "这就是 MHA"),
    ("grouped", 2): ("i // 2. This is GQA", "i // 2 个 KV 头。这就是 GQA"),
    ("grouped", 1): ("all 4 read the one KV head", "4 个头都读取唯一的 KV 头"),
    ("mla", 4): ("keeps 70 numbers of each token, where MHA with as many heads of this d_k keeps 128", "存 70 个数"),
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("variant", "kv_heads"), WORDS)
def test_what_is_said_of_heads_is_of_the_variant_that_is_drawn(variant, kv_heads, language):
    own = {"latent": "64", "rope": "6"} if variant == "mla" else {"kv_heads": str(kv_heads)}
    words = said(visit(language, variant=variant, heads="4", d_k="16", **own))
    held = {given: WORDS[given][LANGUAGES.index(language)] in words for given in WORDS}
    assert held == {given: given == (variant, kv_heads) for given in WORDS}


@pytest.mark.parametrize("language", LANGUAGES)
def test_of_what_queries_and_keys_are_made_is_said_as_it_is(language):
    def part(name, **fields):
        return say(language, f"attention.words.made.{name}", **fields)

    latent, rotary, expanded = {"latent": 64}, part("rotary", rope=6, d_k=16), part("expanded")
    wanted = {
        (): (part("self"),),
        ("cross",): (part("cross"),),
        ("mla",): (part("latent_self", **latent), rotary, expanded),
        ("mla", "cross"): (part("latent_cross", **latent), rotary, expanded),
        ("mla", "plain"): (part("latent_self", **latent), expanded),
        ("worked",): (),
    }
    every = {sentence for sentences in wanted.values() for sentence in sentences} | {part("rotary", rope=0, d_k=16)}
    ways = {
        "cross": {"attention": "cross"},
        "mla": {"variant": "mla", "latent": "64", "rope": "6"},
        "plain": {"rope": "0"},
        "worked": {"input": "worked"},
    }
    for names, sentences in wanted.items():
        given = {"d_k": "16"}
        for name in names:
            given |= ways[name]
        words = said(visit(language, **given))
        assert {sentence for sentence in every if sentence in words} == set(sentences), names


def test_the_rotary_part_of_every_key_is_the_same_and_the_rest_is_each_head_s_own():
    view = settle({"variant": "mla", "heads": "4", "d_k": "16", "latent": "64", "rope": "6"}).view
    call, _ = run(view)
    key = call.key[0]
    assert key.shape == (4, view.key_length, 16)
    assert (key[:, :, 10:] == key[:1, :, 10:]).all() and not (key[1:, :, :10] == key[:1, :, :10]).any()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("given", [{}, {"variant": "mla"}, {"backend": "sdpa"}], ids=str)
def test_what_is_held_at_most_is_among_the_parts_that_are_named(given, language):
    app = visit(language, **given)
    (metric,) = (entry for entry in app.metric if entry.label == say(language, "attention.numbers.taken"))
    taken = guard.predict(settle(given).view)
    assert taken.making == taken.total and units.binary_bytes(taken.making) == metric.value
    for part in ("making", "inputs", "calling", "kept", "block"):
        assert units.binary_bytes(getattr(taken, part)) in metric.help
