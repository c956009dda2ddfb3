"""Measuring: what is asked, what comes back, exact memory, and a process that may die without harm."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attnviz.benchmark import (
    Contestant,
    Desk,
    Failure,
    Latency,
    Measurement,
    Point,
    Request,
    declared_peak,
    predict,
    too_large,
)
from attnviz.benchmark.clock import ratio
from attnviz.benchmark.memory import StorageCounter
from attnviz.benchmark.room import no_backward
from attnviz.benchmark.run import _attempt, _Entrant, run
from attnviz.text import Refusal
from attnviz.variants import VARIANTS

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"hidden_size": 512, "num_attention_heads": 8}
SMALL = {"hidden_size": 32, "num_attention_heads": 4}
SDPA = Contestant("mha", "sdpa", SMALL)
QUICK = {"rounds": 2, "budget_s": 0.01}
# Never done by itself before a test is.
LONG = Request((SDPA,) * 12, q_len=64, rounds=1000, budget_s=600, limit_s=600, memory=False)
MIB = 2**20


@pytest.fixture(scope="module")
def desk():
    own = Desk()
    yield own
    own.close()


def until(holds, seconds=60):
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Contestant("hydra"), "variant must be one of mha"),
        (lambda: Contestant("mha", "abacus"), "backend must be one of"),
        (lambda: Contestant("mha", what="all"), "what must be one of core, layer, decode, got 'all'"),
        (lambda: Contestant("mha", kv="loose"), "kv must be one of"),
        (lambda: Contestant("mha", kernel="magic"), "kernel must be one of"),
        (lambda: Contestant("gqa", sizes={"num_attention_heads": 8, "num_key_value_heads": 3}), "must divide"),
        (lambda: Request((), q_len=4), "contestants must be 1 to"),
        (lambda: Request((SDPA,), q_len=0), "q_len must be a whole number"),
        (lambda: Request((SDPA,), q_len=2**25), "q_len must lie in 1"),
        (lambda: Request((SDPA,), q_len=4, kv_len=-1), "kv_len must be"),
        (lambda: Request((SDPA,), q_len=4, threads=1000), "threads must lie in"),
        (lambda: Request((SDPA,), q_len=4, dtype="int8"), "dtype must be one of"),
        (lambda: Request((SDPA,), q_len=4, mask="veil"), "mask must be one of"),
        (lambda: Request((SDPA,), q_len=4, mode="sideways"), "mode must be one of"),
        (lambda: Request((SDPA,), q_len=4, budget_s=float("nan")), "budget_s must lie in"),
        (lambda: Request((Contestant("mha", what="decode"),), q_len=1, mode="forward+backward"), "forward only"),
        (lambda: Request.from_json({"contestants": [], "q_len": 4, "size": 3}), "'size' is not a field"),
        (lambda: Request.from_json({"contestants": [{"variant": "mha", "x": 1}], "q_len": 4}), "'x' is not a field"),
    ],
)
def test_what_cannot_be_asked_is_named(make, words):
    with pytest.raises(Refusal, match=words) as caught:
        make()
    assert caught.value.text.zh != caught.value.text.en


def test_a_request_is_plain_json_and_back():
    asked = Request(
        (SDPA, Contestant("gqa", "eager", SMALL, "decode", "expanded", False, label="GQA")),
        q_len=3,
        kv_len=9,
        mask="sliding_window",
        mask_knobs={"window": 4},
        threads=2,
    )
    assert Request.from_json(json.loads(json.dumps(asked.to_json()))) == asked


def test_what_comes_back_is_plain_json_and_back():
    point = Point("a", Latency.of([3.0, 1.0, 2.0]), 1.5, 10, "allocation events", "flash", 0.1, 0.2)
    failed = Point("b", failure=Failure("memory", "3 GiB"))
    measured = Measurement((point, failed), complete=False)
    assert Measurement.from_json(json.loads(json.dumps(measured.to_json()))) == measured
    assert failed.failure is not None and failed.failure.text.en == "Out of memory: an allocation was refused (3 GiB)."


def test_noise_is_a_middle_half_wider_than_three_tenths_of_the_median():
    steady, shaky = Latency.of([1.0, 1.0, 1.1, 1.2, 1.2]), Latency.of([1.0, 1.0, 1.2, 1.6, 1.7])
    assert (steady.median, steady.minimum, steady.runs) == (1.1, 1.0, 5)
    assert (steady.noisy, shaky.noisy) == (False, True)


def test_a_ratio_is_taken_round_by_round():
    # The machine slows down to a third in the last rounds; the ratio of the medians would say 6.
    assert ratio([2.0, 6.0, 6.0], [1.0, 3.0, 3.0]) == 2
    assert ratio([2.0, 8.0, 2.0], [1.0, 2.0, 1.0]) == 2 and ratio([1.0], []) is None


# facts: L = 1024 and no mask, 8 heads of 64 in float32, one thread; the first column is the declaration's own number.
GOLDEN = (
    (Contestant("mha", "eager", SIZES), "full", 66.125 * MIB),
    (Contestant("mha", "eager", SIZES), "causal", 96.0361328125 * MIB),
    (Contestant("mha", "sdpa", SIZES), "full", 2_721_792),
    (Contestant("mha", "sdpa", SIZES, kernel="math"), "full", 77_602_820),
    (Contestant("mha", "sdpa", SIZES, kernel="math"), "causal", 77_602_820 + 4 * MIB),
    (Contestant("mha", "flash", SIZES), "full", 10_600_448),
    (Contestant("linear", "chunked", SIZES), "full", 2_760_704),
    (Contestant("linear", "chunked", SIZES), "causal", 3_289_088),
)


@pytest.mark.parametrize(("contestant", "mask", "golden"), GOLDEN)
def test_memory_is_exact_to_the_byte(desk, contestant, mask, golden):
    asked = Request((contestant,), q_len=1024, mask=mask, **QUICK)
    (measured,) = desk.submit((asked,)).wait()
    assert isinstance(measured, Measurement) and measured.points[0].memory_method == "allocation events"
    assert measured.peak_bytes == golden
    assert declared_peak(contestant, asked) == golden


@pytest.mark.parametrize("mask", ["full", "causal"])
def test_memory_of_chunks_and_of_short_sequences_is_exact_too(desk, mask):
    # Beside a whole number of chunks: less than one, and a last one that is shorter.
    kinds = (Contestant("linear", "chunked", SMALL), Contestant("mha", "sdpa", SMALL, kernel="math"))
    asked = [Request(kinds, q_len=length, batch=2, mask=mask, **QUICK) for length in (24, 100, 200)]
    for request, measured in zip(asked, desk.submit(asked).wait(), strict=True):
        assert isinstance(measured, Measurement)
        assert [point.peak_bytes for point in measured.points] == [declared_peak(one, request) for one in kinds]


def test_what_nobody_declares_has_no_prediction():
    tiles = Contestant("mha", "flash", SMALL)
    assert declared_peak(tiles, Request((tiles,), q_len=8, mode="forward+backward")) is None
    fused = replace(SDPA, kernel="efficient")
    assert declared_peak(fused, Request((fused,), q_len=8)) is None


@pytest.mark.parametrize("key", VARIANTS)
@pytest.mark.parametrize("what", ["core", "layer", "decode"])
def test_every_variant_is_measured(desk, key, what):
    contestants = [Contestant(key, backend, SMALL, what) for backend in VARIANTS[key].backends]
    if what == "decode":
        contestants.append(Contestant(key, None, SMALL, what, cached=False))
    mode = "forward" if what == "decode" else "forward+backward"
    (measured,) = desk.submit((Request(contestants, q_len=24, mask="causal", mode=mode, **QUICK),)).wait()
    assert isinstance(measured, Measurement) and measured.complete
    for contestant, point in zip(contestants, measured.points, strict=True):
        if contestant.backend == "flash" and mode != "forward":
            # Our own tiles have no backward pass, and say so.
            assert point.failure is not None and "no backward pass" in point.failure.text.en
            continue
        assert point.failure is None and point.latency_s is not None and point.peak_bytes, point
        assert point.latency_s.minimum > 0 and point.ratio is not None
    if what == "decode":
        assert measured.points[0].overhead_s and measured.points[-1].overhead_s is None


def test_expanded_keys_and_values_take_more_memory_than_packed(desk):
    kinds = [Contestant(key, "sdpa", SIZES, "decode", kv) for key in ("gqa", "mla") for kv in ("packed", "expanded")]
    (measured,) = desk.submit((Request(kinds, q_len=1, kv_len=512, **QUICK),)).wait()
    gqa, gqa_expanded, mla, mla_expanded = (point.peak_bytes for point in measured.points)
    # Keys and values of 512 tokens for 8 heads of 64, where 2 heads are kept.
    assert gqa_expanded - gqa >= 2 * 512 * 512 * 4 - 16_384
    assert mla_expanded > 4 * mla
    assert "absorbed" in measured.points[2].kernel and "absorbed" not in measured.points[3].kernel


def test_a_backward_pass_takes_more_memory(desk):
    requests = [Request((Contestant("mha", "eager", SIZES),), q_len=256, mode=mode, **QUICK)
                for mode in ("forward", "forward+backward")]  # fmt: skip
    forward, both = desk.submit(requests).wait()
    assert both.peak_bytes > forward.peak_bytes + 3 * 256 * 512 * 4


def test_a_request_that_does_not_fit_is_not_begun(desk):
    far = Request((Contestant("mha", "eager", SIZES), SDPA), q_len=2**22, **QUICK)
    assert too_large(far.contestants[0], far, 2**34).reason == "too_large"
    (measured,) = desk.submit((Request(far.contestants[:1], q_len=2**22),)).wait()
    assert isinstance(measured, Failure) and measured.reason == "too_large" and "PiB" in measured.text.en
    beside = Request((Contestant("mha", "eager", SIZES), SDPA), q_len=2**16, limit_s=600, rounds=1)
    assert too_large(beside.contestants[0], beside, 2**35) and not too_large(SDPA, beside, 2**35)


def test_each_that_does_not_fit_keeps_its_own_need(desk):
    both = Request((Contestant("mha", "eager", SIZES), SDPA), q_len=2**22, **QUICK)
    (ended,) = desk.submit((both,)).wait()
    assert isinstance(ended, Failure) and ended.partial is not None
    first, second = (point.failure.text.en for point in ended.partial.points)
    assert first == ended.text.en != second


@pytest.mark.parametrize(("variant", "backend", "runs"), [
    ("mha", "flash", False), ("mla", "flash", False), ("mha", "eager", True), ("linear", "chunked", True),
])  # fmt: skip
def test_a_backend_without_a_gradient_says_what_to_take(variant, backend, runs):
    asked = (Contestant(variant, backend, SIZES),)
    failed = no_backward(asked[0], Request(asked, q_len=64, mode="forward+backward"))
    assert (failed is None) == runs and no_backward(asked[0], Request(asked, q_len=64)) is None
    if failed is not None:
        assert "no backward pass; take eager or sdpa." in failed.text.en and "eager 或 sdpa" in failed.text.zh
        *_, measured = run(Request(asked, q_len=64, mode="forward+backward", **QUICK))
        assert measured.points[0].failure == failed


def test_what_does_not_fit_leaves_the_others(monkeypatch):
    monkeypatch.setattr("attnviz.benchmark.run.device.free_bytes", lambda name: 32 * MIB)
    *_, measured = run(Request((Contestant("mha", "eager", SIZES), SDPA), q_len=1024, **QUICK))
    first, second = measured.points
    assert first.failure is not None and first.failure.reason == "too_large" and second.latency_s is not None
    assert second.ratio is None  # the one that it would be taken to has no time


def test_torch_s_words_for_no_memory_are_understood():
    def fail():
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4398046511104 bytes.")

    entrant = _Entrant(SDPA)
    _attempt(entrant, fail)
    assert entrant.failure == Failure("memory", "4398046511104 bytes")


def test_memory_beyond_the_limit_is_an_error_and_not_the_end():
    code = """
