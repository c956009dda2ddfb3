"""Public bug reports on the size of attention, as the measuring and cost pages answer them."""

import re
import sys
from pathlib import Path

import pytest

from attnviz.benchmark import Contestant, Desk, Measurement, Point, Request, predict
from attnviz.cost_view import priced, settle
from attnviz.text import LANGUAGES
from pages.ui.measured import draw_bars
from pages.ui.translate import say
from tests.pages import plain, said, visit

MIB = 2**20


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_40_a_dense_mask_stands_apart_from_the_scores(language):
    """Blaizzy/mlx-vlm#1355: 25 dense masks at 32,768 tokens are 26.8 GB, whatever the scores take."""
    view = settle({"context": "32768", "heads": "8", "pair": "gqa-sdpa"}).view
    one = priced(view, "prefill")
    assert 25 * one.mask_bytes / 1e9 == pytest.approx(26.8, abs=0.05) and one.score_bytes == 16 * one.mask_bytes
    words = said(visit(language, page="cost", context="32768", heads="8", pair="gqa-sdpa"))
    assert say(language, "cost.table.mask") in words and "1 GiB" in words and "16 GiB" in words


@pytest.mark.parametrize("language", LANGUAGES)
def test_case_42_estimate_and_measured_peak_stand_side_by_side(language):
    """pytorch/pytorch#139612: 1 × 32 × 4096 × 128 in half precision; the scores alone are 1,024 MiB."""
    half = settle({"context": "4096", "heads": "32", "d_k": "128", "dtype": "float16", "pair": "mha-eager"}).view
    assert priced(half, "prefill").score_bytes == 1024 * MIB
    entrant = Contestant("mha", "eager", {"hidden_size": 4096, "num_attention_heads": 32})
    request = Request((entrant,), q_len=4096, dtype="float16")
    known = Measurement((Point(entrant.label, peak_bytes=2361 * MIB, memory_method="allocation events"),))
    bar, mark = draw_bars(language, request, known, memory=True).figure["data"]
    assert bar["x"] == [2361 * MIB] and mark["x"] == [predict(entrant, request).peak_bytes]
    # Why the two may differ is said under the bars.
    words = said(visit(language, page="benchmark", show="sweep"))
    assert plain(say(language, "benchmark.words.predicted")) in plain(words)


def test_case_43_what_flash_keeps_is_linear_in_the_length():
    """vram-calculator PR#3: memory of flash taken as n log n."""
    entrant = Contestant("mha", "sdpa", {"hidden_size": 512, "num_attention_heads": 8})
    short, middle, long = (predict(entrant, Request((entrant,), q_len=n)).peak_bytes for n in (4096, 8192, 16_384))
    # Output and row statistics: 8 heads, 64 numbers and one, of four bytes; the tile of the kernel stays the same.
    assert middle - short == 4096 * 8 * 65 * 4 and long - middle == 2 * (middle - short)


MANY_CLICKS = 30
SCORES_KIB = 4 * 512 * 512 * 4 // 1024  # 4 heads, 512 queries and keys, four bytes


def test_case_48_memory_returns_to_where_it_was():
    """streamlit/streamlit#3885 and #5998: ten sessions, ten clicks, and the memory grows with each."""
    desk = Desk()
    entrant = Contestant("mha", "eager", {"hidden_size": 128, "num_attention_heads": 4})
    peaks, held, pids = [], [], set()
    for click in range(MANY_CLICKS + 2):
        # The profiler itself grows to a fixed size over its first uses; the calls that it watches must not.
        weighed = click < 2
        request = Request((entrant,), q_len=512, rounds=2, budget_s=0.01, memory=weighed)
        (measured,) = desk.submit((request,)).wait(120)
        assert isinstance(measured, Measurement)
        peaks += [measured.peak_bytes] if weighed else []
        pids.add(desk.pid)
        if sys.platform == "linux" and not weighed:
            status = Path(f"/proc/{desk.pid}/status").read_text(encoding="utf-8")
            held.append(int(re.search(r"VmRSS:\s+(\d+)", status).group(1)))
    desk.close()
    assert len(set(peaks)) == 1 and len(pids) == 1
    # The C library may set a few blocks aside on the way; a matrix of scores kept at each click would be far more.
    assert not held or held[-1] - held[0] < MANY_CLICKS * SCORES_KIB / 2
