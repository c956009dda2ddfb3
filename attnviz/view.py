"""One attention view: what a set of settings means, what it will cost, and the call it makes.

Link, session and live route hold the same thing, a mapping of parameter name to text. ``settle`` turns it into a
``View``: whatever cannot be read falls back to its default and is named in one sentence; settings that limit each other
follow, with a note.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import cast

from attnviz import device as devices
from attnviz import inputs, pins
from attnviz.families import FAMILIES
from attnviz.knobs import Integer, Value
from attnviz.masks import MASKS, Mask
from attnviz.masks.token_knobs import TOKENS
from attnviz.positions import POSITIONS, Position
from attnviz.reading import Reader, Settled
from attnviz.score_mods import SCORE_MODS, ScoreMod
from attnviz.settings import KNOBS, OWNERS, every_name, own_knobs
from attnviz.stage_list import present
from attnviz.text import Refusal, Text

# The values of the knobs that one mask, position encoding or score modification brings along.
OwnSettings = tuple[tuple[str, Value], ...]

NORMAL_LENGTH = 32
# Four numbers in a vector make the scale 1/2.
WORKED_SIZES: Mapping[str, int] = MappingProxyType({"length": 4, "d_k": 4, "heads": 1})

_FOLLOWS = Text(
    "{name} was {got}, which is more than the {limit} keys there are; using {used}.",
    "{name}原为 {got}，超过了现有的 {limit} 个键，改用 {used}。",
)
_NOT_SHARED = Text(
    "kv_heads was {got}; with MLA every head has keys and values of its own, so it is {used}.",
    "KV 头数（kv_heads）原为 {got}；MLA 的每个头都有自己的键和值，因此改为 {used}。",
)
_NO_LAYER = Text(
    "variant {got} makes its keys of token vectors, and the worked example has none; using {used}.",
    "“{got}”的键由 token 向量算出，而手算示例没有 token 向量；变体改为“{used}”。",
)
_ROTARY = Text(
    "{name} was {got}, which is more than d_k = {limit}; using {used}.",
    "{name}原为 {got}，超过了 d_k = {limit}，改用 {used}。",
)
_HEAD = Text(
    "head {got} does not exist among {heads} heads; showing all.", "共 {heads} 个头，没有“{got}”；改为显示全部。"
)
_PIN = Text("The pinned settings are dropped: {why}", "已取消固定：{why}")
_CELL = Text("cell {got} lies outside the map; nothing is selected.", "选中的格 {got} 在图外，已取消选择。")
_NO_VECTORS = Text(
    "position {got} is added to token vectors, and the worked example has none; using {used}.",
    "“{got}”要加在 token 向量上，而手算示例没有 token 向量；位置编码改为“{used}”。",
)
_STAGE = Text(
    "stage {got} is not part of these settings; showing {used}.", "当前设置下没有“{got}”这个阶段，改为显示“{used}”。"
)
_BY_HAND = Text(
    "backend {got} has no place for a mistake: it is computed step by step, by {used}.",
    "“{got}”无法演示错误，改用“{used}”。",
)
_DTYPE = Text("dtype {got} cannot be computed on {device}; using {used}.", "{device} 不能用 {got} 计算，改用 {used}。")


@dataclass(frozen=True)
class View:
    """Hold every setting of the attention view, checked and fitted to each other; names as in ``settings``."""

    attention: str
    input: str
    text: str
    context: str
    length: int
    key_length: int
    d_k: int
    variant: str
    variant_settings: OwnSettings
    heads: int
    kv_heads: int
    mask: str
    mask_settings: OwnSettings
    align: str
    position: str
    position_settings: OwnSettings
    score_mod: str
    score_mod_settings: OwnSettings
    scale: str
    mistake: str
    scale_value: float
    dropout: float
    backend: str
    dtype: str
    device: str
    seed: int
    stage: str
    head: str
    log: bool
    own_range: bool
    reduce: str
    cell: tuple[int, ...]
    compare: str
    pin: str

    @property
    def factor(self) -> float:
        """What the scores are multiplied by."""
        return {"auto": self.d_k**-0.5, "one": 1.0}.get(self.scale, self.scale_value)

    @property
    def drawn_heads(self) -> tuple[int, ...]:
        """The heads whose maps are drawn."""
        return tuple(range(self.heads)) if self.head in ("all", "mean") else (int(self.head),)

    @property
    def layer(self) -> str:
        """Key of the variant that is computed; among those with KV heads their number decides."""
        return FAMILIES[self.variant].variant(self.heads, self.kv_heads)

    @property
    def pinned(self) -> "View | None":
        """The view that was pinned, drawn as this one is; None where nothing is pinned."""
        if not self.pin:
            return None
        drawing = (
            (name, KNOBS[name].write(getattr(self, name))) for name in ("stage", "head", "log", "own_range", "reduce")
        )
        return _pinned(self.pin, tuple(drawing))

    def build_mask(self) -> Mask:
        """Build the mask with its settings."""
        return MASKS[self.mask].build(**dict(self.mask_settings))

    def build_position(self) -> Position | None:
        """Build the position encoding with its settings; None where there is none."""
        return None if self.position == "none" else POSITIONS[self.position].build(**dict(self.position_settings))

    def build_score_mod(self) -> ScoreMod | None:
        """Build the score modification with its settings; None where there is none."""
        return None if self.score_mod == "none" else SCORE_MODS[self.score_mod].build(**dict(self.score_mod_settings))

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that the view's call has, in order."""
        position = self.build_position()
        parts = {
            "waves": position is not None and position.waves is not None,
            "turn": position is not None and position.angles is not None,
            "change": self.score_mod != "none",
        }
        return present([name for name, there in parts.items() if there])

    def tokens(self, side: str = "query") -> tuple[str, ...] | None:
        """Give the tokens of one side, repeated to its length; None for random input."""
        if self.input != "sentence":
            return None
        own = side == "query" or self.attention == "self"
        return _tokens(self.text if own else self.context, self.length if own else self.key_length)


