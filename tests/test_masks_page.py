"""The masks page as a visitor meets it: every mask and section by link, hostile links, what is said and drawn."""

import json
import re

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from attnviz import units
from attnviz.knobs import Choice
from attnviz.mask_view import timing as times
from attnviz.mask_view.export import export
from attnviz.mask_view.settings import CONVENTIONS, FORMS, KNOBS, SECTIONS, mask_knobs, mod_knobs, other_knobs
from attnviz.mask_view.view import settle
from attnviz.mask_view.ways_script import ways_script
from attnviz.masks import MASKS, dense
from attnviz.masks.own import DEFAULT_RULE
from attnviz.score_mods import SCORE_MODS
from attnviz.text import LANGUAGES, Refusal
from pages.ui import masks_details, masks_maps, masks_picture
from pages.ui.heatmap.frame import MASKED, MOST_BYTES, NAN, NO_KEY, TOP, unpack
from pages.ui.translate import say
from tests.pages import check, component, go, keys, link, plain, said, shown, visit, widgets

MAIN = "masks.main.mask"


@pytest.fixture(scope="module")
def app() -> AppTest:
    """One visitor who opens one link after another."""
    return visit(page="masks")


def allowed(app: AppTest, section: str = "mask") -> np.ndarray:
    """Give which cells the large picture colours."""
    return shown(app, f"masks.main.{section}")[1]["main"][0] <= TOP


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_by_link_with_its_own_controls(mask, language, app):
    go(app, {"mask": mask, "length": "19"}, language)
    assert not app.error and not [w for w in app.warning if "19" in plain(w.value) and "was" in w.value]
    view = settle({"mask": mask, "length": "19"}).view
    grid = dense(view.build_mask(), 19, 19, batch=view.batch, heads=8)
    assert (allowed(app) == grid[0, 0].numpy()).all()
    assert {f"masks.{name}" for name in mask_knobs(mask)} <= keys(app)
    assert MASKS[mask].help.say(language) in plain(said(app))
    assert MASKS[mask].source in said(app)
    gallery = shown(app, "masks.gallery")[0]
    assert [entry["key"] for entry in gallery["parts"]["gallery"]["maps"]] == list(MASKS)
    assert gallery["config"]["chosen"] == mask


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_section_says_what_it_shows(section, language, app):
    go(app, {"section": section, "mask": "sliding_window"}, language)
    assert not app.error and not app.warning
    assert say(language, f"masks.words.{section}") in said(app)
    assert app.caption[-1].value.count("https://") >= 5
    assert {key for key in keys(app) if key.startswith("masks.main.")} <= {f"masks.main.{section}"}
    assert len(app.get("code")) == (section == "code")  # only the section that is shown is computed
    assert ("masks.plain" in keys(app)) == (section == "mask")


CHOICES = [(name, option) for name, knob in KNOBS.items() if isinstance(knob, Choice) for option in knob.options]


