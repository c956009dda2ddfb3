"""Settings of the flash page as text, read into a checked view."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from attnviz.flash_view.settings import KNOBS, MOST_TILES, every_name, mask_knobs
from attnviz.flash_view.view import View
from attnviz.flash_view.walk import walk
from attnviz.knobs import Integer, Value
from attnviz.masks import MASKS
from attnviz.masks.token_knobs import TOKENS
from attnviz.reading import Reader, Settled
from attnviz.text import Refusal, Text

# Before anyone moves it, so much of the walk is done: the last block of queries is under way.
SHOWN = 0.92

_FOLLOWS = Text(
    "{name} was {got}, which is more than the {limit} keys there are; using {used}.",
    "{name}原为 {got}，超过了现有的 {limit} 个键，改用 {used}。",
)
_TILE = Text(
    "{name} was {got}: more than {limit} tiles along a side cannot be told apart; using {used}.",
    "{name}原为 {got}：一边超过 {limit} 个块时无法分辨，改用 {used}。",
)
_ROW = Text(
    "{name} was {got}, but the rows of a block are 0 to {used}; using {used}.",
    "{name}原为 {got}，但一块中的行只有 0 到 {used}，改用 {used}。",
)
_ONE = Text(
    "{name} was {got}: this page shows one sequence; using the first, {used}.",
    "{name}原为 {got}：本页只显示一个序列，改用第一个，即 {used}。",
)
_STEP = Text(
    "{name} was {got}, but the last step of this walk is {limit}; using {used}.",
    "{name}原为 {got}，但这里的最后一步是第 {limit} 步，改用 {used}。",
)


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, every_name())
    for name in ("mask", "length"):
        reader.read(name, KNOBS[name])
    reader.read("key_length", KNOBS["key_length"], reader.values["length"])
    own = _read_mask(reader)
    for side, name in (("length", "tile_rows"), ("key_length", "tile_cols")):
        length = cast("int", reader.values[side])
        least = -(-length // MOST_TILES)
        # A tile that is too small for a length is followed by one that is not, at its default without a word.
        reader.read(name, KNOBS[name], max(least, min(cast("int", KNOBS[name].default), length)))
        if cast("int", reader.values[name]) < least:
            reader.follow(name, least, _TILE, limit=MOST_TILES)
    rows = min(cast("int", reader.values["tile_rows"]), cast("int", reader.values["length"]))
    reader.read("row", KNOBS["row"], rows - 1)
    if cast("int", reader.values["row"]) >= rows:
        reader.follow("row", rows - 1, _ROW)
    for name, knob in KNOBS.items():
        if name not in (*reader.values, "step"):
            reader.read(name, knob)
    fields = {name: reader.values.get(name, 0) for name in KNOBS}
    view = View(**fields, mask_settings=tuple(own.items()))  # type: ignore[arg-type]
    steps = walk(view).steps
    reader.read("step", KNOBS["step"], min(steps, max(1, int(SHOWN * steps))))
    if cast("int", reader.values["step"]) > steps:
        reader.follow("step", steps, _STEP, limit=steps)
    return reader.settled(replace(view, step=cast("int", reader.values["step"])))


def _read_mask(reader: Reader) -> dict[str, Value]:
    """Read the mask's knobs; counts of tokens cannot exceed the keys there are."""
    mask, keys = cast("str", reader.values["mask"]), cast("int", reader.values["key_length"])
    names = mask_knobs(mask)
    settings: dict[str, Value] = {}
    for (name, knob), own in zip(names.items(), MASKS[mask].knobs, strict=True):
        most = max(knob.low, keys) if isinstance(knob, Integer) and knob.unit == TOKENS else None
        value = reader.read(name, knob, knob.default if most is None else min(cast("int", knob.default), most))
        if most is not None and cast("int", value) > most:
            reader.follow(name, most, _FOLLOWS, limit=keys)
        settings[own.name] = reader.values[name]
    if mask == "padding" and len(cast("tuple[int, ...]", settings["lengths"])) > 1:
        reader.follow("lengths", cast("tuple[int, ...]", settings["lengths"])[:1], _ONE)
        settings["lengths"] = reader.values["lengths"]
    try:
        MASKS[mask].build(**settings)
    except Refusal as refusal:
        # Settings that are fine one by one and make no mask together, and a rule that is none.
        reader.refuse_together(refusal.text, tuple(names))
        return {own.name: reader.values[name] for name, own in zip(names, MASKS[mask].knobs, strict=True)}
    return settings
