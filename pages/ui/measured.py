"""Measuring on a page: a button, the place in the queue, results as they come, and the sentence where there are none.

    measured.section(panel, "decode", requests, draw)

``draw`` is given the requests and what is known of them (``Measurement`` or ``Failure``, one for each request that has
begun; none before the first) and puts the picture on the page; ``bars`` makes one of a request's contestants. Results
belong to the settings they were asked with: when ``requests`` change, a running measurement ends, and what it found is
there again with its settings.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attnviz import units
from attnviz.benchmark import Asker, Failure, Job, Measurement, Probe, Request, Result, desk, submit
from pages.ui import layout
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.measured_bars import draw_bars, points
from pages.ui.plot import plot
from pages.ui.translate import say, table

EVERY_S = 0.3
# A page that is closed, or left for another, looks no more.
ABANDON_S = 8.0
# So many measurements of other settings are kept for a visitor who comes back to those.
_EARLIER = 6
# What does not fit or cannot be computed has its own sentence; it is not the measuring that ended.
CUT_SHORT = ("cancelled", "abandoned", "crashed", "time", "closed")

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
    if held is None or held.requests != wanted:
        held = _exchange(store, held, wanted)
        if auto and held is not None and _noisy(held.job):
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


def _exchange(store: str, held: Held | None, wanted: tuple[Request, ...]) -> Held | None:
    """End and put away the measurement of other settings; give what is known of these from before, or None."""
    earlier: list[Held] = st.session_state.setdefault(f"{store}.earlier", [])
    if held is not None:
        held.job.cancel()
        del st.session_state[store]
        if held.job.shown:
            earlier.append(held)
            del earlier[:-_EARLIER]
    found = next((one for one in earlier if one.requests == wanted), None)
    if found is not None:
        earlier.remove(found)
        st.session_state[store] = found
    return found


def _left_alone(job: Job) -> bool:
    """Say whether it ended because nobody seemed to be there, or with other settings: who looks again has it go on."""
    return any(isinstance(one, Failure) and one.reason in ("abandoned", "cancelled") for one in job.results)


def _noisy(job: Job) -> bool:
    """Say whether a time of it spreads widely: what starts by itself is then measured anew."""
    known = [point for result in job.results if isinstance(result, Measurement) for point in result.points]
    return any(point.latency_s is not None and point.latency_s.noisy for point in known)


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
    said = failures(panel.language, held.job.requests, held.job.results)
    if said:
        st.warning("  \n".join(said), icon=":material/timer_off:")
    if done and running:
        st.rerun()


def status(language: str, job: Job, done: bool) -> str:
    """Say in one line how far a measurement is."""
    words = table(language, "measure")
    if done:
        if not _any_time(job.results):
            return words["none"]
        missed = sum(isinstance(one, Failure) and one.reason in CUT_SHORT for one in job.results)
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


def _any_time(results: Sequence[Result]) -> bool:
    """Say whether anything was measured at all."""
    known = [result.partial if isinstance(result, Failure) else result for result in results]
    return any(point.latency_s is not None for one in known if one is not None for point in one.points)


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


def failures(language: str, requests: Sequence[Request | Probe], shown: Sequence[Result]) -> list[str]:
    """Give each reason once why requests or contestants have no result, with where, as text for Markdown.

    Of a contestant that is too large from a length on, the shortest one's need is said.
    """
    places: dict[str, list[int]] = {}
    sizes: dict[tuple[str, str], tuple[str, list[int]]] = {}
    for index, result in enumerate(shown):
        for label, failure in _each(result):
            words = layout.escape(f"{label}{failure.text.say(language)}")
            if failure.reason == "too_large":
                sizes.setdefault((label, requests[index].dtype), (words, []))[1].append(index)
            else:
                places.setdefault(words, []).append(index)
    return [
        *(f"{_where(language, requests, at)}{words}" for words, at in places.items()),
        *(f"{_where(language, requests, at[:1], more=len(at) > 1)}{words}" for words, at in sizes.values()),
    ]


def _each(result: Result) -> list[tuple[str, Failure]]:
    """Give what failed: contestants with their names where the reasons are theirs, a whole request without one."""
    known = result.partial if isinstance(result, Failure) else result
    own = [] if known is None else [(f"{one.label}: ", one.failure) for one in known.points if one.failure is not None]
    if not isinstance(result, Failure):
        return own
    if result.reason in CUT_SHORT:
        return [("", result), *own]
    return own if len(own) > 1 else [("", result)]


def _where(language: str, requests: Sequence[Request | Probe], at: Sequence[int], more: bool = False) -> str:
    """Name requests by what tells them apart: lengths, and data types where there are several.

    Args:
        language: Language of the words.
        requests: All requests.
        at: Those that are named.
        more: Whether longer ones are meant too.
    """
    asked = [one for one in requests if isinstance(one, Request)]
    if len(asked) < max(2, len(requests)) or (len(at) == len(requests) and not more):
        return ""
    # Requests of one query each, as in decoding, differ in what they see.
    lengths = [one.q_len if len({each.q_len for each in asked}) > 1 else one.keys for one in asked]
    several = len({one.dtype for one in asked}) > 1
    said = []
    for dtype in dict.fromkeys(asked[index].dtype for index in at):
        own = dict.fromkeys(units.count(lengths[index]) for index in at if asked[index].dtype == dtype)
        words = say(language, "measure.longer" if more else "measure.lengths", lengths=", ".join(own))
        said.append(f"{words}, {dtype}" if several else words)
    return f"{'; '.join(said)} – "


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
