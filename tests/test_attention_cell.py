"""The selected cell's arithmetic and the ledger on the attention page, in both languages, by link."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from attnviz.arithmetic import cell, ledger
from attnviz.text import LANGUAGES
from attnviz.view import settle
from attnviz.view_run import run
from pages.ui.attention_cell import formula, plain
from pages.ui.translate import say, table

ROUTER = str(Path(__file__).resolve().parents[1] / "pages" / "router.py")
TITLE = "attention.cell.title"


def opened(language: str = "en", **settings: str) -> AppTest:
    app = AppTest.from_file(ROUTER, default_timeout=60).switch_page("attention.py")
    for name, value in (settings | {"lang": language}).items():
        app.query_params[name] = value
    app.session_state["attention.ledger"] = True  # the section is open
    app.run()
    assert not app.exception
    return app


def text(app: AppTest) -> str:
    return "\n".join(element.value for element in app.markdown)


def rows(app: AppTest, start: str) -> list[list[str]]:
    """Give the cells of the table whose first header is ``start``."""
    found = [element.value for element in app.markdown if element.value.startswith(f"| {start}")]
    assert len(found) == 1
    return [[part.strip() for part in line.strip("| ").split(" | ")] for line in found[0].splitlines()[2:]]


def has_title(app: AppTest, language: str) -> bool:
    return say(language, TITLE) in [element.value for element in app.subheader]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_selected_cell_shows_its_own_numbers(language):
    settings = {"cell": "1,5,2", "d_k": "4"}
    app = opened(language, **settings)
    call, ran = run(settle(settings).view)
    worked = cell(call, 1, 5, 2, ran)
    assert has_title(app, language)
    assert [row[0] for row in rows(app, "$i$")] == ["0", "1", "2", "3", f"**{say(language, 'attention.cell.sum')}**"]
    assert rows(app, "$i$")[0][1:] == [plain(worked.products[0].query), plain(worked.products[0].key),
                                       plain(worked.products[0].product)]  # fmt: skip
    steps = [
        row[-1]
        for row in rows(app, say(language, "attention.cell.step") + " | " + say(language, "attention.cell.calculation"))
    ]
    assert worked.row_maximum is not None
    kept = say(language, "attention.cell.in")
    numbers = (worked.score, worked.scaled, kept, worked.row_maximum, worked.exponent, worked.row_sum)
    assert steps == [*(n if isinstance(n, str) else plain(n) for n in numbers), f"**{plain(worked.weight)}**"]
    assert [row[-1] for row in rows(app, "$c$")] == [f"**{plain(o.total)}**" for o in worked.output]
    assert f"**{worked.weight:.2%}**" in text(app)


@pytest.mark.parametrize("link", [{}, {"cell": "1,5"}])
def test_without_a_key_there_is_no_arithmetic(link):
    app = opened(**link)
    assert not has_title(app, "en")
    assert "$q_i$" not in text(app)


def test_of_many_dimensions_the_largest_are_shown_and_the_rest_summed():
    app = opened(cell="0,3,1", d_k="32")
    shown = rows(app, "$i$")
    products = [float(row[3].strip("*").replace("−", "-")) for row in shown]
    assert len(shown) == 10
    assert [abs(p) for p in products[:8]] == sorted((abs(p) for p in products[:8]), reverse=True)
    assert shown[8][0] == "24 more"
    assert sum(products[:9]) == pytest.approx(products[9], abs=1e-3)


@pytest.mark.parametrize(("width", "name"), [("4", "output_whole"), ("5", "output")])
def test_an_output_cut_short_says_so(width, name):
    said = say("en", f"attention.cell.{name}", query="3 “on”", shown=4, count=5)
    app = opened(cell="0,3,1", d_k=width)
    assert said in text(app)
    assert len(rows(app, "$c$")) == 4


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"cell": "0,1,5"}, "lead_masked"),
        ({"cell": "0,0,3", "attention": "cross", "align": "bottom_right", "key_length": "4"}, "lead_no_key"),
    ],
)
def test_masked_keys_and_rows_without_a_key_are_said_in_words(language, settings, key):
    said = say(language, f"attention.cell.{key}", head=0, query="Q", target="K")
    start, end = said.split("Q")[0], said.rsplit("K", 1)[1] if key == "lead_masked" else said.rsplit("Q", 1)[1]
    assert re.search(re.escape(start) + ".*" + re.escape(end), text(opened(language, **settings)))


def test_dropout_is_a_step_of_its_own():
    seen = set()
    for key in range(4):
        settings = {"cell": f"0,7,{key}", "dropout": "0.5"}
        worked = cell(run(settle(settings).view)[0], 0, 7, key)
        last = rows(opened(**settings), "step | calculation")[-1]
        assert last[0] == "dropout"
        assert last[2] == f"**{plain(worked.share)}**"
        assert ("dropped" in last[1]) == (worked.dropout_factor == 0.0)
        seen.add(worked.dropout_factor)
    assert seen == {0.0, 2.0}


def test_the_picture_s_own_number_stands_beside_the_steps():
    settings = {"cell": "0,3,1", "dtype": "bfloat16"}
    worked = cell(run(settle(settings).view)[0], 0, 3, 1)
    caption = next(element.value for element in opened(**settings).caption if "float64" in element.value)
    assert plain(worked.drawn.weight) in caption
    assert plain(abs(worked.drawn.weight - worked.share)) in caption


def test_a_row_beyond_the_dtype_is_worked_out_and_the_picture_s_nan_is_explained(monkeypatch):
    settings = {"cell": "0,3,3", "dtype": "float16", "scale": "one"}
    call = run(settle(settings).view)[0]
    large = replace(call, query=call.query * 200, key=call.key * 200)
    monkeypatch.setattr("pages.ui.attention_cell.run", lambda view: (large, None))
    assert not cell(large, 0, 3, 3).drawn.is_finite
    app = opened(**settings)
    assert say("en", "attention.cell.not_finite", dtype="float16") in [element.value for element in app.warning]
    assert "NaN" not in str(rows(app, "$i$") + rows(app, "step | calculation") + rows(app, "$c$"))


@pytest.mark.parametrize("token", ["$x$", "<b>", "|", "*", "[", "`", "_", "~"])
def test_tokens_stay_literal(token):
    app = opened(text=f"{token} {token}", cell="0,1,0")
    literal = "“" + "".join(c if c.isalnum() else f"&#{ord(c)};" for c in token) + "”"
    lead = next(element.value for element in app.markdown if element.value.startswith("Head 0"))
    assert lead.count(literal) == 2
    steps = next(element.value for element in app.markdown if element.value.startswith("| step | calc"))
    assert literal in steps
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in steps.splitlines()} == {4}


def test_a_long_token_is_cut():
    app = opened(text="x" * 500 + " y", cell="0,1,0")
    assert "x" * 23 + "…”" in text(app)
    assert "x" * 24 not in text(app)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("settings", [{}, {"attention": "cross", "heads": "4", "kv_heads": "2"}])
def test_the_ledger_lists_every_shape_in_words(language, settings):
    app = opened(language, **settings)
    words = table(language, "attention.ledger")
    listed = rows(app, words["step"] + " | " + words["shape"])
    entries = ledger(settle(settings).view)
    assert [row[1].replace("\N{NO-BREAK SPACE}", " ") for row in listed] == [
        f"`{list(entry.shape)}`" for entry in entries
    ]
    assert [row[0] for row in listed] == [f"{words[entry.step]} ${entry.name}$" for entry in entries]
    start = say(language, "attention.ledger.shared").split("}")[-1]
    shared = [element.value for element in app.caption if element.value.endswith(start)]
    assert shared == ([say(language, "attention.ledger.shared", heads=4, kv_heads=2, group=2)] if settings else [])


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (2.0, "2"), (-0.0, "0"), (-3.0, "−3"), (0.5, "0.5"), (2.00004, "2.0000"),
        (-0.12345, "−0.1235"), (1234.5, "1234.5"),
        (1.5e-7, "1.50·10⁻⁷"), (-2.5e12, "−2.50·10¹²"), (float("inf"), "∞"),
        (-float("inf"), "−∞"), (float("nan"), "NaN"),
    ],
)  # fmt: skip
def test_numbers_as_text(value, written):
    assert plain(value) == written


@pytest.mark.parametrize(
    ("value", "behind", "written"),
    [
        (0.5, True, "0.5"), (-0.5, False, "-0.5"), (-0.5, True, "(-0.5)"),
        (1.5e-7, False, r"1.50 \cdot 10^{-7}"), (float("inf"), False, r"\infty"), (float("nan"), True, r"\mathrm{NaN}"),
    ],
)  # fmt: skip
def test_numbers_in_a_formula(value, behind, written):
    assert formula(value, behind=behind) == written


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_worked_example_shows_whole_numbers_that_a_hand_can_check(language):
    app = opened(language, input="worked", cell="0,1,1")
    assert [row[1:] for row in rows(app, "$i$")[:-1]] == [
        ["2", "1", "2"], ["0", "−1", "0"], ["0", "0", "0"], ["−1", "0", "0"],
    ]  # fmt: skip
    assert r"$2 \times 0.5$" in text(app)
    assert say(language, "attention.worked", seed=0) in [element.value for element in app.caption]
