"""Measuring on a page: a button, the place in the queue, results as they come, and the sentence where there are none.

    measured.section(panel, "decode", requests, draw)

``draw`` is given the requests and what is known of them (``Measurement`` or ``Failure``, one for each request that has
begun; none before the first) and puts the picture on the page; ``bars`` makes one of a request's contestants. Results
belong to the settings they were asked with: when ``requests`` change, a running measurement ends.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attnviz import units
from attnviz.benchmark import (
    Asker,
    Contestant,
    Failure,
    Job,
    Point,
    Probe,
    Request,
    Result,
    Speed,
    declared_peak,
    desk,
    predict,
    submit,
)
from attnviz.figures.measured import Bar
from attnviz.figures.measured import bars as bars_figure
from pages.ui import layout
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.plot import plot
from pages.ui.plot.spec import Drawn
from pages.ui.translate import say, table

EVERY_S = 0.3
# A page that is closed, or left for another, looks no more.
ABANDON_S = 8.0
# What does not fit or cannot be computed has its own sentence; it is not the measuring that ended.
_CUT_SHORT = ("cancelled", "abandoned", "crashed", "time", "closed")

Draw = Callable[[Sequence[Request], Sequence[Result]], None]


class Held(NamedTuple):
    """Hold a visitor's measurement and what it was asked with."""

    requests: tuple[Request, ...]
    job: Job


def section(panel: Panel, key: str, requests: Sequence[Request], draw: Draw, *, auto: bool = False) -> None:
    """Put a measurement on the page: what starts and ends it, how far it is, and what is known so far.

    Args:
        panel: The page's panel.
        key: Key of the measurement within the page.
        requests: What is measured, the same for the same settings.
        draw: Draws what is known.
        auto: Whether it starts by itself, again with each change; there is no button then.
    """
    store, wanted = f"{panel.page}.{key}.measured", tuple(requests)
    held: Held | None = st.session_state.get(store)
    if held is not None and held.requests != wanted:
        held.job.cancel()
        st.session_state.pop(store)
        held = None
    if auto and (held is None or _left_alone(held.job)):
        start(panel, key, wanted)
        held = st.session_state[store]
    elif held is None:
        # The button will be pressed in a moment: the process comes up meanwhile.
        desk().warm()
    running = held is not None and not held.job.done
    if not auto:
        _buttons(panel, key, wanted, running, held is not None)
    st.fragment(_progress, run_every=EVERY_S if running else None)(panel, key, wanted, draw, running)


def _left_alone(job: Job) -> bool:
    """Say whether it ended because nobody seemed to be there: who looks again has it go on."""
    return any(isinstance(one, Failure) and one.reason == "abandoned" for one in job.results)


def start(panel: Panel, key: str, requests: Sequence[Request]) -> None:
    """Begin a measurement; one that runs under this key ends, and so do those of pages that were left."""
    store = f"{panel.page}.{key}.measured"
    for name in map(str, list(st.session_state)):
        other = st.session_state[name] if name.endswith(".measured") else None
        if isinstance(other, Held) and (name == store or not name.startswith(f"{panel.page}.")):
            other.job.cancel()
    st.session_state[store] = Held(tuple(requests), submit(requests, abandon_s=ABANDON_S, asker=_asker()))


def _asker() -> Asker:
    """Give who asks: a visitor, who has left once their browser has gone or loaded the page anew."""
    context = get_script_run_ctx()
    session = "" if context is None else context.session_id
    return Asker(session, lambda: runtime.exists() and not runtime.get_instance().is_active_session(session))


def results(panel: Panel, key: str) -> tuple[Result, ...]:
    """Give what is known of a visitor's measurement."""
    held: Held | None = st.session_state.get(f"{panel.page}.{key}.measured")
    return () if held is None else held.job.shown


def _buttons(panel: Panel, key: str, requests: Sequence[Request], running: bool, again: bool) -> None:
    words = table(panel.language, "measure")
    held: Held | None = st.session_state.get(f"{panel.page}.{key}.measured")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            words["again" if again else "start"],
            icon=":material/timer:",
            type="primary",
            disabled=running,
            on_click=lambda: start(panel, key, requests),
            key=f"{panel.page}.{key}.start",
        )
        if running and held is not None:
            st.button(words["cancel"], on_click=held.job.cancel, key=f"{panel.page}.{key}.cancel")


def _progress(panel: Panel, key: str, requests: Sequence[Request], draw: Draw, running: bool) -> None:
    """Draw what is known, and say how far it is; the last time, stop looking."""
    held: Held | None = st.session_state.get(f"{panel.page}.{key}.measured")
    if held is None:
        # The line is always there: a chart that moves down under someone's pointer is built anew.
        st.caption(say(panel.language, "measure.idle"))
        draw(requests, ())
        return
    held.job.look()
    done, shown = held.job.done, held.job.shown
    st.caption(status(panel.language, held.job, done))
    draw(requests, shown)
    for words in failures(panel.language, held.job.results):
        st.warning(words, icon=":material/timer_off:")
    if done and running:
        st.rerun()


def status(language: str, job: Job, done: bool) -> str:
    """Say in one line how far a measurement is."""
    words = table(language, "measure")
    if done:
        missed = sum(isinstance(one, Failure) and one.reason in _CUT_SHORT for one in job.results)
        if not missed:
            return words["done"]
        if len(job.requests) == 1:
            # What came before stands in the picture: of one request nothing is counted.
            return words["cut"]
        return words["ended"].format(done=len(job.requests) - missed, count=len(job.requests))
    if job.place:
        return words["waiting"].format(place=job.place)
    if not job.begun:
        return words["starting"]
    if len(job.requests) == 1:
        name = _first_call(job)
        return words["running"] if name is None else words["first"].format(name=layout.escape(name))
    said = words["running_many"].format(done=len(job.results), count=len(job.requests))
    left = job.left_s
    return said if left is None else f"{said} {words['left'].format(time=units.seconds(max(1, round(left))))}"


