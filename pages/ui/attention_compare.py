"""The large picture: the view on screen, the pinned one, or one minus the other."""

from typing import NamedTuple

from attnviz import pictures
from attnviz.comparison import Side, difference
from attnviz.knobs import Choice, Words
from attnviz.pictures import Picture
from attnviz.pins import DRAWING
from attnviz.settings import KNOBS, OWNERS
from attnviz.stage_list import STAGES
from attnviz.view import View
from attnviz.view_run import run
from pages.ui.attention_requests import map_keys, requests

Span = tuple[int, int]


class Large(NamedTuple):
    """Hold the large picture, the view that names its axes, the keys of its maps, and whether values have a sign."""

    view: View
    keys: tuple[str, ...]
    picture: Picture
    signed: bool


def _views(view: View) -> tuple[View, ...]:
    """Give the views whose maps are drawn; of two the second is taken away from the first."""
    pinned = view.pinned
    if pinned is None or view.compare == "now":
        return (view,)
    return (pinned,) if view.compare == "pinned" else (view, pinned)


def keys(view: View) -> tuple[str, ...]:
    """Give the keys of the maps that can be drawn; none where the pinned view has nothing to compare with."""
    views = _views(view)
    if any(each.stage != view.stage for each in views):
        return ()
    return tuple(key for key in map_keys(views[0]) if all(key in map_keys(each) for each in views))


def extent(view: View) -> tuple[int, int]:
    """Give the rows and columns of the large picture; two views share those that both have, from the first on."""
    rows, cols = zip(*(run(each)[0].extent(view.stage) for each in _views(view)), strict=True)
    return min(rows), min(cols)


def large(view: View, rows: Span | None = None, cols: Span | None = None, key: str | None = None) -> Large:
    """Compute the large picture.

    Args:
        view: A settled view with at least one of ``keys``.
        rows: Region of the first axis; None is all of it.
        cols: Region of the second axis.
        key: The only map wanted; None gives all.
    """
    views, wanted = _views(view), keys(view) if key is None else (key,)
    spans = tuple(span or (0, length) for span, length in zip((rows, cols), extent(view), strict=True))
    whole = requests(views[0])[0]
    heads = tuple(each.drawn_heads if each.head == "mean" else tuple(map(int, wanted)) for each in views)
    asked = pictures.Request(whole.stage, heads[0], whole.max_side, whole.reduce, whole.average, *spans)
    sides = [Side(*run(each), its) for each, its in zip(views, heads, strict=True)]
    if len(sides) > 1:
        return Large(view, wanted, difference(sides, asked), True)
    drawn = pictures.draw(sides[0].call, [asked], sides[0].ran).pictures[0]
    return Large(views[0], wanted, drawn, STAGES[view.stage].signed)


def changed(view: View, language: str) -> list[str]:
    """Say which settings differ from the pinned ones, each with its pinned value and the one now."""
    pinned = view.pinned
    if pinned is None:
        return []
    said = []
    for name, knob in KNOBS.items():
        was, now = getattr(pinned, name), getattr(view, name)
        follows = name == "key_length" and pinned.attention == view.attention == "self"
        if was == now or name in DRAWING or follows:
            continue
        label = knob.label.say(language)
        if isinstance(knob, Words):
            said.append(label)
            continue
        before, after = (
            knob.options[v].say(language) if isinstance(knob, Choice) else knob.write(v) for v in (was, now)
        )
        said.append(f"{label} {before} → {after}")
    for choice in OWNERS:
        before, after = (dict(getattr(each, f"{choice}_settings")) for each in (pinned, view))
        if getattr(pinned, choice) == getattr(view, choice):
            said += [f"{name} {before[name]} → {after[name]}" for name in after if before[name] != after[name]]
    return said
