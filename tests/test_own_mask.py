"""The rule that a person types: what it gives, what it refuses and where, and that nothing of it is executed."""

import itertools
import random

import pytest
import torch

from attnviz import guard
from attnviz.masks import MASKS, dense
from attnviz.masks.own import DEFAULT_RULE
from attnviz.masks.rule import MOST_VALUE, NAMES, value
from attnviz.masks.rule_reader import MOST_LETTERS, parse
from attnviz.text import LANGUAGES, Refusal
from attnviz.view import settle as attention

SIZE = 7
# The same rule for one pair, as Python itself would say it.
RULES = {
    "kv_idx <= q_idx": lambda q, k: k <= q,
    DEFAULT_RULE: lambda q, k: k <= q and (q - k < 4 or k % 4 == 0),
    "0 <= q_idx - kv_idx < 3": lambda q, k: 0 <= q - k < 3,
    "not (q_idx == kv_idx)": lambda q, k: q != k,
    "abs(q_idx - kv_idx) <= 2 or kv_idx == 0": lambda q, k: abs(q - k) <= 2 or k == 0,
    "min(q_idx, kv_idx, 3) * 2 > max(1, kv_idx)": lambda q, k: min(q, k, 3) * 2 > max(1, k),
    "q_idx // 3 == kv_idx // 3": lambda q, k: q // 3 == k // 3,
    "(kv_idx - q_idx) // 2 != -1": lambda q, k: (k - q) // 2 != -1,
    "(kv_idx - q_idx) % 3 == 1": lambda q, k: (k - q) % 3 == 1,
    "(kv_idx - q_idx) % -3 == -1": lambda q, k: (k - q) % -3 == -1,
    "q_idx / 2 - 0.25 < kv_idx": lambda q, k: q / 2 - 0.25 < k,
    "q_idx ** 3 > 2 ** 5 + kv_idx": lambda q, k: q**3 > 2**5 + k,
    "-q_idx + +kv_idx > -1.5e0": lambda q, k: -q + k > -1.5,
    "2 < 1": lambda q, k: False,
    "not 2 < 1 and q_idx >= 0": lambda q, k: True,
}


def grid(rule: str, **options) -> list[list[bool]]:
    return dense(MASKS["own"].build(rule=rule), SIZE, SIZE, **options)[0, 0].tolist()


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_means_what_python_means(rule):
    assert grid(rule) == [[bool(RULES[rule](q, k)) for k in range(SIZE)] for q in range(SIZE)]


@pytest.mark.parametrize("rule", ["q_idx / kv_idx >= 0", "q_idx // kv_idx >= 0", "q_idx % kv_idx >= 0"])
def test_a_comparison_that_divides_by_zero_is_false(rule):
    assert grid(rule) == [[k != 0 for k in range(SIZE)]] * SIZE
    assert grid(f"not {rule}") == [[k == 0 for k in range(SIZE)]] * SIZE
    assert grid(f"kv_idx == 0 or {rule}") == [[True] * SIZE] * SIZE


def test_a_rule_follows_batch_and_head():
    mask = MASKS["own"].build(rule="kv_idx < batch + head")
    assert (mask.per_batch, mask.per_head) == (True, True)
    cells = dense(mask, 2, 4, batch=2, heads=3)
    assert cells.sum(-1)[..., 0].tolist() == [[0, 1, 2], [1, 2, 3]]
    plain = MASKS["own"].build(rule="kv_idx < q_idx")
    assert (plain.per_batch, plain.per_head) == (False, False)


REFUSED = {
    "": (1, "nothing is written"),
    "q_idx": (1, "'q_idx' is a number where a comparison is needed"),
    "q_idx < foo": (9, "'foo' is not a known name"),
    "  q_idx\n< foo": (11, "'foo' is not a known name"),
    "'猫' == foo": (1, "\"'猫'\" is not allowed"),
    "q_idx < 0 or 猫 < 1": (14, "'猫' is not a known name"),
    "q_idx < (kv_idx < 2)": (10, "'kv_idx < 2' is a comparison where a number is needed"),
    "q_idx < not 1": (9, "cannot be read"),
    "not q_idx": (5, "is a number"),
    "__import__('os').system('x')": (1, "is not allowed"),
    "q_idx.__class__ < 1": (1, "'q_idx.__class__' is not allowed"),
    "q_idx[0] < 1": (1, "'q_idx[0]' is not allowed"),
    "(lambda: 1)() < q_idx": (1, "is not allowed"),
    "[x for x in q_idx] < 1": (1, "is not allowed"),
    "(q_idx := 3) < 1": (2, "'q_idx := 3' is not allowed"),
    "q_idx < (1 if kv_idx else 2)": (10, "is not allowed"),
    "(q_idx < 1) & (kv_idx < 1)": (1, "is not allowed"),
    "~q_idx < 1": (1, "'~q_idx' is not allowed"),
    "q_idx << 2 < 1": (1, "'q_idx << 2' is not allowed"),
    "q_idx @ 2 < 1": (1, "'q_idx @ 2' is not allowed"),
    "q_idx is kv_idx": (1, "'q_idx is kv_idx' is not allowed"),
    "q_idx in kv_idx": (1, "is not allowed"),
    "q_idx < True": (9, "'True' is not allowed"),
    "q_idx < 2j": (9, "'2j' is not allowed"),
    "q_idx < None": (9, "'None' is not allowed"),
    "f'{q_idx}' < 1": (1, "is not allowed"),
    "pow(q_idx, 2) < 1": (1, "'pow(q_idx, 2)' is not allowed"),
    "abs(q_idx, 2) < 1": (1, "takes 1 to 1 numbers"),
    "min(q_idx) < 1": (1, "takes 2 to 8 numbers"),
    "min(*q_idx) < 1": (1, "is not allowed"),
    "min(q_idx, key=1) < 1": (1, "is not allowed"),
    "q_idx < 1 / 0": (9, "'1 / 0' divides by zero"),
    "q_idx % (2 - 2) < 1": (1, "divides by zero"),
    "9**9**9 > q_idx": (4, "the exponent must be a whole number from 0 to 52"),
    "2 ** kv_idx > q_idx": (6, "the exponent must be"),
    "2 ** -1 > q_idx": (6, "the exponent must be"),
    "q_idx ** 0.5 > 1": (10, "the exponent must be"),
    "q_idx ** 4 > 1": (1, "'q_idx ** 4' could grow beyond 2^53"),
    "9 ** 52 > q_idx": (1, "could grow beyond 2^53"),
    "q_idx * kv_idx * kv_idx * kv_idx > 1": (1, "could grow beyond 2^53"),
    "1e999 > q_idx": (1, "could grow beyond 2^53"),
    "9" * 30 + " > q_idx": (1, "could grow beyond 2^53"),
    "q_idx <": (None, "cannot be read"),
    "1) or (2 < 3": (2, "cannot be read"),
    "q_idx < 1; kv_idx < 1": (10, "cannot be read"),
    "q_idx < 1\x00": (1, "cannot be read"),
    "-" * 60 + "1 < q_idx": (None, "nested or composed too far"),
    "(" * 210 + "1": (None, "cannot be read"),
    " or ".join(["q_idx<1"] * 22): (None, "nested or composed too far"),
}


