"""The queue before the measuring process: who waits for whom, who is dropped, and what no mishap may stop."""

import stat
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from attnviz.benchmark import Asker, Contestant, Desk, Failure, Measurement, Probe, Request, Speed, speed
from attnviz.benchmark import process as process_module
from attnviz.benchmark.desk import _HOUSE

SMALL = {"hidden_size": 32, "num_attention_heads": 4}
SDPA = Contestant("mha", "sdpa", SMALL)
SHORT = Request((SDPA,), q_len=8, rounds=2, budget_s=0.01)
# Never done by itself before a test is.
LONG = Request((SDPA,) * 12, q_len=64, rounds=1000, budget_s=600, limit_s=600, memory=False)
AWAY = Asker("away", lambda: True)


@pytest.fixture(scope="module")
def desk():
    own = Desk()
    yield own
    own.close()


@pytest.fixture
def long(desk):
    """Give ``long(asker, **options)``: a job that ends with the test; the first one is being measured."""
    jobs = []

    def ask(asker=None, **options):
        jobs.append(desk.submit((LONG,), asker=asker, **options))
        if len(jobs) == 1:
            until(lambda: jobs[0].partial is not None or jobs[0].done)
        return jobs[-1]

    yield ask
    for job in reversed(jobs):
        job.cancel()
        job.wait(60)


def until(holds, seconds=120):
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)


def test_nobody_waits_in_line_behind_their_own_requests(desk, long):
    one, another = Asker("one"), Asker("another")
    long(one)
    own, others = long(one), long(another)
    assert (own.place, others.place) == (0, 1)
    house = desk.submit((Probe(),), asker=_HOUSE)
    assert house.place == 2 and long(Asker("third")).place == 2


def test_a_request_of_somebody_who_has_left_counts_for_nobody(long):
    long(Asker("here"))
    gone, last = long(AWAY, abandon_s=600), long(Asker("last"))
    assert last.place == 1 and gone.left
    # Somebody without a browser, who waits for as long as it takes, never leaves.
    assert not long(AWAY).left


def test_somebody_who_is_there_need_not_look(desk):
    here = desk.submit((LONG,), abandon_s=0.01, asker=Asker("hidden tab", lambda: False))
    gone = desk.submit((LONG,), abandon_s=0.01, asker=AWAY)
    until(lambda: here.partial is not None and gone.done)
    assert gone.results[0].reason == "abandoned" and not here.done
    here.cancel()
    here.wait(60)


def test_the_speed_of_a_device_is_asked_again_where_it_came_to_nothing(monkeypatch):
    own = Desk()
    monkeypatch.setattr(own, "_measure", lambda job, request: Failure("crashed", "SIGKILL"))
    assert own.speed(Probe()) is None
    until(lambda: own._speeds[Probe()][0].done)
    first = own._speeds[Probe()][0]
    assert own.speed(Probe()) is None and own._speeds[Probe()][0] is first  # not at once
    monkeypatch.setattr(sys.modules["attnviz.benchmark.desk"], "AGAIN_S", -1.0)
    monkeypatch.setattr(own, "_measure", lambda job, request: Measurement((), speed=Speed(1.0, 2.0)))
    assert own.speed(Probe()) is None
    until(lambda: own.speed(Probe()) == Speed(1.0, 2.0))
    own.close()


def test_a_type_that_is_slow_here_is_not_tried_at_full_size(monkeypatch):
    sides = []

    def best(call, kind):
        call()
        sides.append(kind)
        return 1.0

    monkeypatch.setattr(speed, "_best", best)
    found = speed.probe(Probe())
    assert len(sides) == 2 and found.flops == 2 * 128**3


def test_somebody_who_has_left_ends_at_once_where_others_wait(desk):
    job = desk.submit((LONG,), abandon_s=600, asker=AWAY)
    until(lambda: job.partial is not None)
    assert not job.done  # they may be back, and nobody else asks
    assert isinstance(desk.submit((SHORT,)).wait(120)[0], Measurement)
    assert [one.reason for one in job.results] == ["abandoned"]


def test_time_in_which_all_stood_still_is_not_counted(desk, monkeypatch):
    halted = iter([0.0, 3600.0])
    stood = [0.0]

    def now():
        stood[0] = next(halted, stood[0])
        return time.monotonic() + stood[0]

    monkeypatch.setattr(sys.modules["attnviz.benchmark.desk"], "time", SimpleNamespace(monotonic=now))
    (measured,) = desk.submit((replace(SHORT, limit_s=60),)).wait(120)
    assert isinstance(measured, Measurement)


def test_half_a_line_of_a_killed_process_ends_the_request(tmp_path, monkeypatch):
    program = tmp_path / "dies"
    program.write_text("""#!/bin/sh\nprintf '{"ready": true}\\n'\nread asked\nprintf '{"id": 1, "meas'\n""", "utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(process_module, "sys", SimpleNamespace(executable=str(program)))
    own = Desk()
    (result,) = own.submit((replace(SHORT, limit_s=600),)).wait(60)
    own.close()
    assert isinstance(result, Failure) and result.reason == "crashed" and "exit status 0" in result.text.en


def test_a_mishap_in_the_app_ends_one_request_and_not_the_service(monkeypatch, caplog):
    own = Desk()
    measure, mishaps = own._measure, iter([OSError("no more processes")])

    def once(job, request):
        for mishap in mishaps:
            raise mishap
        return measure(job, request)

    monkeypatch.setattr(own, "_measure", once)
    first, second = own.submit((SHORT, SHORT)).wait(120)
    own.close()
    assert isinstance(first, Failure) and first.reason == "crashed" and isinstance(second, Measurement)
    assert "no more processes" in caplog.text


def test_a_desk_that_closes_ends_all_that_was_asked():
    own = Desk()
    job, waiting = own.submit((LONG, LONG, LONG)), own.submit((LONG,))
    until(lambda: job.partial is not None)
    own.close()
    assert [one.reason for one in (*job.wait(30), *waiting.wait(30))] == ["closed"] * 4
