"""Sentences into tokens, tokens into vectors."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attnviz.inputs import INPUTS, random_normal, token_vectors, tokenize

FAMILY = "👩\u200d👩\u200d👧\u200d👦"
SCOTLAND = "🏴" + "".join(chr(0xE0000 + ord(letter)) for letter in "gbsct") + "\U000e007f"

SENTENCES = [
    ("the cat, the mat .", ["the", "cat", ",", "the", "mat", "."]),
    ("don't it’s 'so'", ["don't", "it’s", "'", "so", "'"]),
    ("3.14 1,000. v2.x x_1", ["3.14", "1,000", ".", "v2", ".", "x", "x_1"]),
    ("well-known (yes)...", ["well", "-", "known", "(", "yes", ")", ".", ".", "."]),
    ("那只猫坐在垫子上。", [*"那只猫坐在垫子上。"]),
    ("GPT模型2025年,用attention", ["GPT", "模", "型", "2025", "年", ",", "用", "attention"]),
    ("a𠮷野家\u3000xｶﾞｷ 人々x", ["a", "𠮷", "野", "家", "x", "ｶﾞ", "ｷ", "人", "々", "x"]),
    ("ひらカタ か\u3099", ["ひ", "ら", "カ", "タ", "か\u3099"]),
    ("안녕 \u1112\u1161\u11ab글", ["안", "녕", "\u1112\u1161\u11ab", "글"]),
    ("cafe\u0301 naïve हिन्दी", ["cafe\u0301", "naïve", "हिन्दी"]),
    (f"a{FAMILY}b👍🏽", ["a", FAMILY, "b", "👍🏽"]),
    ("x🏽", ["x", "🏽"]),
    ("🇩🇪🇫🇷🇯", ["🇩🇪", "🇫🇷", "🇯"]),
    (f"{SCOTLAND}❤️\u200d🔥", [SCOTLAND, "❤️\u200d🔥"]),
    ("1️⃣2️⃣ 😀😀", ["1️⃣", "2️⃣", "😀", "😀"]),
    ("a\tb\r\nc\rd\n\n", ["a", "\t", "b", "\n", "c", "\n", "d", "\n", "\n"]),
    ("<b>x</b> </script> a<br>b & $x$", ["<b>", "x", "</b>", "</script>", "a", "<br>", "b", "&", "$x$"]),
    ("1 < 2 > 0 a<b c>d", ["1", "<", "2", ">", "0", "a", "<", "b", "c", ">", "d"]),
    ("$5 and $ 6", ["$", "5", "and", "$", "6"]),
    ("&amp; {x} \\n %s", ["&", "amp", ";", "{", "x", "}", "\\", "n", "%", "s"]),
    ("\ufeffa\u200bb \u202ec\u0000d", ["a", "b", "c", "d"]),
    ("\u0301x \u200d", ["\u0301", "x", "\u200d"]),
    ("", []),
    (" \u3000\u00a0 ", []),
]


@pytest.mark.parametrize(("text", "tokens"), SENTENCES, ids=[str(index) for index in range(len(SENTENCES))])
def test_a_sentence_is_split_as_written_out(text, tokens):
    assert list(tokenize(text)) == tokens


def test_case_57_a_word_twice_is_two_tokens():
    assert tokenize("the cat the").count("the") == 2


def test_every_visible_character_is_in_exactly_one_token():
    draw = random.Random(0)
    alphabet = [
        *"abcXYZ 019_'’.,-<>/$&;\t猫那がカﾞ안한é🇩🇪👍🏽❤🏴",
        "\u0301",
        "\u200d",
        "\ufe0f",
        "\u20e3",
        "\u1161",
        "<b>",
        "$x$",
    ]
    for _ in range(500):
        text = "".join(draw.choices(alphabet, k=20))
        tokens = tokenize(text)
        assert "".join(tokens) == text.replace(" ", "")
        assert all(tokens)


def test_the_same_vector_wherever_a_token_stands():
    first = token_vectors(("the", "cat", "the"), 64, 0)
    other = token_vectors(("a", "cat"), 64, 0)
    assert first.shape == (3, 64)
    assert first.dtype == torch.float32
    assert torch.equal(first[0], first[2])
    assert torch.equal(first[1], other[1])
    assert not torch.equal(first[0], first[1])


def test_another_seed_is_another_table():
    assert not torch.equal(token_vectors(("cat",), 64, 0), token_vectors(("cat",), 64, 1))


def test_seed_and_token_do_not_run_into_each_other():
    assert not torch.equal(token_vectors(("1 a",), 64, 1), token_vectors(("a",), 64, 11))


def test_entries_have_mean_zero_and_variance_one():
    entries = token_vectors([str(number) for number in range(200)], 512, 3)
    assert entries.mean().item() == pytest.approx(0.0, abs=0.01)
    assert entries.var().item() == pytest.approx(1.0, abs=0.02)
    # Vectors of different tokens are independent: the spread of their dot products is the root of the width.
    products = (entries @ entries.T)[~torch.eye(200, dtype=torch.bool)]
    assert products.std().item() == pytest.approx(512**0.5, rel=0.03)


def test_the_table_is_the_same_in_every_process_and_never_touches_the_global_generator():
    draw = "[round(x, 4) for x in token_vectors(['猫'], 4, 7)[0].tolist()]"
    script = f"from attnviz.inputs import token_vectors; print({draw})"
    state = torch.get_rng_state()
    here = [round(x, 4) for x in token_vectors(["猫"], 4, 7)[0].tolist()]
    assert torch.equal(torch.get_rng_state(), state)
    root = Path(__file__).resolve().parent.parent
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert run.stdout.strip() == str(here)
    # Pinned: a link must show the same numbers in every version.
    assert here == [-1.0625, -0.7655, 1.767, 0.1743]


def test_no_token_gives_no_row():
    assert token_vectors((), 8, 0).shape == (0, 8)


def test_any_string_has_a_vector():
    assert torch.isfinite(token_vectors(("\ud800", ""), 8, 0)).all()


def test_a_width_below_one_is_named():
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        token_vectors(("a",), 0, 0)


def test_random_normal_depends_on_its_seed_alone():
    first = random_normal((2, 7, 16), 5)
    torch.manual_seed(1)
    assert first.shape == (2, 7, 16)
    assert first.dtype == torch.float32
    assert torch.equal(first, random_normal([2, 7, 16], 5))
    assert not torch.equal(first, random_normal((2, 7, 16), 6))
    assert not torch.equal(first[0], first[1])


def test_random_normal_has_mean_zero_and_variance_one():
    numbers = random_normal((400, 400), 0)
    assert numbers.mean().item() == pytest.approx(0.0, abs=0.01)
    assert numbers.var().item() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("key", INPUTS)
def test_an_input_says_what_it_is_in_both_languages(key):
    kind = INPUTS[key]
    assert kind.label.en
    assert kind.label.zh
    assert kind.help.en.endswith(".")
    assert kind.help.zh.endswith("。")