@pytest.mark.parametrize("rule", REFUSED, ids=lambda rule: repr(rule[:24]))
def test_anything_else_is_one_sentence_that_names_the_place(rule):
    place, words = REFUSED[rule]
    with pytest.raises(Refusal) as caught:
        MASKS["own"].build(rule=rule)
    assert words in str(caught.value)
    assert place is None or str(caught.value).startswith(f"rule: at character {place}, ")
    assert "A rule may use batch, head, q_idx, kv_idx" in str(caught.value)
    assert len(str(caught.value)) < 300
    assert caught.value.text.zh.startswith("规则（rule）：第 ")


def test_a_rule_that_is_too_long_is_refused_by_knob_and_reader():
    rule = "q_idx < 1" + " " * MOST_LETTERS
    with pytest.raises(Refusal, match="text of at most 240 characters"):
        MASKS["own"].build(rule=rule)
    with pytest.raises(Refusal, match="at character 241, the rule goes on for more than 240 characters"):
        parse(rule)


def test_a_long_part_is_cut_in_the_sentence():
    with pytest.raises(Refusal) as caught:
        parse("q_idx < " + "x" * 200)
    assert "xxx…'" in str(caught.value) and "x" * 40 not in str(caught.value)


def random_number(draw: random.Random, depth: int) -> str:
    if depth == 0:
        return draw.choice([*NAMES, str(draw.randint(0, 9)), f"{draw.random():.2f}"])
    a, b = (random_number(draw, draw.randrange(depth)) for _ in range(2))
    return draw.choice([f"({a} {draw.choice(['+', '-', '*', '/', '//', '%'])} {b})", f"abs({a})", f"min({a}, {b})",
                        f"max({a}, {b}, 2)", f"-{a}", f"({a}) ** {draw.randint(0, 3)}"])  # fmt: skip


def test_every_number_stays_in_the_range_that_it_was_given():
    """At the corners of what positions can be, where a range that is too narrow would show."""
    draw, seen = random.Random(3), 0
    corners = [dict(zip(NAMES, ends, strict=True)) for ends in itertools.product(*NAMES.values())]
    corners += [{name: draw.randint(*map(int, span)) for name, span in NAMES.items()} for _ in range(20)]
    corners += [dict.fromkeys(NAMES, small) for small in (0, 1)]
    for _ in range(400):
        try:
            node = parse(f"{random_number(draw, 3)} < 1").parts[0]
        except Refusal:
            continue
        seen += 1
        for corner in corners:
            zeros: list[torch.Tensor] = []
            got = value(node, {name: torch.tensor(at) for name, at in corner.items()}, zeros)
            if not any(bool(zero) for zero in zeros):
                slack = 1e-9 * max(1.0, *map(abs, node.span))
                assert node.span[0] - slack <= float(got) <= node.span[1] + slack, (node.text, corner)
                assert abs(float(got)) <= MOST_VALUE
    assert seen > 150


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_entry_explains_itself(language):
    (knob,) = MASKS["own"].knobs
    assert knob.help is not None and "min" in knob.help.say(language)


def test_a_long_rule_is_more_work_and_refused_sooner():
    long = " or ".join(["q_idx % 7 == kv_idx"] * 10)
    mask = MASKS["own"].build(rule=long)
    assert mask.work > 10 and MASKS["own"].build(rule="kv_idx < 3").work == 1
    assert (mask & MASKS["causal"].build()).work == mask.work + 1 and (~mask).work == mask.work
    sizes = {"length": "16384", "heads": "1", "d_k": "1", "mask": "own"}
    quick, slow = (attention({**sizes, "rule": rule}).view for rule in ("kv_idx < 3", long))
    assert guard.predict(slow).effort > 3 * guard.predict(quick).effort
    guard.check(quick)
    with pytest.raises(Refusal, match="Refused before allocating anything"):
        guard.check(slow)
