"""A slider whose movements reach the live pictures at once and Streamlit when it is let go.

The browser sends ``{"value", "seq"}`` once per release. Its number travels back as a confirmation with the next run,
and only then does the browser trust the page's value again; so a slow run never pulls the thumb from under a finger.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Required, TypedDict, Unpack

import streamlit as st
from streamlit.components.v2 import component

from pages.ui.bus import Group, note_route, with_bus
from pages.ui.translate import needed

# Fields: {label} in the first five, {default} in reset, {text} (as typed) in the rest, {low} and {high} in the last.
WORD_KEYS = ("box", "help", "reset", "play", "pause", "not_a_number", "not_whole", "out_of_range")
# From one position to the next while it plays.
BEAT_MS = 900
MOST_SEQ = 2**53  # the largest whole number that both sides count to exactly

_HTML = """
<div data-part="root" class="slider">
  <div class="head">
    <button data-part="play" class="play" type="button" hidden>▶</button>
    <label data-part="label" class="label" for="range"></label>
    <span class="helper">
      <button data-part="help" class="help" type="button" aria-describedby="tip" hidden>?</button>
      <span data-part="tip" id="tip" class="tip" role="tooltip"></span>
    </span>
    <span class="spring"></span>
    <button data-part="reset" class="reset" type="button" hidden>↺</button>
    <input data-part="box" class="box" type="text" inputmode="decimal" autocomplete="off" spellcheck="false"
      aria-describedby="problem" />
    <span data-part="unit" class="unit"></span>
  </div>
  <input data-part="range" id="range" class="range" type="range" aria-describedby="problem" />
  <div class="ends" aria-hidden="true"><span data-part="low"></span><span data-part="high"></span></div>
  <div data-part="problem" id="problem" class="problem" role="alert"></div>