import torch, attnviz.benchmark.serve as serve
serve.MEMORY_SHARE, serve._ROOM = 1.0, 64 * 2**20 / serve.device.free_bytes("cpu")
serve._limit_memory()
torch.empty(2**20)
try:
    torch.empty(2**28).fill_(1)
except RuntimeError as problem:
    print("refused" if "allocate" in str(problem) else problem)
"""
    if sys.platform != "linux":
        pytest.skip("only Linux counts what a process may allocate")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "refused"


def test_a_killed_process_is_a_failure_and_the_next_request_works(desk):
    job = desk.submit((LONG, Request((SDPA,), q_len=8, **QUICK)))
    until(lambda: job.partial is not None)
    before = desk.pid
    os.kill(before, signal.SIGKILL)
    killed, next_one = job.wait(120)
    assert isinstance(killed, Failure) and killed.reason == "crashed" and "SIGKILL" in killed.text.en
    assert killed.partial is not None and killed.partial.points[0].latency_s is not None
    assert isinstance(next_one, Measurement) and next_one.points[0].latency_s is not None
    assert desk.pid not in (None, before)


def test_a_request_ends_in_time(desk):
    (late,) = desk.submit((replace(LONG, limit_s=1),)).wait()
    assert isinstance(late, Failure) and late.text.en == "Stopped: it took longer than 1 s."
    assert isinstance(desk.submit((Request((SDPA,), q_len=8, **QUICK),)).wait()[0], Measurement)


def test_a_running_and_a_waiting_job_can_be_cancelled(desk):
    running, waiting = desk.submit((LONG, LONG)), desk.submit((LONG,))
    until(lambda: running.partial is not None)
    assert (running.place, waiting.place) == (0, 1)
    waiting.cancel()
    assert [one.reason for one in waiting.wait(30)] == ["cancelled"] and not running.done
    running.cancel()
    assert [one.reason for one in running.wait(30)] == ["cancelled", "cancelled"]


def test_a_call_that_does_not_hear_is_ended_with_its_process(desk):
    deaf = Request((Contestant("additive", "eager", SIZES),), q_len=3000, limit_s=600)
    job = desk.submit((deaf,))
    until(lambda: desk.pid is not None and job.place == 0)
    time.sleep(0.3)
    job.cancel()
    assert [one.reason for one in job.wait(30)] == ["cancelled"]
    assert isinstance(desk.submit((Request((SDPA,), q_len=8, **QUICK),)).wait()[0], Measurement)


def test_a_job_that_nobody_looks_at_ends(desk):
    job = desk.submit((LONG,), abandon_s=0.5)
    until(lambda: job.done)
    assert job.results[0].reason == "abandoned"


def test_ten_at_once_are_all_answered_each_with_its_own(desk):
    answers = {}

    def ask(length):
        answers[length] = desk.submit((Request((SDPA,), q_len=length, **QUICK),)).wait()[0]

    threads = [threading.Thread(target=ask, args=(16 * n,)) for n in range(1, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(answers) == [16 * n for n in range(1, 11)]
    for length, measured in answers.items():
        contestant = predict(SDPA, Request((SDPA,), q_len=length))
        assert measured.peak_bytes == contestant.peak_bytes, length


def test_jobs_take_turns(desk):
    one = Request((SDPA,), q_len=8, **QUICK)
    blocker = desk.submit((LONG,))
    until(lambda: blocker.partial is not None)
    jobs = [desk.submit([one] * 3) for _ in range(2)]
    assert [job.place for job in jobs] == [1, 2]
    steps = []
    done = threading.Event()

    def follow(number):
        for place, known in jobs[number].follow():
            if not isinstance(known, Measurement) or known.complete:
                steps.append((place, number))
        done.set()

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    blocker.cancel()
    for thread in threads:
        thread.join(60)
    assert sorted(steps) == [(place, number) for place in range(3) for number in range(2)]
    # Neither is done with its last before the other has begun its last.
    assert {steps[-1], steps[-2]} == {(2, 0), (2, 1)}


def test_what_is_known_comes_as_it_is_known(desk):
    pair = (SDPA, Contestant("mha", "eager", SMALL))
    known = list(desk.submit((Request(pair, q_len=64, rounds=6, budget_s=5),)).follow())
    assert [number for number, _ in known] == [0] * len(known) and len(known) >= 2
    assert not known[0][1].complete and known[-1][1].complete
    assert all(point.latency_s.runs == 6 for point in known[-1][1].points)


def test_a_closed_desk_answers_too():
    own = Desk()
    job = own.submit((LONG,))
    until(lambda: job.partial is not None)
    pid = own.pid
    own.close()
    assert [one.reason for one in job.wait(30)] == ["closed"]
    assert [one.reason for one in own.submit((LONG, LONG)).wait(5)] == ["closed", "closed"]
    until(lambda: not Path(f"/proc/{pid}").exists() or sys.platform != "linux")


PARENT = """
import sys, time
from attnviz.benchmark import Contestant, Desk, Request
desk = Desk()
job = desk.submit((Request((Contestant("mha", "sdpa", {"hidden_size": 32, "num_attention_heads": 4}),), q_len=64,
                           rounds=1000, budget_s=600, limit_s=600),))
while job.partial is None:
    time.sleep(0.02)
print(desk.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_no_process_is_left_behind(how):
    if sys.platform != "linux":
        pytest.skip("looks into /proc")
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL) as parent:  # fmt: skip
        worker = int(parent.stdout.readline())
        assert Path(f"/proc/{worker}").exists()
        parent.send_signal(signal.SIGKILL if how == "kill" else signal.SIGINT)
    until(lambda: not Path(f"/proc/{worker}").exists(), 20)


def test_the_counter_follows_what_lives():
    with StorageCounter() as counter:
        first = torch.ones(1000)
        view = first[:10]
        second = first * 2
        del first, view
        third = second + 1
        del second, third
    assert counter.most == 3 * 4000 - 4000 and counter.now == 0
