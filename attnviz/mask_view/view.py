"""What a set of settings of the masks page means: a mask, or two joined, over a grid."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from attnviz.knobs import Integer, Knob, Value
from attnviz.mask_view.settings import HEADS, KNOBS, LENGTHS, every_name, mask_knobs, mod_knobs, other_knobs
from attnviz.mask_view.survey import Look
from attnviz.masks import MASKS, Mask
from attnviz.masks.token_knobs import TOKENS
from attnviz.reading import Reader, Settled
from attnviz.score_mods import SCORE_MODS, ScoreMod
from attnviz.text import Refusal, Text

# Tiles drawn along one side at most.
MOST_TILES = 512
# A mask that looks at the batch but brings no lengths is shown for so many sequences.
SEQUENCES = 4

_FOLLOWS = Text(
    "{name} was {got}, which is more than the {limit} keys there are; using {used}.",
    "{name}原为 {got}，超过了现有的 {limit} 个键，改用 {used}。",
)
_PLACE = Text(
    "{name} was {got}, but this view has {limit}; using {used}.",
    "{name}原为 {got}，但此处只有 {limit} 个，改用 {used}。",
)
_TILE = Text(
    "tile was {got}: more than {limit} tiles along a side cannot be told apart; using {used}.",
    "块的边长原为 {got}：一边超过 {limit} 个块时无法分辨，改用 {used}。",
)
_OUTSIDE = Text("{name} {got} lies outside the picture; nothing is selected.", "{name}{got} 在图外，已取消选择。")

Settings = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class View:
    """Hold every setting of the masks page, checked and fitted to each other; names as in ``settings``.

    ``batch`` is the number of sequences, ``mask_settings``, ``other_settings`` and ``mod_settings`` are the values of
    the knobs that the masks and the score change bring.
    """

    section: str
    mask: str
    length: int
    key_length: int
    align: str
    invert: bool
    join: str
    other: str
    score_mod: str
    sequence: int
    head: int
    tile: int
    layers: int
    convention: str
    empty: bool
    form: str
    seed: int
    cell: tuple[int, ...]
    picked: tuple[int, ...]
    mask_settings: Settings
    other_settings: Settings
    mod_settings: Settings
    batch: int

    @property
    def look(self) -> Look:
        """The grid that is drawn."""
        return Look(self.length, self.key_length, self.align, self.batch, self.sequence, self.head)

    @property
    def is_square(self) -> bool:
        """There are as many keys as queries."""
        return self.length == self.key_length

    def build_mask(self) -> Mask:
        """Build the mask, joined with the second and turned around as asked."""
        return joined(self, MASKS[self.mask].build(**dict(self.mask_settings)), self._second())

    def build_score_mod(self) -> ScoreMod:
        """Build the change of the scores."""
        return SCORE_MODS[self.score_mod].build(**dict(self.mod_settings))

    def _second(self) -> Mask | None:
        return None if self.join == "none" else MASKS[self.other].build(**dict(self.other_settings))

    @property
    def heads(self) -> int:
        """How many heads there are to choose from: one where all are alike."""
        return HEADS if self.build_score_mod().bias is not None or self.build_mask().per_head else 1

    def resized(self, length: int, key_length: int) -> "View":
        """Give the view over another grid, with nothing selected."""
        return replace(self, length=length, key_length=key_length, cell=(), picked=())


def joined(view: View, first: Mask, second: Mask | None) -> Mask:
    """Join two masks as the view says; ``invert`` turns the result around."""
    made = first
    if second is not None:
        made = first & second if view.join == "and" else first | second if view.join == "or" else first & ~second
    return ~made if view.invert else made


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view.

    Args:
        given: Parameter name → text (or value); missing ones take their default.

    Returns:
        The view with one sentence for each setting that could not be read (``problems``) and each that had to follow
        another one (``notes``). Never raises for any content of ``given``.
    """
    reader = Reader(given, every_name())
    for name in ("section", "mask", "length"):
        reader.read(name, KNOBS[name])
    reader.read("key_length", KNOBS["key_length"], reader.values["length"])
    for name in ("align", "invert", "join", "other", "score_mod"):
        reader.read(name, KNOBS[name])
    joins = reader.values["join"] != "none"
    own = _read_mask(reader, cast("str", reader.values["mask"]), mask_knobs)
    other = _read_mask(reader, cast("str", reader.values["other"]), other_knobs) if joins else {}
    kind = SCORE_MODS[reader.values["score_mod"]]
    mod = {k.name: reader.read(name, k) for k, name in zip(kind.knobs, mod_knobs(kind.key), strict=True)}
    for name, knob in KNOBS.items():
        if name not in reader.values:
            reader.read(name, knob, () if name in ("cell", "picked") else None)
    batch = _fit(reader, own, other, kind.build(**mod))
    fields = {name: reader.values[name] for name in KNOBS}
    settings = {"mask_settings": own, "other_settings": other, "mod_settings": mod}
    parts = {name: tuple(values.items()) for name, values in settings.items()}
    return reader.settled(View(**fields, **parts, batch=batch))  # type: ignore[arg-type]