@pytest.mark.parametrize(("name", "option"), CHOICES, ids=str)
def test_every_choice_by_link(name, option, app):
    go(app, {name: option}, "zh" if len(option) % 2 else "en")
    assert not app.error
    assert link(app) == ({} if option == KNOBS[name].default else {name: option})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_code_on_the_page_is_the_one_that_is_run_elsewhere(form, language, app):
    given = {"section": "code", "form": form, "mask": "sliding_window", "window": "5"}
    go(app, given, language)
    (block,) = app.get("code")
    assert block.value.strip() == export(settle(given).view).strip()
    assert say(language, f"masks.code.{form}") in said(app)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_script_of_a_comparison_is_there_when_it_is_opened(language):
    given = {"section": "conventions", "convention": "floats", "open": "ways"}
    app = visit(language, page="masks", **given)
    (block,) = app.get("code")
    assert block.value == ways_script(settle(given | {"open": ""}).view).rstrip() and link(app) == given
    assert say(language, "masks.ways.code_lead") in said(app)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_every_comparison_is_drawn_by_page_and_route_alike(convention, app):
    given = {"section": "conventions", "convention": convention}
    go(app, given)
    header, codes = unpack(masks_picture.frame(given))
    for part in ("main", "difference"):
        own, own_codes = shown(app, f"masks.ways.{part}.{convention}")
        assert [entry["key"] for entry in own["parts"][part]["maps"]] == [
            entry["key"] for entry in header["parts"][part]["maps"]
        ]
        assert all((a == b).all() for a, b in zip(own_codes[part], codes[part], strict=True))
    nans = [(code == NAN).sum() for code in codes["main"]]
    assert (sum(nans) > 0) == (convention == "fill")
    first = header["parts"]["main"]["maps"][0]["key"]
    answer = masks_picture.cell(given | {"part": "main", "map": first, "row": "5", "col": "4"})
    assert float(str(answer["value"])) > 0
    with pytest.raises(Refusal, match="map must be one of"):
        masks_picture.cell(given | {"part": "main", "map": "nothing", "row": "5", "col": "4"})


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("settings", "key"), [({}, "fill"), ({"empty": "0"}, "fill_even"),
                         ({"convention": "corner"}, "corner"), ({"convention": "corner", "mask": "padding"},
                         "corner_same")], ids=str)  # fmt: skip
def test_a_comparison_in_which_nothing_differs_says_so(settings, key, language, app):
    go(app, {"section": "conventions", **settings}, language)
    start = {name: say(language, f"masks.ways.{name}").split("{")[0] for name in ("fill", "fill_even")}
    middle = {name: say(language, f"masks.ways.{name}").split("}")[-1] for name in ("corner", "corner_same")}
    assert [name for name, words in (start | middle).items() if words in said(app)] == [key]


@pytest.mark.parametrize("other", MASKS)
def test_every_second_mask_and_its_controls(other, app):
    go(app, {"join": "and", "other": other})
    assert {f"masks.{name}" for name in other_knobs(other)} <= keys(app)
    view = settle({"join": "and", "other": other}).view
    assert (allowed(app) == dense(view.build_mask(), 32, 32, batch=view.batch, heads=8)[0, 0].numpy()).all()


@pytest.mark.parametrize("mod", SCORE_MODS)
def test_case_18_a_score_change_is_seen_alone_and_with_the_mask(mod, app):
    """https://github.com/meta-pytorch/attention-gym/issues/29: ALiBi or soft-cap together with a mask."""
    go(app, {"score_mod": mod})
    assert {f"masks.{name}" for name in mod_knobs(mod)} <= keys(app)
    assert ("masks.change" in keys(app)) == (mod != "none")
    if mod != "none":
        header, codes = shown(app, "masks.change")
        assert [entry["key"] for entry in header["parts"]["change"]["maps"]] == ["change", "together"]
        alone, together = codes["change"]
        assert (alone <= TOP).all() and (together == MASKED).sum() == 32 * 31 / 2


@pytest.mark.parametrize("section", SECTIONS)
def test_a_score_change_says_where_it_is_drawn_and_has_its_controls_there_alone(section, app):
    go(app, {"score_mod": "alibi", "section": section, "head": "3"})
    here = section == "mask"
    assert (say("en", "masks.score_elsewhere", mask="Mask") in said(app)) is not here
    assert ("masks.head" in keys(app)) is here and link(app)["head"] == "3"
    go(app, {"score_mod": "softcap", "section": section})
    assert ("masks.cap" in keys(app)) is here
    go(app, {"score_mod": "alibi", "section": section, "mask": "random_block"})
    assert "masks.head" in keys(app)  # the mask's own heads differ everywhere


def test_the_input_of_the_conventions_has_its_seed_beside_it(app):
    go(app, {"section": "conventions"})
    before = shown(app, "masks.ways.main.fill")[1]["main"][0]
    app.number_input(key="masks.seed").set_value(5)
    check(app.run())
    assert link(app)["seed"] == "5" and (shown(app, "masks.ways.main.fill")[1]["main"][0] != before).any()
    go(app, {"section": "reach"})
    assert "masks.seed" not in keys(app)