def _first_call(job: Job) -> str | None:
    """Give the name of the contestant whose first time is awaited, or None once all have one."""
    (request,) = job.requests
    if not isinstance(request, Request):
        return None
    known = points(job.partial, len(request.contestants))
    waiting = [
        contestant.label
        for contestant, point in zip(request.contestants, known, strict=True)
        if point is None or (point.latency_s is None and point.failure is None)
    ]
    return waiting[0] if waiting else None


def failures(language: str, shown: Sequence[Result]) -> list[str]:
    """Give each reason once why requests or contestants have no result, as text for Markdown."""
    said: dict[str, None] = {}
    for result in shown:
        if isinstance(result, Failure):
            said[layout.escape(result.text.say(language))] = None
            continue
        for point in result.points:
            if point.failure is not None:
                said[layout.escape(f"{point.label}: {point.failure.text.say(language)}")] = None
    return list(said)


def points(shown: Result | None, count: int) -> list[Point | None]:
    """Give a point for each of ``count`` contestants, also of what was measured before a failure."""
    known = shown.partial if isinstance(shown, Failure) else shown
    return [None] * count if known is None else list(known.points)


def bars(
    panel: Panel,
    key: str,
    request: Request,
    shown: Result | None,
    *,
    memory: bool,
    group: Group | None = None,
    part: str | None = None,
) -> None:
    """Draw a request's contestants as bars of time or of peak memory, with what is predicted of each.

    Args:
        panel: The page's panel.
        key: Key of the figure within the page.
        request: The request.
        shown: What is known of it, or None.
        memory: Whether the peak is drawn, not the time.
        group: The live group that the figure follows, or None.
        part: Its name among the figures of a live frame.
    """
    drawn = draw_bars(panel.language, request, shown, memory=memory)
    plot(
        drawn.figure, key=f"{panel.page}.{key}", label=drawn.caption, alt=drawn.alt, caption=drawn.caption,
        words=table(panel.language, "plot"), height=drawn.figure["layout"]["height"], group=group, part=part,
    )  # fmt: skip


def draw_bars(language: str, request: Request, shown: Result | None, *, memory: bool) -> Drawn:
    """Give the bars of a request; see ``bars``."""
    words = table(language, "measure")
    known = points(shown, len(request.contestants))
    speed = None if memory else desk().speed(Probe(request.dtype, request.threads, request.device))
    expected = [_expected(request, contestant, speed, memory=memory) for contestant in request.contestants]
    give = _memory_bar if memory else _time_bar
    rows = [give(words, *each) for each in zip(request.contestants, known, expected, strict=True)]
    mark = words["predicted" if memory else "least"]
    label, base = (units.binary_bytes, 4) if memory else (units.seconds, 10)
    figure = bars_figure(rows, predicted=mark, label=label, base=base)
    caption = _caption(words, known, memory)
    numbers = "; ".join(f"{row.name}: {row.text}" for row in rows)
    return Drawn(figure, caption, f"{caption}. {numbers}")


def _expected(request: Request, contestant: Contestant, speed: Speed | None, *, memory: bool) -> int | float | None:
    """Give what is predicted: the declared peak of a core, or the least time by the roofline of this device."""
    if memory:
        return declared_peak(contestant, request)
    if speed is None:
        return None
    taken = predict(contestant, request)
    return speed.seconds(taken.flops, taken.bytes_moved)


def _memory_bar(words: Mapping[str, str], of: Contestant, point: Point | None, expected: int | float | None) -> Bar:
    if point is None or point.peak_bytes is None:
        return _without(words, of, point, expected, "" if expected is None else units.binary_bytes(expected))
    return Bar(of.label, point.peak_bytes, predicted=expected, text=units.binary_bytes(point.peak_bytes))


def _time_bar(words: Mapping[str, str], of: Contestant, point: Point | None, expected: int | float | None) -> Bar:
    taken = None if point is None else point.latency_s
    if point is None or taken is None:
        return _without(words, of, point, expected, "" if expected is None else f"≥ {units.seconds(expected)}")
    ratio = "" if point.ratio in (None, 1.0) else f" · {units.number(point.ratio or 1.0, 2)}×"
    text = f"{units.seconds(taken.median)}{ratio}"
    return Bar(of.label, taken.median, taken.lower, taken.upper, expected, text, taken.noisy)


def _without(
    words: Mapping[str, str], of: Contestant, point: Point | None, expected: int | float | None, text: str
) -> Bar:
    """Give a bar of which nothing has been measured: not yet, or not at all."""
    refused = point is not None and point.failure is not None
    return Bar(of.label, predicted=expected, text=words["not_run"] if refused else text and f"({text})")


def _caption(words: Mapping[str, str], known: Sequence[Point | None], memory: bool) -> str:
    """Say what is drawn and how it was measured."""
    title = words["memory" if memory else "time"]
    if memory:
        methods = {point.memory_method for point in known if point is not None and point.memory_method}
        named = ", ".join(words[f"method.{method.replace(' ', '_')}"] for method in sorted(methods))
        return f"{title} · {named}" if named else title
    taken = [point.latency_s for point in known if point is not None and point.latency_s is not None]
    if not taken:
        return title
    noise = f" · {words['noisy']}" if any(one.noisy for one in taken) else ""
    runs = min(one.runs for one in taken)
    return f"{title} · {words['rounds'].format(runs=runs) if runs > 1 else words['round']}{noise}"