def repeat(tokens: tuple[str, ...], length: int) -> tuple[str, ...]:
    """Give ``length`` tokens, beginning again where they run out; no token at all counts as one empty one."""
    tokens = tokens or ("",)
    return (tokens * (length // len(tokens) + 1))[:length]


@lru_cache(maxsize=4)
def _tokens(text: str, length: int) -> tuple[str, ...]:
    return repeat(inputs.tokenize(text), length)


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view.

    Args:
        given: Parameter name → text (or value); missing ones take their default.

    Returns:
        The view with one sentence for each setting that could not be read (``problems``) and each that had to follow
        another one (``notes``). Never raises for any content of ``given``.
    """
    reader = Reader(given, every_name())
    _read_lengths(reader)
    for name in ("d_k", "heads"):
        reader.read(name, KNOBS[name], WORKED_SIZES[name] if reader.values["input"] == "worked" else None)
    own = {"variant_settings": tuple(_read_own(reader, "variant").items())}
    _read_kv_heads(reader)
    own |= {f"{choice}_settings": tuple(_read_own(reader, choice).items()) for choice in OWNERS if choice != "variant"}
    for name, knob in KNOBS.items():
        if name not in reader.values:
            reader.read(name, knob, () if name == "cell" else None)
    _fit(reader)
    _check_pin(reader)
    fields = {name: reader.values[name] for name in KNOBS}
    view = View(**fields, **own)  # type: ignore[arg-type]
    if view.stage not in view.stages:
        reader.follow("stage", "weights", _STAGE)
        view = replace(view, stage="weights")
    return reader.settled(view)


@lru_cache(maxsize=16)
def _pinned(pin: str, drawing: tuple[tuple[str, str], ...]) -> View:
    return settle(pins.read(pin) | dict(drawing)).view


def _check_pin(reader: Reader) -> None:
    """Drop a pin that cannot be read; without one there is nothing to compare with."""
    pin = cast("str", reader.values["pin"])
    if pin:
        try:
            problems = list(settle(pins.read(pin)).problems)
        except Refusal as refusal:
            problems = [refusal.text]
        if problems:
            reader.problems.append(_PIN.fill(why=problems[0]))
            reader.values["pin"] = ""
    if not reader.values["pin"]:
        reader.values["compare"] = reader.defaults["compare"]


def _read_lengths(reader: Reader) -> None:
    """Read the input; a sentence's own number of tokens is the default of its length."""
    for name in ("attention", "input", "text", "context"):
        reader.read(name, KNOBS[name])
    source = reader.values["input"]
    fixed = WORKED_SIZES["length"] if source == "worked" else NORMAL_LENGTH
    for name, text in (("length", "text"), ("key_length", "context")):
        natural = len(inputs.tokenize(str(reader.values[text]))) if source == "sentence" else fixed
        knob = cast("Integer", KNOBS[name])
        reader.read(name, knob, min(max(1, natural), knob.high))
    if reader.values["attention"] == "self":
        reader.values["key_length"] = reader.defaults["key_length"] = reader.values["length"]


def _read_kv_heads(reader: Reader) -> None:
    heads = cast("int", reader.values["heads"])
    kv_heads = cast("int", reader.read("kv_heads", KNOBS["kv_heads"], heads))
    shares = FAMILIES[cast("str", reader.values["variant"])].shares
    if shares:
        reader.divide_heads(heads)
    elif kv_heads != heads:
        reader.follow("kv_heads", heads, _NOT_SHARED, heads=heads)


def _read_own(reader: Reader, choice: str) -> dict[str, Value]:
    """Read a choice whose entries have knobs, and these; a mask's counts of tokens cannot exceed the keys there are."""
    chosen = cast("str", reader.read(choice, KNOBS[choice]))
    if choice == "position" and reader.values["input"] == "worked" and POSITIONS[chosen].build().waves is not None:
        reader.follow("position", "none", _NO_VECTORS)
        chosen = "none"
    if choice == "variant" and reader.values["input"] == "worked" and chosen != "grouped":
        reader.follow("variant", "grouped", _NO_LAYER)
        chosen = "grouped"
    keys = cast("int", reader.values["key_length"])
    entry, names = OWNERS[choice][chosen], own_knobs(choice, chosen)
    settings: dict[str, Value] = {}
    for (name, knob), own in zip(names.items(), entry.knobs, strict=True):
        counts_keys = choice == "mask" and isinstance(knob, Integer) and knob.unit == TOKENS
        most, note = (max(cast("Integer", knob).low, keys) if counts_keys else None), _FOLLOWS
        default = knob.default if most is None else min(cast("int", knob.default), most)
        if choice == "variant" and own.name == "rope":
            most, note = cast("int", reader.values["d_k"]), _ROTARY
            default = min(cast("int", knob.default), most // 6 * 2)
        value = reader.read(name, knob, default)
        if most is not None and cast("int", value) > most:
            reader.follow(name, most, note, limit=most)
        settings[own.name] = reader.values[name]
    try:
        entry.build(**settings)
    except Refusal as refusal:
        # Settings that are fine one by one and make no mask together, such as a tree in which a child comes first.
        reader.refuse_together(refusal.text, tuple(names))
        return {own.name: reader.values[name] for name, own in zip(names, entry.knobs, strict=True)}
    return settings


def _fit(reader: Reader) -> None:
    """Fit what is drawn to what there is."""
    values = reader.values
    heads, dtype, device = cast("int", values["heads"]), cast("str", values["dtype"]), cast("str", values["device"])
    if str(values["head"]).isdigit() and int(str(values["head"])) >= heads:
        reader.follow("head", "all", _HEAD, heads=heads)
    if dtype not in devices.dtypes(device):
        reader.follow("dtype", devices.default_dtype(device), _DTYPE, device=device)
    if values["mistake"] != "none" and values["backend"] != "eager":
        reader.follow("backend", "eager", _BY_HAND)
    cell = cast("tuple[int, ...]", values["cell"])
    limits = (heads, values["length"], values["key_length"])
    inside = all(index < cast("int", limit) for index, limit in zip(cell, limits, strict=False))
    if cell and (len(cell) < 2 or not inside):
        reader.follow("cell", (), _CELL)
