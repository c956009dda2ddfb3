"""Variants in the attention page's picker: by link, with their own sliders, their stages and their words."""

import pytest

from attnviz.families import FAMILIES
from attnviz.text import LANGUAGES
from attnviz.variants import VARIANTS
from attnviz.view import settle
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


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_ledger_and_the_code_follow(language):
    app = visit(language, variant="mla")
    app.session_state["attention.ledger"] = True
    app.session_state["attention.snippet"] = True
    check(app.run())
    words = said(app)
    assert say(language, "attention.ledger.rotary") in words and "c = x W_C" in words
    assert "latent, rope = 512, 20" in app.code[0].value
