"""The plain PyTorch that the page offers computes exactly what the page shows."""

import contextlib
import io
import runpy

import pytest
import torch
from streamlit.testing.v1 import AppTest

from attnviz.backends import BACKENDS
from attnviz.masks import MASKS
from attnviz.mistakes import MISTAKES
from attnviz.positions import POSITIONS
from attnviz.score_mods import SCORE_MODS
from attnviz.stages import rows_of
from attnviz.view import settle
from attnviz.view_run import run
from pages.ui.attention_details import code
from tests.pages import ROUTER

MODS = {
    "softcap": ({"cap": "1.5"},),
    "temperature": ({"temperature": "0.3"},),
    "t5_bias": (
        {},
        {"bidirectional": "0", "score_mod_seed": "3", "buckets": "5", "max_distance": "2"},
        {"buckets": "6", "max_distance": "9", "attention": "cross", "align": "bottom_right", "key_length": "30"},
    ),
}
PLACES = {
    "rope": ({}, {"layout": "interleaved", "partial_rotary_factor": "0.55", "base": "100"}, {"d_k": "1"}),
    "sinusoidal": ({}, {"base": "50"}),
}
WITH_MISTAKES = (
    {"heads": "4", "kv_heads": "2"},
    {"mask": "full", "score_mod": "alibi", "dropout": "0.2", "length": "9", "attention": "cross"},
    {"mask": "padding", "lengths": "0", "score_mod": "softcap", "cap": "2"},
)
AROUND = ({}, {"attention": "cross", "length": "5", "key_length": "9", "align": "bottom_right", "mask": "full"})
VIEWS = [
    {},
    {"input": "normal", "length": "9", "attention": "cross", "key_length": "14", "seed": "7"},
    {"heads": "6", "kv_heads": "2", "mask": "sliding_window", "window": "3", "d_k": "5"},
    {"heads": "4", "kv_heads": "1", "scale": "custom", "scale_value": "0.4", "text": "<b>'\"\\ 猫 $x$ </script>"},
    {"scale": "one", "dtype": "bfloat16", "length": "17"},
    {"attention": "cross", "length": "3", "align": "bottom_right"},
    {"dropout": "0.3", "backend": "sdpa"},
    *({"scale": "custom", "scale_value": value, "backend": "sdpa"} for value in ("0", "1e-50")),
    {"dtype": "float64", "backend": "flash"},
    *({"mask": key, "length": "11"} for key in MASKS),
    *({"score_mod": key, "backend": b} | own for b in BACKENDS for key in SCORE_MODS for own in MODS.get(key, ({},))),
    *({"position": key} | own | more for key in POSITIONS for own in PLACES.get(key, ({},)) for more in AROUND),
    *({"mistake": key} | more for key in MISTAKES for more in WITH_MISTAKES),
    {"score_mod": "alibi", "position": "rope", "heads": "6", "kv_heads": "2", "dtype": "float16", "backend": "sdpa"},
    {"score_mod": "t5_bias", "mask": "padding", "lengths": "0", "backend": "sdpa"},
    {"score_mod": "softcap", "cap": "2", "input": "worked", "position": "rope", "dropout": "0.2", "backend": "flash"},
    *({"backend": key, "mask": "full"} for key in BACKENDS),
]


@pytest.mark.parametrize("given", VIEWS, ids=lambda given: "&".join(f"{k}={v}" for k, v in given.items())[:60])
def test_the_code_on_the_page_gives_the_output_on_the_page(given, tmp_path):
    settled = settle(given)
    assert not settled.problems
    script = tmp_path / "view.py"
    script.write_text(code(settled.view), encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        names = runpy.run_path(str(script))
    call, ran = run(settled.view)
    shown = rows_of(call, range(call.heads), 0, call.q_len, ran).output
    torch.testing.assert_close(names["q"], call.query)
    tolerance = (
        {"rtol": 2e-2, "atol": 2e-2} if settled.view.dtype in ("bfloat16", "float16") else {"rtol": 1e-4, "atol": 1e-5}
    )
    torch.testing.assert_close(names["output"].to(shown.dtype), shown, **tolerance)


def test_the_code_changes_with_the_view(tmp_path):
    assert code(settle({}).view) != code(settle({"d_k": "63"}).view)


def test_the_code_is_sent_only_while_its_section_is_open():
    closed = AppTest.from_file(str(ROUTER), default_timeout=60).switch_page("attention.py").run()
    assert not closed.exception
    assert not closed.code
    closed.session_state["attention.snippet"] = True
    opened = closed.run()
    assert not opened.exception
    assert [entry.value for entry in opened.code] == [code(settle({}).view).strip("\n")]