HOSTILE = {
    "mask": ({"mask": "veil"}, "mask must be one of full, causal"),
    "section": ({"section": "<b>"}, "section must be one of mask, blocks, reach"),
    "rule": ({"mask": "own", "rule": "__import__('os')"}, "rule: at character 1, \"__import__('os')\" is not allowed"),
    "power": ({"mask": "own", "rule": "9**9**9 > q_idx"}, "the exponent must be a whole number from 0 to 52"),
    "markup": ({"mask": "own", "rule": "<script>alert(1)</script>"}, "cannot be read"),
    "flood": ({"mask": "own", "rule": "q_idx<" * 4000}, "text of at most 240 characters"),
    "length": ({"length": "-1"}, "length must be a whole number from 1 to 131,072, got '-1'"),
    "cell": ({"cell": "1,2,3"}, "cell must be at most 2 whole numbers"),
    "unknown": ({"d_k": "64"}, "'d_k' is not a setting of this page."),
    "foreign": ({"window": "3"}, None),
    "other": ({"join": "and", "other": "padding", "other_lengths": "x"}, "other_lengths"),
    "mod": ({"score_mod": "softcap", "cap": "nan"}, "must be a number from 0.1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_bad_value_is_named_once_and_literally(name, app):
    settings, words = HOSTILE[name]
    go(app, settings)
    if words is None:  # a setting of a mask that is not chosen is merely left out
        assert not app.warning and link(app) == {}
        return
    (warning,) = app.warning
    assert words in plain(warning.value) and len(warning.value) < 1500
    assert not re.search(r"(?<!\\)[<$\[*]", warning.value)
    assert MAIN in keys(app)


TYPOS = {"kv_idx <= q_idx and foo(3) < 2": "'foo(3)' is not allowed", "q" * 5000: "text of at most 240 characters"}


@pytest.mark.parametrize("page", ["masks", "attention"])
@pytest.mark.parametrize("typo", TYPOS, ids=lambda typo: typo[:9])
def test_a_rule_with_a_typo_stays_to_be_mended_and_the_last_good_one_is_drawn(page, typo):
    good, key = "kv_idx < 3", f"{page}.rule"
    fresh = visit(page=page, mask="own", rule=good)
    check(fresh.text_area(key=key).set_value(typo).run())
    assert fresh.text_area(key=key).value == typo and link(fresh) == {"mask": "own", "rule": good}
    assert plain(said(fresh)).count(TYPOS[typo]) == 1 and not fresh.warning
    name = "align" if page == "masks" else "seed"
    fresh.session_state[f"settings.{page}"] |= {name: "bottom_right" if page == "masks" else "3"}
    check(fresh.run())  # another setting changes: the text and its sentence stay
    assert fresh.text_area(key=key).value == typo and TYPOS[typo] in plain(said(fresh))
    check(fresh.text_area(key=key).set_value("kv_idx < 4").run())
    assert link(fresh)["rule"] == "kv_idx < 4" and TYPOS[typo] not in plain(said(fresh))


def test_a_linked_rule_with_a_typo_stays_in_its_box_until_another_link_comes(app):
    typo = "kv_idx <= foo"
    go(app, {"mask": "own", "rule": typo})
    assert app.text_area(key="masks.rule").value == typo and link(app) == {"mask": "own"}
    check(app.text_area(key="masks.rule").set_value(DEFAULT_RULE).run())
    assert not app.warning and "is not a known name" not in plain(said(app))
    go(app, {"mask": "own", "rule": typo})
    go(app, {"mask": "own", "rule": "kv_idx < 5"})
    assert app.text_area(key="masks.rule").value == "kv_idx < 5" and not app.warning


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_grid_that_is_too_large_is_refused_and_the_page_stays_alive(language, app):
    go(app, {"length": "131072", "mask": "full"}, language)
    (error,) = app.error
    assert "131,072" in error.value and MAIN not in keys(app)
    gallery = shown(app, "masks.gallery")[0]
    assert len(gallery["parts"]["gallery"]["maps"]) == len(MASKS) and gallery["config"]["chosen"] == "full"
    assert say(language, "masks.words.title") in said(app) and "masks.length" in keys(app)
    go(app, {"length": "1100", "section": "reach"}, language)
    assert len(app.error) == 1 and "1,024" in app.error[0].value
    go(app, {}, language)
    assert not app.error and MAIN in keys(app)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_mask_turned_around_is_warned_of_in_every_section(section, app):
    for length in ("24", "2048") if section != "reach" else ("24",):
        for invert in ("1", "0"):
            go(app, {"invert": invert, "section": section, "length": length, "tile": "64"})
            warned = [warning for warning in app.warning if warning.value == say("en", "masks.only_future")]
            assert len(warned) == int(invert)


def test_a_long_map_is_pooled_and_its_numbers_are_exact(app):
    go(app, {"mask": "sliding_window", "window": "8", "length": "4096"})
    entry = shown(app, MAIN)[0]["parts"]["main"]["maps"][0] if shown(app, MAIN)[0]["parts"]["main"]["maps"] else None
    assert entry is None or entry["pool"] == [4, 4]
    values = {metric.label: metric.value for metric in app.metric}
    assert values["Pairs"] == "32,740"


def test_one_query_one_key_and_one_pair_are_said_in_the_singular(app):
    go(app, {"section": "conventions", "convention": "corner", "length": "1", "key_length": "5"})
    assert "With 1 query and 5 keys" in said(app) and "allows **1 pair**, bottom-right **5 pairs**" in said(app)
    go(app, {"section": "conventions", "convention": "window", "mask": "sliding_window", "window": "1", "length": "1"})
    assert "is **1 pair** where" in said(app) and "means 1 key back" in said(app)
    view = settle({"length": "1", "section": "blocks", "tile": "1"}).view
    assert masks_picture.tile_text(view, 0, 0, "en") == "full: all of 1 pair"
    assert "1 × 1 · 1 pair (100%)" in masks_maps.mask(view, "en").caption


def test_numbers_that_would_be_cut_are_short_and_in_full_under_the_picture(app):
    go(app, {"mask": "sliding_window", "window": "4", "length": "131072"})
    values = {metric.label: metric.value for metric in app.metric}
    assert values == {"Pairs": "524k", "Density": "<0.01%", "Keys": "1 – 4", "Empty rows": "0"}
    view = settle({"mask": "sliding_window", "window": "4", "length": "131072"}).view
    assert "524,282 pairs" in masks_picture.grids(view, "en")[0]["main"].caption


def test_a_tile_has_the_colour_of_its_kind_however_few_its_pairs(app):
    go(app, {"section": "blocks", "mask": "sliding_window", "window": "4", "length": "70", "tile": "16"})
    codes = shown(app, "masks.main.blocks")[1]["main"][0]
    assert {int(code) for code in codes[codes <= TOP]} == {round(TOP / 2 + 0.1)}
    go(app, {"section": "blocks", "mask": "causal", "length": "70", "tile": "16"})
    codes = shown(app, "masks.main.blocks")[1]["main"][0]
    assert (codes == TOP).sum() == 10 and (codes == MASKED).sum() == 10


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_sequence_of_the_batch_is_selected(side, app):
    for sequence, length in enumerate((20, 32, 9)):
        go(app, {"mask": "padding", "side": side, "sequence": str(sequence)})
        assert allowed(app).sum(1).tolist() == [length] * 32
        assert allowed(app)[0].tolist()[0 if side == "right" else -1]
    assert widgets(app)["masks.sequence"] == 2
    app.number_input(key="masks.sequence").set_value(0)
    check(app.run())
    assert allowed(app).sum() == 20 * 32 and "sequence" not in link(app)


@pytest.mark.parametrize("language", LANGUAGES)
def test_rows_without_a_key_are_counted_drawn_and_said(language, app):
    go(app, {"mask": "causal", "length": "6", "key_length": "4", "align": "bottom_right"}, language)
    codes = shown(app, MAIN)[1]["main"][0]
    assert (codes[:2] == NO_KEY).all() and not (codes[2:] == NO_KEY).any()
    assert plain(say(language, "masks.empty_warning", rows="2")) in plain(said(app))
    go(app, {"mask": "causal"}, language)
    assert not app.warning


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_selected_cell_says_why_with_its_numbers_and_can_be_cleared(language, app):
    go(app, {"mask": "sliding_window", "window": "3", "cell": "7,4"}, language)
    text = plain(said(app))
    assert say(language, "masks.why.may_not", query=7, target=4) in text
    assert ":red[✗] `kv_idx > q_idx - 3`: 4 > 4" in text.replace("\xa0", " ")
    assert ":green[✓] `kv_idx <= q_idx`: 4 <= 7" in text.replace("\xa0", " ")
    app.button(key="masks.clear").click()
    check(app.run())
    assert "cell" not in link(app) and say(language, "masks.why.hint") in said(app)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_rule_that_is_joined_by_or_says_so(language, app):
    go(app, {"mask": "own", "cell": "5,2"}, language)
    text = plain(said(app)).replace("\xa0", " ")
    one_of = say(language, "masks.why.of_or")
    assert f"- :green[✓] {one_of}\n  - :green[✓] `q_idx - kv_idx < 4`: 3 < 4\n  - :red[✗] `kv_idx % 4 == 0`" in text


def test_a_joined_pair_says_both_reasons(app):
    go(app, {"join": "or", "other": "padding", "cell": "3,9", "invert": "1"})
    text = plain(said(app))
    assert "**Causal**" in text and "**Padding**" in text and "kv_idx < 20" in text
    assert say("en", "masks.why.or") in text and say("en", "masks.why.invert") in text
    assert "Query 3 may not attend to key 9." in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_skipping_is_timed_on_request_and_forgotten_with_the_settings(language):
    fresh = visit(language, page="masks", section="blocks", mask="sliding_window", length="64", tile="16")
    assert not [m for m in fresh.markdown if "×**" in m.value or "倍**" in m.value]
    fresh.button(key="masks.measure").click()
    check(fresh.run())
    assert [m for m in fresh.markdown if "×**" in m.value or "倍**" in m.value]
    fresh.number_input(key="masks.seed").set_value(5)
    check(fresh.run())
    assert link(fresh)["seed"] == "5"
    assert not [m for m in fresh.markdown if "×**" in m.value or "倍**" in m.value]
    go(fresh, {"section": "blocks", "mask": "causal", "length": "64", "tile": "16"}, language)
    assert not [m for m in fresh.markdown if "×**" in m.value or "倍**" in m.value]
    go(fresh, {"section": "blocks", "length": "4096", "tile": "8"}, language)
    fresh.button(key="masks.measure").click()
    check(fresh.run())
    assert len(fresh.error) == 1 and "2,048" in fresh.error[0].value


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("is_noisy", [True, False])
def test_a_busy_machine_is_named_beside_the_factor(is_noisy, language, monkeypatch):
    quiet = [1e-3, 1.01e-3, 0.99e-3, 1e-3]
    made = times.Timing.of(quiet, [2e-3, 9e-3, 2e-3, 9e-3] if is_noisy else [2 * one for one in quiet])
    monkeypatch.setattr(times, "measure", lambda view: made)
    fresh = visit(language, page="masks", section="blocks", mask="sliding_window", length="64", tile="16")
    fresh.button(key="masks.measure").click()
    check(fresh.run())
    fields = {"ratio": made.ratio, "lower": made.lower, "upper": made.upper}
    factor = say(
        language, "masks.timing.result", skipping="", whole="", **{k: units.number(v) for k, v in fields.items()}
    )
    assert factor[-30:] in said(fresh)
    assert (say(language, "masks.timing.noisy") in said(fresh)) == is_noisy


# The live route


@pytest.mark.parametrize("settings", [{}, {"mask": "padding", "sequence": "1"}, {"section": "blocks", "tile": "5"},
                                      {"section": "reach", "mask": "dilated"}, {"score_mod": "alibi"}])  # fmt: skip
def test_the_page_and_the_live_route_draw_the_same(settings, app):
    go(app, settings)
    header, codes = unpack(masks_picture.frame(settings | {"lang": "en"}))
    section = settings.get("section", "mask")
    own, own_codes = shown(app, f"masks.main.{section}")
    assert header["parts"]["main"] == own["parts"]["main"] | {"maps": header["parts"]["main"]["maps"]}
    assert (codes["main"][0] == own_codes["main"][0]).all()
    assert set(codes) == {"gallery", "main", *(("change",) if "score_mod" in settings else ())}
    if section in ("mask", "reach"):
        figure = json.loads(component(app, f"masks.chart.{section}").proto.json)["figure"]
        assert header["figures"]["chart"] == json.loads(figure)


def test_a_cell_is_said_in_words():
    def ask(**params: str) -> object:
        return masks_picture.cell({"lang": "en", "map": "mask", **params})["value"]

    assert (ask(row="5", col="5"), ask(row="5", col="6")) == ("may attend", "")
    assert ask(section="blocks", tile="8", row="1", col="1") == "partial: 36 of 64 pairs"
    assert ask(section="blocks", tile="8", row="3", col="0") == "full: all of 64 pairs"
    assert ask(section="blocks", tile="8", row="0", col="3") == "empty: none of 64 pairs"
    reach = {"section": "reach", "mask": "sliding_window", "window": "3", "row": "9", "col": "5"}
    assert (ask(**reach), ask(**reach, layers="1")) == ("after layer 2", "")
    alone = masks_picture.cell({"score_mod": "alibi", "part": "change", "map": "change", "row": "5", "col": "9"})
    assert float(str(alone["value"])) == pytest.approx(-4 * 0.5, abs=1e-5)
    together = masks_picture.cell({"score_mod": "alibi", "part": "change", "map": "together", "row": "5", "col": "9"})
    assert (together["value"], together["state"]) == ("", 1)


@pytest.mark.parametrize("language", LANGUAGES)
def test_pairs_and_layers_are_named_in_the_legend(language):
    may, after = say(language, "masks.may"), [say(language, "masks.reach.after", layer=layer) for layer in (1, 2, 3)]
    assert {one.kinds for one in masks_details.plain_grid(language).maps} == {((1.0, may),)}
    link = {"section": "reach", "mask": "sliding_window", "window": "3"}
    (drawn,) = masks_maps.reach(settle(link).view, language)[0].maps
    assert drawn.kinds == tuple(zip((1.0, 2.0, 3.0), after, strict=True))
    (many,) = masks_maps.reach(settle(link | {"layers": "7"}).view, language)[0].maps
    assert many.kinds == ()


def test_thumbnails_and_the_two_plain_pictures_answer_too():
    def ask(**params: str) -> object:
        return masks_picture.cell({"lang": "en", **params})["value"]

    assert ask(part="gallery", map="causal", row="5", col="4", length="4096") == "may attend"
    assert ask(part="gallery", map="local_window", row="5", col="9") == "may attend"
    assert ask(part="gallery", map="local_window", row="5", col="10") == ""
    assert (ask(part="plain", map="causal", row="1", col="2"), ask(part="plain", map="padding", row="5", col="3")) == (
        "", "may attend",
    )  # fmt: skip
    with pytest.raises(Refusal, match="row must be a whole number from 0 to 31"):
        ask(part="gallery", map="full", row="32", col="0")


@pytest.mark.parametrize(
    "params",
    [
        {"row": "99", "col": "0"},
        {"row": "x", "col": "0"},
        {"part": "other", "row": "0", "col": "0"},
        {"part": "gallery", "map": "veil", "row": "0", "col": "0"},
        {"section": "code", "row": "0", "col": "0"},
        {"mask": "own", "rule": "(", "row": "0", "col": "0"},
    ],
)
def test_a_cell_that_is_not_there_is_refused(params):
    with pytest.raises(Refusal):
        masks_picture.cell(params)


def test_a_region_of_a_long_mask_is_sharper():
    given = {"mask": "causal", "length": "4096", "part": "main", "map": "mask", "rows": "100-164", "cols": "90-170"}
    header, codes = unpack(masks_picture.frame(given))
    entry = header["parts"]["main"]["maps"][0]
    assert (entry["rows"], entry["cols"], entry["pool"]) == (64, 80, [1, 1])
    assert ((codes["main"][0] <= TOP) == np.tri(64, 80, 10, dtype=bool)).all()
    for bad in ({"rows": "9-2"}, {"rows": "0-99999"}, {"part": "gallery"}, {"section": "blocks"}):
        with pytest.raises(Refusal):
            masks_picture.frame(given | bad)


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("mod", ["none", "alibi"])
def test_no_frame_is_larger_than_a_message_may_be(section, mod):
    long = {
        "join": "or",
        "other": "padding",
        "other_lengths": ",".join(["131072"] * 256),
        "rule": "q_idx<1" + " " * 233,
    }
    given = {"section": section, "score_mod": mod, "length": "1024" if section == "reach" else "4096", "mask": "own"}
    given |= {"tile": "8"} if section == "blocks" else {}
    assert len(masks_picture.frame(given | long | {"lang": "zh"})) <= MOST_BYTES


@pytest.mark.parametrize(
    "given",
    [
        {"cell": "7,4"},
        {"cell": "7,4", "score_mod": "alibi"},
        {"section": "reach", "cell": "7,4"},
        {"section": "conventions", "cell": "7,4"},
        {"section": "blocks", "picked": "2,1"},
    ],
)
def test_every_picture_of_a_run_is_told_the_same_selection(given, app):
    """The last of them would else take back what the others said."""
    go(app, given)
    section = given.get("section", "mask")
    own = [f"masks.main.{section}"]
    if section == "conventions":
        own = ["masks.ways.main.fill", "masks.ways.difference.fill"]
    own += ["masks.change"] if "score_mod" in given else []
    chosen = [shown(app, key)[0]["config"]["selected"] for key in ("masks.gallery", *own)]
    assert all(entry == chosen[0] for entry in chosen) and chosen[0] is not None
    place = given.get("cell", given.get("picked", "")).split(",")
    assert [chosen[0]["query"], chosen[0]["key"]] == [int(index) for index in place]
    assert chosen[0]["map"] in [entry["key"] for entry in shown(app, own[0])[0]["parts"]["main"]["maps"]]
    dims = {entry["row_axis"]["dim"] for entry in shown(app, "masks.gallery")[0]["parts"]["gallery"]["maps"]}
    assert dims == {"feature"}  # thumbnails are of other lengths and mark nothing


@pytest.mark.parametrize("mask", MASKS)
def test_case_17_a_mask_follows_every_length_in_every_section(mask):
    for length, section in zip(("1", "5", "33", "70"), ("mask", "blocks", "reach", "conventions"), strict=True):
        header, codes = unpack(masks_picture.frame({"mask": mask, "length": length, "section": section}))
        side = {"blocks": 1, "conventions": 32}.get(section, int(length))
        assert codes["main"][0].shape == (side, side)
        assert len(header["parts"]["gallery"]["maps"]) == len(MASKS)
