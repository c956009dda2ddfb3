"""The cost page's settings: one layer, how it is called, how many there are, and the published model that sets them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, cast

from attnviz import config
from attnviz.benchmark import Contestant
from attnviz.benchmark.pairs import PAIRS
from attnviz.hardware import HARDWARE
from attnviz.knobs import Choice, Integer, Knob, Lengths, Several, Value
from attnviz.presets import PRESETS, LayerKind, Preset
from attnviz.reading import Reader, Settled
from attnviz.text import Refusal, Text, same
from attnviz.variants import VARIANTS, Variant

SCENARIOS: Mapping[str, Text] = MappingProxyType(
    {
        "prefill": Text("prefill: the whole prompt at once", "预填充：一次处理整个提示"),
        "extend": Text("extend: {new} new tokens behind a cache", "续写：缓存之后加入 {new} 个新 token"),
        "speculative": Text(
            "speculative: {drafts} drafted tokens and one more", "投机解码：{drafts} 个草稿 token 再加一个"
        ),
        "decode": Text("decode: one token", "解码：一个 token"),
    }
)
_TOGETHER = Text("{heads} heads of {d_k}: {why}", "{heads} 个头、每头 {d_k} 维：{why}")
_KV_FOLLOW = Text(
    "{name} was {got}, which does not divide {heads} heads; using {used}.",
    "{name} 原为 {got}，不能整除 {heads} 个头，改用 {used}。",
)
_NO_CHOICE = Text(
    "{name} was {got}, which can be chosen only where a published model has layers of both kinds; using {used}.",
    "{name} 原为 {got}，只有同时含两种层的已公布模型才能选择，改用 {used}。",
)
KV_HEADS = "num_key_value_heads"
OWN = "own"
# What a published model sets.
SETS = ("pair", "heads", "kv_heads", "d_k", "width", "layers", "layer")

KNOBS: Mapping[str, Knob] = MappingProxyType(
    {
        knob.name: knob
        for knob in (
            Choice("model", Text("Published model", "已公布的模型"), OWN,
                   Text("Sets variant, heads, sizes and layers.", "按公布的数值设置变体、头数、维度和层数。"),
                   options={OWN: Text("– own sizes –", "– 自定义 –")}
                   | {key: preset.label for key, preset in PRESETS.items()}),
            Choice("pair", Text("Variant and how it is computed", "变体及其计算方式"), "gqa-sdpa",
                   options={key: same(pair.name) for key, pair in PAIRS.items()}),
            Integer("context", Text("Context", "上下文长度"), 4096, unit=same("tokens"), low=2, high=2**20,
                    slider_high=131_072,
                    stops=(128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)),
            Integer("heads", Text("Heads", "头数"), 32, low=1, high=256, slider_high=128,
                    stops=(1, 2, 4, 8, 16, 32, 64, 128)),
            Integer("d_k", same("d_k (head_dim)"), 128, low=8, high=512, slider_high=256,
                    stops=(8, 16, 32, 64, 128, 256)),
            Integer("kv_heads", Text("KV heads", "KV 头数"), 8, low=1, high=256, slider_high=128,
                    stops=(1, 2, 4, 8, 16, 32, 64, 128)),
            Integer("width", Text("Width of a token vector", "token 向量的维度"), 4096,
                    Text("hidden_size; heads times d_k where no model is chosen.",
                         "即 hidden_size；未选模型时为头数乘以 d_k。"), low=1, high=65_536),
            Integer("layers", Text("Layers", "层数"), 32, low=1, high=1000),
            Choice("layer", Text("Layer drawn", "所画的层"), "all",
                   options={"all": Text("all tokens", "全部 token"), "window": Text("window", "窗口")}),
            Integer("batch", Text("Batch", "批大小"), 1, low=1, high=1024, slider_high=256,
                    stops=(1, 2, 4, 8, 16, 32, 64, 128, 256)),
            Integer("new", Text("New tokens of extend", "续写的新 token 数"), 512, low=1, high=2**20),
            Integer("drafts", Text("Drafted tokens", "草稿 token 数"), 4, low=1, high=64),
            Integer("devices", Text("Devices that share the heads", "分摊各头的设备数"), 4, low=1, high=64),
            Lengths("lengths", Text("Lengths of an unequal batch", "不等长批次的各长度"), (4096, 1024, 512, 512), low=1,
                    high=2**20, most=32),
            Choice("dtype", Text("Data type", "数据类型"), "bfloat16",
                   options={name: same(name) for name in config.DTYPES}),
            Several("hardware", Text("Roofs", "屋顶线"), "rtx-4090,a100-80gb,h100,b200",
                    options={key: same(entry.short) for key, entry in HARDWARE.items()}, most=6),
        )
    }
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """Hold every setting of the page, checked; names as in ``KNOBS``."""

    model: str
    pair: str
    context: int
    heads: int
    d_k: int
    kv_heads: int
    width: int
    layers: int
    layer: str
    batch: int
    new: int
    drafts: int
    devices: int
    lengths: tuple[int, ...]
    dtype: str
    hardware: str

    @property
    def variant(self) -> Variant:
        """Give the variant."""
        return VARIANTS[PAIRS[self.pair].variant]

    @cached_property
    def sizes(self) -> Any:
        """Give the layer's configuration."""
        return self.contestant.config

    @cached_property
    def contestant(self) -> Contestant:
        """Give the whole layer as it is measured; a published model's has no biases."""
        layer = PAIRS[self.pair].contestant(self.heads, self.d_k, "layer")
        own = {"hidden_size": self.width, "head_dim": self.d_k}
        if shares(self.variant):
            own[KV_HEADS] = self.kv_heads
        model = PRESETS.get(self.model)
        rest = {} if model is None or model.variant != self.variant.key else _bare(model)
        rest.pop(KV_HEADS, None)
        return replace(layer, sizes={**rest, **layer.sizes, **own})

    @cached_property
    def preset(self) -> Preset | None:
        """Give the published model whose sizes all hold, or None."""
        preset = PRESETS.get(self.model)
        if preset is None or preset.variant != self.variant.key:
            return None
        alike = self.layers == published(preset)["layers"] and self.sizes == _layer(preset)
        return preset if alike else None

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """Give the layers that cache something, a published model's each as it is."""
        return (LayerKind(self.layers, None),) if self.preset is None else self.preset.kinds()

    @property
    def window(self) -> int | None:
        """Give how many tokens the layer that is drawn keeps; None is all."""
        return self.kinds[-1 if self.layer == "window" else 0].window

    def queries(self, scenario: str) -> int:
        """Give how many tokens ask in a scenario."""
        asked = {"prefill": self.context, "extend": self.new, "speculative": self.drafts + 1, "decode": 1}
        return min(asked[scenario], self.context)


