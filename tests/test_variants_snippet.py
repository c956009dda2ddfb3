"""The variants page as a script: run as a person would, its tensors are the page's."""

import runpy

import numpy as np
import pytest

from attnviz.conversion import METHODS
from attnviz.snippet import layer_snippet
from attnviz.text import LANGUAGES
from attnviz.variant_view.layers import narrowed
from attnviz.variant_view.settings import VARIANTS
from attnviz.variant_view.view import settle
from pages.ui.translate import say
from pages.ui.variants_sections import code
from tests.pages import check, said, visit

VIEWS = (
    {},
    {"kv_heads": "8"},
    *({"heads": "6", "kv_heads": "2", "d_k": "5", "method": method, "seed": "3"} for method in METHODS),
    {"heads": "6", "kv_heads": "6", "method": "random"},
    {"variant": "mla"},
    {"variant": "mla", "latent": "7", "rope": "6", "heads": "3", "d_k": "9"},
    {"variant": "mla", "latent": "100", "rope": "0"},
    {"variant": "mla", "rope": "5"},
    {"variant": "additive"},
    {"variant": "additive", "heads": "3", "d_k": "1", "seed": "9"},
    {"text": '<b> {x} \' """ \\ 猫 $x$', "variant": "additive"},
    {"text": ""},
)


@pytest.mark.parametrize("given", VIEWS, ids=str)
def test_the_script_gives_the_page_s_maps_and_error(given, tmp_path, capsys):
    settled = settle(given)
    assert not settled.problems
    path = tmp_path / "view.py"
    path.write_text(code(settled.view), encoding="utf-8")
    got, want = runpy.run_path(str(path)), narrowed(settled.view)
    for name in ("weights", "before"):
        np.testing.assert_allclose(got[name], getattr(want, name), atol=2e-5)
    assert got["error"] == pytest.approx(want.error, abs=1e-4)
    assert f"output error {got['error']:.1%}" in capsys.readouterr().out
    assert "attnviz" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("variant", "method"), [("gqa", "mean"), ("grouped", "median")])
def test_what_is_not_known_is_named(variant, method):
    with pytest.raises(ValueError, match="must be one of"):
        layer_snippet(variant, method=method, heads=2, d_k=4, width=8, tokens=("a",), seed=0)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_page_offers_it(variant, language):
    app = visit(language, page="variants", variant=variant)
    assert not app.code and say(language, "variants.snippet.lead") not in said(app)
    app.session_state["variants.snippet"] = True
    check(app.run())
    (shown,) = app.code
    assert shown.value == code(settle({"variant": variant}).view).strip("\n")
