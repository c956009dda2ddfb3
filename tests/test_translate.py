"""Prose of the pages: every key that is used is there, every one that is there is used, with the fields it needs."""

import ast
import re
import string
from pathlib import Path

import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.masks import MASKS
from attnviz.text import LANGUAGES, Text
from pages.ui.translate import kernel, say, table, words

PAGES = Path(__file__).resolve().parent.parent / "pages"
SOURCES = sorted(PAGES.rglob("*.py"))


def literals() -> set[str]:
    """Give every string in the pages' code, the fixed parts of f-strings included."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def dynamic() -> list[re.Pattern[str]]:
    """Give the keys that are put together when the code runs, as patterns."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [re.escape(p.value) if isinstance(p, ast.Constant) else r"[\w.]+" for p in node.values]
                # A key without a word of its own, such as page and name joined by a point, would fit everything.
                if re.search(r"[a-z]{3}", "".join(part for part in parts if part != r"[\w.]+")):
                    found.append(re.compile("".join(parts)))
    return found


def tables() -> set[str]:
    """Give the names of the tables that are handed on as a whole, by ``table(language, name)``."""
    return {
        node.args[1].value
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "table"
        if len(node.args) == 2 and isinstance(node.args[1], ast.Constant)
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_is_said_with_its_fields(language):
    for key, text in words(language).items():
        names = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
        assert all(re.fullmatch(r"\w+", name) for name in names), key
        filled = say(language, key, **dict.fromkeys(names, "§")) if names else say(language, key)
        assert "{" not in filled or "\\" in filled, key


def test_no_key_is_left_that_nothing_uses():
    """Pages say ``title("row.sum")`` of their own table and ``table(language, "slider")`` of a component's."""
    used, patterns, whole = literals(), dynamic(), tables()
    assert {"slider", "heatmap"} <= whole

    def is_used(key: str) -> bool:
        rest = key.partition(".")[2]
        return (
            key in used or rest in used or key.rpartition(".")[0] in whole
            or any(pattern.fullmatch(key) or pattern.fullmatch(rest) for pattern in patterns)
        )  # fmt: skip

    assert [key for key in words("en") if not is_used(key)] == []


def test_a_key_that_is_not_there_is_an_error():
    with pytest.raises(KeyError, match="no such"):
        say("en", "attention.no such")


@pytest.mark.parametrize(
    "give", [words, lambda language: say(language, "app.title"), lambda language: table(language, "app")]
)
def test_an_unknown_language_is_named(give):
    with pytest.raises(ValueError, match="language must be one of en, zh, got 'fr'"):
        give("fr")


def test_a_field_that_is_a_text_is_said_in_the_same_language():
    for language, word in zip(LANGUAGES, ("cat", "猫"), strict=True):
        assert word in say(language, "attention.alt_empty", stage=Text("cat", "猫"), maps=1, rows=2, cols=3)


def test_a_text_without_fields_keeps_its_braces(monkeypatch):
    monkeypatch.setattr("pages.ui.translate.words", lambda language: {"a.b": "set {x}", "a.c": "{y}"})
    assert say("en", "a.b") == "set {x}"
    assert say("en", "a.c", y=3) == "3"


def test_a_table_holds_what_stands_below_its_name_only():
    slider = table("en", "slider")
    assert {f"slider.{key}" for key in slider} == {key for key in words("en") if key.startswith("slider.")}
    assert "reset" in slider and not any("." in key for key in slider)
    assert table("en", "slide") == {}


def test_texts_cannot_be_changed_by_who_reads_them():
    with pytest.raises(TypeError):
        words("en")["app.title"] = "x"  # type: ignore[index]  # that is the point


def test_no_text_begins_or_ends_with_a_line_break():
    assert [key for language in LANGUAGES for key, text in words(language).items() if text != text.strip("\n")] == []


def test_no_english_sentence_leaves_the_plural_to_its_reader():
    assert [key for key, text in words("en").items() if re.search(r"\w\(s\)", text)] == []


def test_what_ran_is_said_in_the_language_of_the_page():
    drawn = {size: torch.randn(1, *size) for size in ((8, 1, 64), (2, 40, 64), (8, 40, 64))}
    step, shared, own = drawn[8, 1, 64], drawn[2, 40, 64], drawn[8, 40, 64]
    window = MASKS["sliding_window"].build(window=3)
    long = torch.randn(1, 1, 4096, 256)
    ran = {
        BACKENDS["sdpa"].attend(step, shared, shared).kernel: "合并查询的解码 · flash",
        BACKENDS["sdpa"].attend(own, own, own, allowed=window).kernel: "flash",
        BACKENDS["sdpa"].attend(own, own, own, softcap=5.0).kernel: "按行块逐步计算（softcap）",
        BACKENDS["sdpa"].attend(torch.randn(1, 32, 1, 256), long, long).kernel: "合并查询的解码 · 两次乘积",
        BACKENDS["flash"].attend(own, own, own).kernel: "分块 256 × 256",
        "absorbed · flash · row blocks": "吸收形式 · flash · 按行块",
    }
    assert {name: kernel("zh", name) for name in ran} == ran
    assert {kernel("en", name) for name in ran} == set(ran)