def _read_mask(reader: Reader, mask: str, names: Callable[[str], dict[str, Knob]]) -> dict[str, Value]:
    """Read a mask's knobs; counts of tokens cannot exceed the keys there are."""
    knobs = names(mask)
    keys = cast("int", reader.values["key_length"])
    settings: dict[str, Value] = {}
    for (name, knob), own in zip(knobs.items(), MASKS[mask].knobs, strict=True):
        counts_keys = isinstance(knob, Integer) and knob.unit == TOKENS
        most = max(cast("Integer", knob).low, keys) if counts_keys else None
        default = LENGTHS.get(mask, knob.default) if own.name == "lengths" else knob.default
        value = reader.read(name, knob, default if most is None else min(cast("int", default), most))
        if most is not None and cast("int", value) > most:
            reader.follow(name, most, _FOLLOWS, limit=keys)
        settings[own.name] = reader.values[name]
    try:
        MASKS[mask].build(**settings)
    except Refusal as refusal:
        # Settings that are fine one by one and make no mask together, and a rule that is none.
        reader.refuse_together(refusal.text, tuple(knobs))
        return {own.name: reader.values[name] for name, own in zip(knobs, MASKS[mask].knobs, strict=True)}
    return settings


def _batch(masks: Mapping[str, Mapping[str, Value]], mask: Mask) -> int:
    """Give how many sequences there are: as many as every padding has lengths for."""
    lengths = [len(cast("tuple[int, ...]", values["lengths"])) for key, values in masks.items() if key == "padding"]
    return min(lengths) if lengths else SEQUENCES if mask.per_batch else 1


def _fit(reader: Reader, own: Mapping[str, Value], other: Mapping[str, Value], mod: ScoreMod) -> int:
    """Fit what is drawn to what there is, and give the number of sequences."""
    values = reader.values
    chosen = [(cast("str", values["mask"]), own)]
    chosen += [(cast("str", values["other"]), other)] if values["join"] != "none" else []
    built = [MASKS[key].build(**settings) for key, settings in chosen]
    sizes = [_batch({key: settings}, mask) for (key, settings), mask in zip(chosen, built, strict=True)]
    batch = min((size for size, mask in zip(sizes, built, strict=True) if mask.per_batch), default=1)
    heads = HEADS if mod.bias is not None or any(mask.per_head for mask in built) else 1
    for name, limit in (("sequence", batch), ("head", heads)):
        if cast("int", values[name]) >= limit:
            reader.follow(name, limit - 1, _PLACE, limit=limit)
    longest = max(cast("int", values["length"]), cast("int", values["key_length"]))
    least = -(-longest // MOST_TILES)
    if values["section"] == "blocks" and cast("int", values["tile"]) < least:
        reader.follow("tile", least, _TILE, limit=MOST_TILES)
    tile = cast("int", values["tile"])
    sides = (cast("int", values["length"]), cast("int", values["key_length"]))
    for name, limits in (("cell", sides), ("picked", tuple(-(-side // tile) for side in sides))):
        place = cast("tuple[int, ...]", values[name])
        inside = all(index < limit for index, limit in zip(place, limits, strict=False))
        if place and (len(place) < (1 if name == "cell" else 2) or not inside):
            reader.follow(name, (), _OUTSIDE)
    return batch
