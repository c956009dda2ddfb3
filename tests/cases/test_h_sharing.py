"""Saving, sharing, showing: links, themes, selection."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from attnviz.settings import mask_knobs
from attnviz.text import LANGUAGES
from attnviz.view import settle
from pages.ui import attention_sections
from pages.ui.attention_picture import cell, frame
from pages.ui.heatmap.frame import unpack
from tests.pages import check, component, link, plain, shown, visit, widgets

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"d_k": "2500"}, "d_k", 64),
        ({"d_k": "hello"}, "d_k", 64),
        ({"heads": "3", "kv_heads": "2"}, "kv_heads", 1),
    ],
)
def test_case_67_one_message_a_safe_default_and_no_traceback(settings, name, value, language):
    """https://github.com/streamlit/streamlit/issues/3685: an address with values that cannot be."""
    app = visit(**settings, lang=language)
    (warning,) = app.warning
    words = plain(warning.value)
    assert name in words and settings[name] in words
    assert "\n" not in words and "Traceback" not in words
    assert settle(link(app)).values[name] == value


FULL = {
    "attention": "cross", "input": "normal", "length": "9", "key_length": "13", "d_k": "24", "heads": "6",
    "kv_heads": "3", "mask": "attention_sinks", "sinks": "2", "window": "4", "align": "bottom_right", "scale": "custom",
    "scale_value": "0.35", "dropout": "0.25", "backend": "sdpa", "dtype": "bfloat16", "seed": "77", "stage": "masked",
    "head": "mean", "log": "1", "own_range": "1", "reduce": "mean", "cell": "1,2,3",
}  # fmt: skip


def test_case_68_a_copied_link_shows_the_same_picture_and_numbers():
    """https://github.com/streamlit/streamlit/issues/3292: a link is the whole view, the seed included."""
    assert set(FULL) >= set(mask_knobs("attention_sinks"))
    first = visit(**FULL)
    assert link(first) == FULL
    copied = dict(settle(FULL).link())
    second = visit(**copied)
    assert widgets(first) == widgets(second)
    assert [metric.value for metric in first.metric] == [metric.value for metric in second.metric]
    for key in ("attention.main", "attention.strip"):
        (one, codes), (other, again) = shown(first, key), shown(second, key)
        assert one["params"] == other["params"]
        for part in codes:
            assert all((a == b).all() for a, b in zip(codes[part], again[part], strict=True))
    other = unpack(frame(FULL | {"seed": "78"}))[1]["main"][0]
    assert (other != shown(first)[1]["main"][0]).any()


def test_case_68_the_button_copies_what_is_on_the_page():
    described = component(visit(**FULL, lang="zh"), "attention.copy").proto.json
    for name, value in (FULL | {"lang": "zh"}).items():
        assert f'"{name}": "{value}"' in described or f'"{name}":"{value}"' in described


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_case_70_text_is_readable_in_both_themes(theme):
    """https://github.com/streamlit/streamlit/issues/3120; WCAG 2.2, 1.4.3: at least 4.5 to 1."""
    config = tomllib.loads((ROOT / ".streamlit/config.toml").read_text(encoding="utf-8"))["theme"]
    colours = {**{k: v for k, v in config.items() if isinstance(v, str)}, **config[theme]}
    text, ground = luminance(colours["textColor"]), luminance(colours["backgroundColor"])
    contrast = (max(text, ground) + 0.05) / (min(text, ground) + 0.05)
    assert contrast >= 7
    assert (text < ground) == (theme == "light")


def test_case_72_a_selection_can_be_taken_back():
    """https://github.com/TransformerLensOrg/CircuitsVis/issues/62: a locked head could not be unlocked."""
    app = visit(cell="1,3,2")
    app.button(key="attention.clear").click()
    check(app.run())
    assert "cell" not in link(app) and shown(app)[0]["config"]["selected"] is None


class Held:
    """Stand in for the panel: what the browser's message puts into the session."""

    def __init__(self, **settings: str):
        self.settled = settle(settings)
        self.held: dict[str, object] = {}

    def set(self, name: str, value: object) -> None:
        self.held[name] = value


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        (None, None),
        ({"map": "2", "query": 3, "key": 1}, (2, 3, 1)),
        ({"map": "2", "query": 3}, (2, 3)),
        ({"map": "2", "key": 3}, None),
        ({"map": "mean", "query": 0, "key": 0}, (0, 0, 0)),
        ({"map": "²", "query": 1, "key": 1}, (0, 1, 1)),
    ],
)
def test_case_72_what_the_browser_says_selects_or_clears(message, kept):
    panel = Held(cell="1,1,1")
    attention_sections._select(panel, message)  # type: ignore[arg-type]  # two attributes of a panel are all it needs
    assert panel.held == {"cell": kept}


def test_case_73_a_picture_carries_tokens_positions_and_exact_values():
    """https://github.com/TransformerLensOrg/CircuitsVis/issues/98: hover names both tokens and positions."""
    settings = {"text": "a b a c", "heads": "2"}
    described = shown(visit(**settings))[0]["parts"]["main"]["maps"][1]
    for axis in ("row_axis", "col_axis"):
        assert described[axis]["tokens"] == ["a", "b", "a", "c"] and described[axis]["start"] == 0
    answer = cell(settings | {"part": "main", "map": "1", "row": "2", "col": "1"})
    assert (answer["row"], answer["col"], answer["state"]) == (2, 1, 0)
    assert len(str(answer["value"])) >= 7
    masked = cell(settings | {"part": "main", "map": "1", "row": "1", "col": "2"})
    assert masked["state"] == 1 and masked["value"] == ""
