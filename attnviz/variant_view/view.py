"""The variants page's settings as one view: what a link means, and what follows where two settings do not fit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from attnviz import config, inputs
from attnviz.presets import PRESETS, Preset
from attnviz.reading import Reader, Settled
from attnviz.text import Text
from attnviz.variant_view.settings import ABREAST, KNOBS, LAYERS, MOST_MAPS, MOST_SHOWN, PAGE, SIZES, shows, variant_of

_CELL = Text("cell {got} lies outside the maps; nothing is selected.", "选中的格 {got} 在图外，已取消选择。")


@dataclass(frozen=True)
class View:
    """Hold every setting of the page, checked; names as in ``KNOBS``."""

    model: str
    variant: str
    heads: int
    kv_heads: int
    latent: int
    rope: int
    d_k: int
    width: int
    layers: int
    context: int
    dtype: str
    method: str
    show: str
    text: str
    seed: int
    wanted: str
    timed: str
    cell: tuple[int, ...]
    first: int

    @property
    def tokens(self) -> tuple[str, ...]:
        """Give the tokens drawn: the first of the sentence, one empty token where there is none."""
        return inputs.tokenize(self.text)[:MOST_SHOWN] or ("",)

    @property
    def most_shown(self) -> int:
        """Give how many heads are drawn at once."""
        if self.show == "compare":
            return min(ABREAST, self.heads)
        return self.heads if self.heads <= MOST_MAPS else PAGE

    @property
    def shown(self) -> range:
        """Give the heads that are drawn."""
        first = min(self.first, self.heads - self.most_shown)
        return range(first, first + self.most_shown)

    @property
    def preset(self) -> Preset | None:
        """Give the published model whose sizes all hold, or None."""
        preset = PRESETS.get(self.model)
        if preset is None:
            return None
        wanted = sizes(preset)
        return preset if wanted == {name: getattr(self, name) for name in wanted} else None


def sizes(preset: Preset) -> dict[str, int | str]:
    """Give what a published model sets; layers without keys and values are not among its layers."""
    shape = preset.config
    variant = variant_of(preset)
    own = (
        {"latent": shape.kv_lora_rank, "rope": shape.qk_rope_head_dim, "d_k": shape.qk_nope_head_dim}
        if variant == "mla"
        else {"kv_heads": shape.num_key_value_heads, "d_k": shape.head_dim}
    )
    found = own | {
        "variant": variant,
        "heads": shape.num_attention_heads,
        "width": shape.hidden_size,
        "layers": preset.full_layers + preset.sliding_layers,
        "context": preset.max_context,
    }
    return {name: found[name] for name in SIZES[variant]}


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, frozenset(KNOBS))
    model = PRESETS.get(cast("str", reader.read("model", KNOBS["model"])))
    published = {} if model is None else sizes(model)
    for name, knob in KNOBS.items():
        if name == "kv_heads":
            _read_kv_heads(reader, published)
        elif name == "show":
            reader.read(name, shows(cast("str", reader.values["variant"])))
        elif name not in ("model", "first"):
            reader.read(name, knob, () if name == "cell" else published.get(name))
    view = View(**{name: reader.values.get(name, 0) for name in KNOBS})  # type: ignore[arg-type]
    # The last is the layer, of three side by side.
    limits = (view.heads, len(view.tokens), len(view.tokens), LAYERS)
    inside = all(index < limit for index, limit in zip(view.cell, limits, strict=False))
    if view.cell and (len(view.cell) < len(limits) - 1 or not inside):
        reader.follow("cell", (), _CELL)
        view = replace(view, cell=())
    return reader.settled(replace(view, first=_read_first(reader, view)))


def _read_first(reader: Reader, view: View) -> int:
    """Read which heads are drawn where not all are: those around the selected one, unless others are asked for.

    They end with the last head there is, without a word: a slider of heads would say it at every step.
    """
    # Where all are drawn, it is kept for the way back to side by side.
    most = view.most_shown if view.most_shown < view.heads else min(ABREAST, view.heads)
    latest = view.heads - most
    usual = min(latest, view.cell[0] // most * most) if view.cell else 0
    first = min(latest, cast("int", reader.read("first", KNOBS["first"], usual)))
    reader.values["first"] = first
    return first


def _read_kv_heads(reader: Reader, published: Mapping[str, int | str]) -> None:
    """Read the KV heads, which divide the heads that were read before."""
    heads = cast("int", reader.values["heads"])
    same = published.get("heads") == heads
    default = cast("int", published.get("kv_heads", config.quarter(heads)) if same else config.quarter(heads))
    reader.read("kv_heads", KNOBS["kv_heads"], default)
    # Without meaning, what it follows to is kept for the way back, and nobody needs to hear of it.
    reader.divide_heads(heads, note=reader.values["variant"] == "grouped")
