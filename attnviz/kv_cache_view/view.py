"""Every setting of the KV cache page, read from a link into one checked view."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from attnviz import config, inputs
from attnviz.knobs import Value
from attnviz.kv_cache_view.knobs import KNOBS, MODELS, MOST_SHOWN
from attnviz.presets import Preset
from attnviz.reading import Reader, Settled
from attnviz.text import Text

_FEWER = Text(
    "{name} was {got}, more than the sentence leaves (tokens shown: {tokens}); using {used}.",
    "{name}原为 {got}，超出句子 {tokens} 个 token 所允许的范围，改用 {used}。",
)
_NO_HEAD = Text("head {got} does not exist among {heads} heads; using {used}.",
                "{heads} 个头中没有第 {got} 个，改用 {used}。")  # fmt: skip
_CELL = Text("cell {got} lies outside the maps; nothing is selected.", "选中的格 {got} 在图外，已取消选择。")


class Scene(NamedTuple):
    """Hold what the decoding of a sentence depends on; every step of it is computed at once."""

    variant: str
    heads: int
    kv_heads: int
    d_k: int
    tokens: tuple[str, ...]
    prompt: int
    layout: str
    window: int
    sinks: int
    storage: str
    seed: int


@dataclass(frozen=True)
class View:
    """Hold every setting of the page, checked; names as in ``KNOBS``."""

    step: int
    prompt: int
    variant: str
    heads: int
    kv_heads: int
    d_k: int
    layout: str
    window: int
    sinks: int
    storage: str
    show: str
    head: int
    text: str
    seed: int
    cell: tuple[int, ...]
    model: str
    context: int
    batch: int
    cache_dtype: str
    weight_bits: str
    gpus: int
    windows: bool
    lengths: tuple[int, ...]
    block: int
    reserve: int
    decode_context: str
    source: str

    @property
    def tokens(self) -> tuple[str, ...]:
        """Give the tokens that come in: the first of the sentence, one empty token where there is none."""
        return _tokens(self.text)

    @property
    def source_tokens(self) -> tuple[str, ...]:
        """Give the tokens of the encoder's sentence."""
        return _tokens(self.source)

    @property
    def preset(self) -> Preset:
        """Give the published model."""
        return MODELS[self.model]

    @property
    def scene(self) -> Scene:
        """Give what the decoding depends on; what the layout and the variant do not use is left out."""
        window = self.window if self.layout != "full" else 0
        sinks = self.sinks if self.layout == "attention_sinks" else 0
        return Scene(
            self.variant, self.heads, self.kv_heads, self.d_k, self.tokens, self.prompt, self.layout, window, sinks,
            self.storage, self.seed,
        )  # fmt: skip


def _tokens(text: str) -> tuple[str, ...]:
    return inputs.tokenize(text)[:MOST_SHOWN] or ("",)


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, frozenset(KNOBS))
    for name, knob in KNOBS.items():
        if name == "kv_heads":
            _read_kv_heads(reader)
        elif name == "context":
            reader.read(name, knob, MODELS[cast("str", reader.values["model"])].max_context)
        else:
            reader.read(name, knob, () if name == "cell" else None)
    tokens = len(_tokens(cast("str", reader.values["text"])))
    _follow(reader, tokens)
    view = View(**{name: reader.values[name] for name in KNOBS})  # type: ignore[arg-type]
    # Two maps of the work or the weights, as many of vectors; a vector has no more entries than this.
    inside = len(view.cell) == 3 and view.cell[0] < 4 and view.cell[1] < tokens
    if view.cell and not inside:
        reader.follow("cell", (), _CELL)
        view = replace(view, cell=())
    return reader.settled(view)


def _follow(reader: Reader, tokens: int) -> None:
    """Bring what the sentence and the heads limit within their limits, and say so."""
    longest = max(1, tokens - 1)
    if cast("int", reader.values["prompt"]) > longest:
        _limit(reader, "prompt", longest, _FEWER, tokens=tokens)
    left = tokens - cast("int", reader.values["prompt"])
    if cast("int", reader.values["step"]) > left:
        _limit(reader, "step", left, _FEWER, tokens=tokens)
    heads = cast("int", reader.values["heads"])
    if cast("int", reader.values["head"]) >= heads:
        _limit(reader, "head", heads - 1, _NO_HEAD, heads=heads)


def _limit(reader: Reader, name: str, used: Value, note: Text, **fields: object) -> None:
    """Replace a value; of one that nobody asked for nothing is said."""
    if name in reader.given:
        reader.follow(name, used, note, **fields)
    reader.values[name] = used
    if name not in reader.given:
        reader.defaults[name] = used


def _read_kv_heads(reader: Reader) -> None:
    """Read the KV heads: fixed by MHA and MQA, not used by MLA, and a divisor of the heads for GQA."""
    heads, variant = cast("int", reader.values["heads"]), reader.values["variant"]
    fixed = {"mha": heads, "mqa": 1, "mla": 1}.get(cast("str", variant))
    if fixed is not None:
        # A number that the variant fixes is no setting: it stays in no link.
        reader.values["kv_heads"] = fixed
        reader.defaults["kv_heads"] = fixed
        reader.knobs["kv_heads"] = KNOBS["kv_heads"]
        return
    reader.read("kv_heads", KNOBS["kv_heads"], config.quarter(heads))
    reader.divide_heads(heads)
