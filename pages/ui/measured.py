"""Measuring on a page: a button, the place in the queue, results as they come, and the sentence where there are none.

    measured.section(panel, "decode", requests, draw)

``draw`` is given the requests and what is known of them (``Measurement`` or ``Failure``, one for each request that has
begun; none before the first) and puts the picture on the page; ``bars`` makes one of a request's contestants. Results
belong to the settings they were asked with: when ``requests`` change, a running measurement ends, and what it found is
there again with its settings.
"""

from collections.abc import Callable, Sequence

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attnviz.benchmark import Asker, Failure, Job, Measurement, Request, Result, desk, submit
from pages.ui.bus import Group
from pages.ui.controls import Panel
from pages.ui.measured_bars import draw_bars
from pages.ui.measured_held import Held
from pages.ui.measured_words import failures, status
from pages.ui.plot import plot
from pages.ui.translate import say, table

EVERY_S = 0.3
# A page that is closed, or left for another, looks no more.
ABANDON_S = 8.0
# So many measurements of other settings are kept for a visitor who comes back to those.
_EARLIER = 6

Draw = Callable[[Sequence[Request], Sequence[Result]], None]


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
        if auto and held is not None and _noisy(held):
            held = None
    if auto and (held is None or _left_alone(held)):
        start(panel, key, wanted)
        held = st.session_state[store]
    elif held is None:
        # The button will be pressed in a moment: the process comes up meanwhile.
        desk().warm()
    running = held is not None and not held.job.done
    if not auto:
        _buttons(panel, key, wanted, held, running)
    st.fragment(_progress, run_every=EVERY_S if running else None)(panel, key, wanted, draw, running)


def _exchange(store: str, held: Held | None, wanted: tuple[Request, ...]) -> Held | None:
    """End and put away the measurement of other settings; give what is known of these from before, or None."""
    earlier: list[Held] = st.session_state.setdefault(f"{store}.earlier", [])
    if held is not None:
        held.job.cancel()
        del st.session_state[store]
        if held.shown:
            earlier.append(held)
            del earlier[:-_EARLIER]
    found = next((one for one in earlier if one.requests == wanted), None)
    if found is not None:
        earlier.remove(found)
        st.session_state[store] = found
    return found


def _left_alone(held: Held) -> bool:
    """Say whether it ended because nobody seemed to be there, or with other settings: who looks again has it go on."""
    return any(isinstance(one, Failure) and one.reason in ("abandoned", "cancelled") for one in held.results)


def _noisy(held: Held) -> bool:
    """Say whether a time of it spreads widely: what starts by itself is then measured anew."""
    known = [point for result in held.results if isinstance(result, Measurement) for point in result.points]
    return any(point.latency_s is not None and point.latency_s.noisy for point in known)


def start(panel: Panel, key: str, requests: Sequence[Request]) -> None:
    """Begin a measurement; one that runs under this key ends, and so do those of pages that were left."""
    store = _free(panel, key)
    st.session_state[store] = Held(tuple(requests), _submit(requests))


def go_on(panel: Panel, key: str) -> None:
    """Measure what a measurement that ended early has left out, and keep what it has found."""
    store = _free(panel, key)
    held: Held = st.session_state[store]
    asked = [held.requests[number] for number in held.missing]
    st.session_state[store] = Held(held.requests, _submit(asked), held.results)


def _free(panel: Panel, key: str) -> str:
    """End what runs under this key and on pages that were left; give the place for what comes."""
    store = f"{panel.page}.{key}.measured"
    for name in map(str, list(st.session_state)):
        other = st.session_state[name] if name.endswith(".measured") else None
        if isinstance(other, Held) and (name == store or not name.startswith(f"{panel.page}.")):
            other.job.cancel()
    return store


def _submit(requests: Sequence[Request]) -> Job:
    return submit(requests, abandon_s=ABANDON_S, asker=_asker())


def _asker() -> Asker:
    """Give who asks: a visitor, who has left once their browser has gone or loaded the page anew."""
    context = get_script_run_ctx()
    session = "" if context is None else context.session_id
    return Asker(session, lambda: runtime.exists() and not runtime.get_instance().is_active_session(session))


def results(panel: Panel, key: str) -> tuple[Result, ...]:
    """Give what is known of a visitor's measurement."""
    held: Held | None = st.session_state.get(f"{panel.page}.{key}.measured")
    return () if held is None else held.shown


def _buttons(panel: Panel, key: str, requests: Sequence[Request], held: Held | None, running: bool) -> None:
    words = table(panel.language, "measure")
    some = held is not None and not running and 0 < len(held.missing) < len(requests)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if some:
            st.button(
                words["go_on"], icon=":material/resume:", type="primary", on_click=lambda: go_on(panel, key),
                key=f"{panel.page}.{key}.go_on",
            )  # fmt: skip
        st.button(
            words["start" if held is None else "again"],
            icon=":material/timer:",
            type="secondary" if some else "primary",
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
        st.caption(_idle(panel, key))
        draw(requests, ())
        return
    held.job.look()
    done, shown = held.job.done, held.shown
    st.caption(status(panel.language, held, done))
    draw(requests, shown)
    said = failures(panel.language, held.requests, held.results)
    if said:
        st.warning("  \n".join(said), icon=":material/timer_off:")
    if done and running:
        st.rerun()


def _idle(panel: Panel, key: str) -> str:
    """Say that nothing has been measured, and what was ended when the settings changed."""
    earlier: list[Held] = st.session_state.get(f"{panel.page}.{key}.measured.earlier", [])
    said, last = say(panel.language, "measure.idle"), earlier[-1] if earlier else None
    if last is None or len(last.requests) == 1 or not last.missing:
        return said
    count = len(last.requests)
    left = say(panel.language, "measure.left_behind", done=count - len(last.missing), count=count)
    return f"{said}{' ' if panel.language == 'en' else ''}{left}"


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