</div>
"""

_CSS = """
.slider {
  --track: color-mix(in srgb, var(--st-text-color) 20%, transparent);
  --muted: color-mix(in srgb, var(--st-text-color) 65%, var(--st-background-color));
  --ring: 0 0 0 0.2rem color-mix(in srgb, var(--st-primary-color) 50%, transparent);
  color: var(--st-text-color);
  font-family: var(--st-font);
  font-size: 0.875rem;
  line-height: 1.5;
}
.head { display: flex; align-items: center; gap: 0.25rem; min-height: 1.75rem; }
.label { min-width: 0; overflow-wrap: break-word; }
.spring { flex: 1; }
.unit { color: var(--muted); white-space: nowrap; }
.unit:empty { display: none; }
button { font: inherit; color: var(--muted); background: none; border: 0; padding: 0; cursor: pointer; }
button:focus-visible, .box:focus-visible { outline: none; box-shadow: var(--ring); }
.helper { position: relative; display: inline-flex; }
.help {
  width: 1rem; height: 1rem; border: 1px solid currentColor; border-radius: 50%;
  font-size: 0.6875rem; line-height: 1; cursor: help;
}
.help[hidden], .reset[hidden], .play[hidden] { display: none; }
.tip {
  position: absolute; z-index: 10; top: calc(100% + 0.375rem); left: -0.75rem; width: max-content; max-width: 16rem;
  padding: 0.375rem 0.625rem; border: 1px solid var(--st-border-color); border-radius: var(--st-base-radius);
  background: var(--st-background-color); color: var(--st-text-color); display: none;
}
.help:hover + .tip, .help:focus + .tip, .tip:hover { display: block; }
.reset { width: 1.5rem; height: 1.5rem; border-radius: var(--st-base-radius); font-size: 1rem; line-height: 1; }
.reset:hover { color: var(--st-primary-color); }
.play {
  flex: none; width: 1.75rem; height: 1.75rem; margin-right: 0.25rem; border-radius: 50%; font-size: 0.75rem;
  line-height: 1; color: var(--st-background-color); background: var(--st-primary-color);
}
.play:hover { filter: brightness(1.15); }
.play:focus-visible { color: var(--st-background-color); }
.box {
  width: 4rem; padding: 0.125rem 0.375rem; border: 1px solid var(--st-border-color);
  border-radius: var(--st-base-radius); background: var(--st-secondary-background-color); color: inherit;
  font: inherit; font-variant-numeric: tabular-nums; text-align: right; box-sizing: border-box;
}
.box:read-only { width: 5.5rem; }
.box[aria-invalid] { border-color: var(--st-red-color); }
.range {
  -webkit-appearance: none; appearance: none; display: block; width: 100%; height: 1.5rem; margin: 0;
  background: none; cursor: pointer; touch-action: pan-y;
}
.range:focus { outline: none; }
.range::-webkit-slider-runnable-track {
  height: 0.25rem; border-radius: 0.25rem;
  background: linear-gradient(to right, var(--st-primary-color) var(--share, 0%), var(--track) var(--share, 0%));
}
.range::-moz-range-track { height: 0.25rem; border-radius: 0.25rem; background: var(--track); }
.range::-moz-range-progress { height: 0.25rem; border-radius: 0.25rem; background: var(--st-primary-color); }
.range::-webkit-slider-thumb {
  -webkit-appearance: none; width: 0.875rem; height: 0.875rem; margin-top: -0.3125rem; border: 0; border-radius: 50%;
  background: var(--st-primary-color);
}
.range::-moz-range-thumb {
  width: 0.875rem; height: 0.875rem; border: 0; border-radius: 50%; background: var(--st-primary-color);
}
.range:focus-visible::-webkit-slider-thumb { box-shadow: var(--ring); }
.range:focus-visible::-moz-range-thumb { box-shadow: var(--ring); }
.ends {
  display: flex; justify-content: space-between; margin-top: -0.25rem; min-height: 1.125rem; color: var(--muted);
  font-size: 0.75rem;
  font-variant-numeric: tabular-nums;
}
.problem { color: var(--st-red-text-color, var(--st-red-color)); }
.problem:empty { display: none; }
.slider[data-disabled] { opacity: 0.5; }
.slider[data-disabled] :is(button, input) { cursor: not-allowed; }
@media (forced-colors: active) {
  .range { -webkit-appearance: auto; appearance: auto; }
  button:focus-visible, .box:focus-visible, .range:focus-visible { outline: 2px solid Highlight; }
}
@media print { .reset, .help, .play { display: none; } }
"""

_COMPONENT = component(
    "attnviz_live_slider",
    html=_HTML,
    css=_CSS,
    js=with_bus((Path(__file__).parent / "live_slider.js").read_text(encoding="utf-8")),
)

Real = int | float


def _message(key: str) -> Mapping[str, object]:
    """Give what the browser last sent, or nothing; its content is whatever a client chose to send."""
    state = st.session_state.get(key)
    message = state.get("release") if isinstance(state, Mapping) else None
    return message if isinstance(message, Mapping) else {}


def released_seq(key: str) -> int:
    """Give the number of the last release of the slider ``key``, 0 when there was none."""
    seq = _message(key).get("seq")
    return seq if isinstance(seq, int) and not isinstance(seq, bool) and 0 < seq < MOST_SEQ else 0


def released_value(key: str, *, low: Real, high: Real, integer: bool) -> Real | None:
    """Give the value of the last release of the slider ``key``.

    Args:
        key: The slider's key.
        low: Smallest value that counts.
        high: Largest value that counts.
        integer: Whether it has to be a whole number.

    Returns:
        The value, or None when nothing was sent or what was sent is no such number.
    """
    value = _message(key).get("value")
    # The comparison also turns NaN and infinities away, and whole numbers too large to be floats.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        return None
    if integer and value != int(value):
        return None
    return int(value) if integer else float(value)


def _check(low: Real, high: Real, stops: Sequence[Real] | None, step: Real | None, words: Mapping[str, str]) -> None:
    if (stops is None) == (step is None):
        raise ValueError(f"exactly one of stops and step must be given, got stops={stops!r} and step={step!r}")
    if stops is not None and (not stops or list(stops) != sorted(set(stops)) or stops[0] < low or stops[-1] > high):
        raise ValueError(f"stops must rise from low={low} to high={high}, got {stops!r}")
    if not low <= high or (step is not None and step <= 0):
        raise ValueError(f"low <= high and step > 0 must hold, got low={low}, high={high}, step={step}")
    needed(words, WORD_KEYS)


class Track(TypedDict, total=False):
    """Say where a slider can stand.

    Args:
        low: Smallest value.
        high: Largest value of the track.
        stops: The positions, rising, where they are not evenly spaced.
        step: The distance of positions where they are.
        default: Value that the reset button sets; left out, the ``value`` as first given.
        unit: Shown after the number.
        help: One sentence behind a question mark.
        typed_high: Largest value that can be typed; left out, ``high``.
        disabled: Whether it can be seen only.
        play: Whether a button lets it run from position to position by itself.
        beat: Milliseconds that it then rests on each; left out, ``BEAT_MS``.
        options: Key → name where the positions 0, 1 and so on are those of a choice: the route is asked for the key,
            a person reads the name.
    """

    low: Required[Real]
    high: Required[Real]
    stops: Sequence[Real] | None
    step: Real | None
    default: Real | None
    unit: str | None
    help: str | None
    typed_high: Real | None
    disabled: bool
    play: bool
    beat: int | None
    options: Mapping[str, str] | None


def live_slider(
    name: str,
    label: str,
    value: Real,
    *,
    group: Group,
    key: str,
    words: Mapping[str, str],
    on_value: Callable[[Real], None] | None = None,
    **track: Unpack[Track],
) -> Real:
    """Draw the slider and give its value.

    With ``on_value`` the page keeps the value: the function is called once per release, before the run, and the slider
    shows the ``value`` it is given. Without, the slider keeps it and ``value`` is where it begins.

    Args:
        name: Name of the parameter that it moves on the live route.
        label: What it is called on screen.
        value: Its value; a whole number makes it a slider of whole numbers.
        group: The group whose pictures follow it.
        key: Its key in the session.
        words: Texts in the page's language under ``WORD_KEYS``.
        on_value: Takes a released value that lies between ``low`` and ``typed_high``.
        track: Where it can stand, as in ``Track``; exactly one of ``stops`` and ``step``.

    Returns:
        The value that the slider shows: int for a slider of whole numbers, float otherwise.

    Raises:
        ValueError: If positions or words are not as described.
    """
    low, high, stops, step = track["low"], track["high"], track.get("stops"), track.get("step")
    _check(low, high, stops, step, words)
    integer = all(isinstance(number, int) for number in (value, low, *(stops or (step,))))
    typed_high = track.get("typed_high")
    most = high if typed_high is None else typed_high
    disabled = track.get("disabled", False)

    def sent() -> Real | None:
        return released_value(key, low=low, high=most, integer=integer)

    def receive() -> None:
        note_route(_message(key).get("live"))
        taken = sent()
        if on_value is not None and taken is not None and not disabled:
            on_value(taken)

    kept = sent() if on_value is None and not disabled else None
    shown = value if kept is None else kept
    data = {**group.data(acks={name: released_seq(key)}), "name": name, "label": label, "value": shown}
    _COMPONENT(key=key, data=data | _data(track, value, integer, most, words), on_release_change=receive)
    return int(shown) if integer else float(shown)


def _data(track: Track, value: Real, integer: bool, most: Real, words: Mapping[str, str]) -> dict[str, object]:
    """Give what the browser needs to know of the track."""
    stops, default, options = track.get("stops"), track.get("default"), track.get("options")
    return {
        "keys": list(options) if options else None,
        "names": list(options.values()) if options else None,
        "low": track["low"],
        "high": track["high"],
        "stops": None if stops is None else list(stops),
        "step": track.get("step"),
        "default": value if default is None else default,
        "unit": track.get("unit"),
        "help": track.get("help"),
        "integer": integer,
        "typed_low": track["low"],
        "typed_high": most,
        "words": needed(words, WORD_KEYS),
        "disabled": track.get("disabled", False),
        "play": track.get("play", False),
        "beat": track.get("beat") or BEAT_MS,
    }
