"""Flash: what it keeps grows with the length and not faster, and its weights are those of the very call that ran."""

import pytest
import torch

from attnviz.backends import BACKENDS
from attnviz.flash_view import traffic
from attnviz.text import LANGUAGES
from pages.ui.translate import say
from tests.pages import check, link, plain, said, visit
from tests.peak import peak_bytes


def opened(section, language="en", **settings):
    app = visit(language, page="flash", **settings)
    app.session_state[f"flash.fold.{section}"] = True
    return check(app.run())


def test_case_43_what_flash_keeps_is_linear_in_the_length():
    measured = []
    for length in (2048, 4096, 6144):
        inputs = [torch.randn(1, 1, length, 64) for _ in range(3)]
        measured.append(peak_bytes(lambda inputs=inputs: BACKENDS["flash"].attend(*inputs)))
    added = 2048 * (64 + 1) * 4  # output and log-sum-exp of the queries that were added, and nothing else
    assert [measured[1] - measured[0], measured[2] - measured[1]] == [added, added]
    predicted = [traffic.held_bytes(length, 64, "flash") for length in (2048, 4096, 6144)]
    assert [predicted[1] - predicted[0], predicted[2] - predicted[1]] == [added, added]


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_43_the_page_says_how_much_a_token_adds(language):
    words = said(opened("claims", language, d_k="32"))
    assert say(language, "flash.claims.memory") in words
    assert f"{4 * (32 + 1)}" in next(
        line for line in words.splitlines() if say(language, "flash.claims.memory") in line
    )


def test_case_54_the_page_prints_how_far_recomputed_rows_are_from_the_fused_call():
    app = opened("weights", mask="sliding_window", window="20")
    shown = {metric.label: float(metric.value.replace("−", "-")) for metric in app.metric}
    assert set(shown) == {say("en", f"flash.weights.{name}") for name in ("sums", "output", "eager")}
    assert 0 < max(shown.values()) < 1e-5


def test_case_34_a_length_beyond_what_is_checked_is_refused_by_name():
    app = visit(page="flash", length="70000")
    assert "length must be a whole number from 1 to 4,096, got '70000'." in plain(app.warning[0].value)
    assert link(app) == {}
