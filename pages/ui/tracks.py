"""Where a setting's slider can stand."""

from collections.abc import Sequence
from typing import Any, cast

from attnviz.knobs import Choice, Integer, Knob, Number, Value


def track(
    knob: Knob,
    value: Value,
    default: Value,
    language: str,
    *,
    high: int | None = None,
    stops: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Give the track of a setting's slider as ``live_slider`` takes it, with its ``default``.

    Args:
        knob: The setting, an ``Integer``, a ``Number``, or a ``Choice`` whose options have an order.
        value: Its value now.
        default: What the slider's reset sets.
        language: Language of the options' names.
        high: Where the track ends; None means where the knob says.
        stops: The positions; None means the knob's own.

    Raises:
        ValueError: If a slider cannot move the setting.
    """
    if isinstance(knob, Integer):
        return {"default": default, **_whole(knob, cast("int", value), cast("int", default), high, stops)}
    if isinstance(knob, Number):
        top = max(knob.slider_high or knob.high, cast("float", value))
        return {"default": default, "step": knob.step, "low": knob.low, "high": top, "typed_high": knob.high}
    if isinstance(knob, Choice):
        names = {key: label.say(language) for key, label in knob.options.items()}
        return {"default": [*names].index(str(default)), "step": 1, "low": 0, "high": len(names) - 1, "options": names}
    raise ValueError(f"knob must be a number or a choice that a slider can move, got {knob.name!r}")


def _whole(knob: Integer, value: int, default: int, high: int | None, stops: Sequence[int] | None) -> dict[str, Any]:
    # What was typed, or is a published model's, is on the track too.
    top = high or max(knob.slider_high or knob.high, value, default)
    allowed = [stop for stop in stops or knob.stops or () if stop <= top]
    if allowed and allowed[-1] < top and stops is None:
        allowed.append(top)  # the track's end can always be reached
    places: dict[str, Any] = {"stops": allowed} if allowed else {"step": 1}
    return {**places, "low": knob.low, "high": top, "typed_high": max(top, knob.high if high is None else top)}