def published(preset: Preset) -> dict[str, Value]:
    """Give what a published model sets, as ``SETS`` names it; layers without keys and values are not counted."""
    shape = preset.config
    found = {
        "pair": f"{preset.variant}-sdpa",
        "heads": shape.num_attention_heads,
        "kv_heads": getattr(shape, KV_HEADS, 1),
        "d_k": shape.head_dim,
        "width": shape.hidden_size,
        "layers": preset.full_layers + preset.sliding_layers,
        "layer": "all",
    }
    return {name: found[name] for name in SETS}


def _bare(preset: Preset) -> dict[str, Any]:
    """Give a model's sizes as published; its biases, of which most have none, are left out."""
    biases = {"biases": False} if any(knob.name == "biases" for knob in VARIANTS[preset.variant].knobs) else {}
    return {**preset.sizes, **biases}


def _layer(preset: Preset) -> Any:
    return VARIANTS[preset.variant].config(**_bare(preset))


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, frozenset(KNOBS))
    preset = PRESETS.get(cast("str", reader.read("model", KNOBS["model"])))
    usual = {} if preset is None else published(preset)
    for name, knob in KNOBS.items():
        if name not in ("model", "kv_heads", "width"):
            reader.read(name, knob, usual.get(name))
    reader.read("width", KNOBS["width"], usual.get("width", _wide(reader)))
    _read_kv_heads(reader, usual)
    view = _view(reader)
    try:
        view.sizes  # noqa: B018
    except Refusal as refusal:
        together = _TOGETHER.fill(heads=view.heads, d_k=view.d_k, why=refusal.text)
        reader.defaults |= {"kv_heads": usual.get("kv_heads", KNOBS["kv_heads"].default)}
        reader.refuse_together(together, ("heads", "d_k", "kv_heads"))
        if preset is None:
            reader.defaults["width"] = _wide(reader)
        reader.values["width"] = reader.defaults["width"]
        view = _view(reader)
    if len(view.kinds) == 1:
        if view.layer != "all":
            reader.follow("layer", "all", _NO_CHOICE)
        reader.knobs.pop("layer")
    return reader.settled(_view(reader))


def shares(variant: Variant) -> bool:
    """Say whether a variant's number of KV heads can be chosen."""
    return any(knob.name == KV_HEADS for knob in variant.knobs)


def _wide(reader: Reader) -> int:
    """Give the width of a token vector that the heads' widths add up to."""
    return cast("int", reader.values["heads"]) * cast("int", reader.values["d_k"])


def _read_kv_heads(reader: Reader, usual: Mapping[str, Value]) -> None:
    """Read the KV heads, a quarter of the heads where nothing is said; they follow the heads that they must divide."""
    heads = cast("int", reader.values["heads"])
    quarter = VARIANTS["gqa"].config(num_attention_heads=heads, hidden_size=heads).num_key_value_heads
    grouped = usual.get("heads") == heads and usual["pair"] == "gqa-sdpa"
    asked = cast("int", reader.read("kv_heads", KNOBS["kv_heads"], usual["kv_heads"] if grouped else quarter))
    if not shares(VARIANTS[PAIRS[str(reader.values["pair"])].variant]):
        reader.knobs.pop("kv_heads")
        return
    if heads % asked:
        reader.follow("kv_heads", config.nearest_divisor(asked, heads), _KV_FOLLOW, heads=heads)


def _view(reader: Reader) -> View:
    return View(**{name: reader.values[name] for name in KNOBS})  # type: ignore[arg-type]
