"""The cost page's settings, and what they come to: four ways to call a layer, split over devices, unequal batches."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from attnviz import config
from attnviz.benchmark import Contestant, Probe, Request
from attnviz.benchmark.pairs import PAIRS, options
from attnviz.cost import Cost, cost
from attnviz.device import default_device, dtypes
from attnviz.hardware import HARDWARE
from attnviz.knobs import Choice, Integer, Knob, Lengths, Several
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
_HEADS = Text(
    "Heads: {heads} cannot be shared equally by {devices} devices.", "{heads} 个头不能平均分给 {devices} 个设备。"
)
_KV_HEADS = Text(
    "KV heads: {heads} cannot be shared equally by {devices} devices: one number must divide the other.",
    "{heads} 个 KV 头不能平均分给 {devices} 个设备：两个数须有一个整除另一个。",
)
_KV_FOLLOW = Text(
    "{name} was {got}, which does not divide {heads} heads; using {used}.",
    "{name} 原为 {got}，不能整除 {heads} 个头，改用 {used}。",
)
KV_HEADS = "num_key_value_heads"
# What is measured here must end soon; what is longer stays predicted.
MOST_MEASURED = 1024

KNOBS: Mapping[str, Knob] = MappingProxyType(
    {
        knob.name: knob
        for knob in (
            Choice("pair", Text("Variant and how it is computed", "变体及其计算方式"), "gqa-sdpa", options=options()),
            Integer("context", Text("Context", "上下文长度"), 4096, unit=same("tokens"), low=2, high=2**20,
                    slider_high=131_072,
                    stops=(128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)),
            Integer("heads", Text("Heads", "头数"), 32, low=1, high=256, slider_high=128,
                    stops=(1, 2, 4, 8, 16, 32, 64, 128)),
            Integer("d_k", same("d_k (head_dim)"), 128, low=8, high=512, slider_high=256,
                    stops=(8, 16, 32, 64, 128, 256)),
            Integer("kv_heads", Text("KV heads", "KV 头数"), 8, low=1, high=256, slider_high=128,
                    stops=(1, 2, 4, 8, 16, 32, 64, 128)),
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

    pair: str
    context: int
    heads: int
    d_k: int
    kv_heads: int
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

    @property
    def sizes(self) -> Any:
        """Give the layer's configuration."""
        return self.contestant.config

    @property
    def contestant(self) -> Contestant:
        """Give the whole layer as it is measured."""
        whole = PAIRS[self.pair].contestant(self.heads, self.d_k, "layer")
        own = {KV_HEADS: self.kv_heads} if _shares(self.variant) else {}
        return replace(whole, sizes={**whole.sizes, **own})

    def queries(self, scenario: str) -> int:
        """Give how many tokens ask in a scenario."""
        asked = {"prefill": self.context, "extend": self.new, "speculative": self.drafts + 1, "decode": 1}
        return min(asked[scenario], self.context)


def settle(given: Mapping[str, object]) -> Settled[View]:
    """Turn settings as text into a checked view; never raises for any content of ``given``."""
    reader = Reader(given, frozenset(KNOBS))
    for name, knob in KNOBS.items():
        if name != "kv_heads":
            reader.read(name, knob)
    _read_kv_heads(reader)
    view = _view(reader)
    try:
        view.sizes  # noqa: B018
    except Refusal as refusal:
        together = _TOGETHER.fill(heads=view.heads, d_k=view.d_k, why=refusal.text)
        reader.defaults["kv_heads"] = KNOBS["kv_heads"].default
        reader.refuse_together(together, ("heads", "d_k", "kv_heads"))
        view = _view(reader)
    return reader.settled(view)


def _shares(variant: Variant) -> bool:
    """Say whether a variant's number of KV heads can be chosen."""
    return any(knob.name == KV_HEADS for knob in variant.knobs)


def _read_kv_heads(reader: Reader) -> None:
    """Read the KV heads, a quarter of the heads where nothing is said; they follow the heads that they must divide."""
    heads = cast("int", reader.values["heads"])
    usual = VARIANTS["gqa"].config(num_attention_heads=heads, hidden_size=heads).num_key_value_heads
    asked = cast("int", reader.read("kv_heads", KNOBS["kv_heads"], usual))
    if not _shares(VARIANTS[PAIRS[str(reader.values["pair"])].variant]):
        reader.knobs.pop("kv_heads")
        return
    if heads % asked:
        reader.follow("kv_heads", config.nearest_divisor(asked, heads), _KV_FOLLOW, heads=heads)


def _view(reader: Reader) -> View:
    return View(**{name: reader.values[name] for name in KNOBS})  # type: ignore[arg-type]


def priced(view: View, scenario: str, dtype: str | None = None) -> Cost:
    """Give what the layer costs in a scenario, in the view's data type or another."""
    other = view if dtype is None else replace(view, dtype=dtype)
    return _of(other, view.sizes, view.queries(scenario), view.context, view.batch)


def _of(view: View, sizes: Any, q_len: int, kv_len: int, batch: int) -> Cost:
    backend = PAIRS[view.pair].backend
    return cost(view.variant, sizes, q_len=q_len, kv_len=kv_len, batch=batch, dtype=view.dtype, backend=backend)


class Share(NamedTuple):
    """Hold what one of several devices takes when the heads are split among them.

    Args:
        devices: How many take part.
        kv_heads: KV heads that each holds, None where a latent or a state takes their place.
        one: Costs of one device in the scenario of prefill.
        step: The same for decode.
        reduced_bytes: What each sends and receives in one prefill to add up the outputs, by a ring.
        step_bytes: The same for one step of decoding.
    """

    devices: int
    kv_heads: int | None
    one: Cost
    step: Cost
    reduced_bytes: int
    step_bytes: int


def split(view: View) -> Share:
    """Split the heads over the view's devices.

    Each device holds its heads' columns of query, key and value and rows of the output matrix, so that one sum over
    all devices ends the layer. Where KV heads are fewer than the devices, each is held by several; what all heads
    share, such as a latent, is held by all.

    Raises:
        Refusal: If the devices do not divide the heads, or neither of KV heads and devices divides the other.

    Source:
        Shoeybi et al. 2019, Megatron-LM, section 3, https://arxiv.org/abs/1909.08053
        Bytes of a ring: Patarasuk, Yuan 2009, https://doi.org/10.1016/j.jpdc.2008.09.002
    """
    if view.heads % view.devices:
        raise Refusal(_HEADS.fill(heads=view.heads, devices=view.devices))
    whole, heads = view.sizes, view.heads // view.devices
    own = {"hidden_size": whole.hidden_size, "num_attention_heads": heads, "head_dim": whole.head_dim}
    kv_heads = None
    if _shares(view.variant):
        shared = whole.num_key_value_heads
        if shared % view.devices and view.devices % shared:
            raise Refusal(_KV_HEADS.fill(heads=shared, devices=view.devices))
        kv_heads = max(1, shared // view.devices)
        own[KV_HEADS] = kv_heads
    for name in ("kv_lora_rank", "qk_rope_head_dim", "v_head_dim"):
        if hasattr(whole, name):
            own[name] = getattr(whole, name)
    part = view.variant.config(**own)
    one, step = (_of(view, part, q_len, view.context, view.batch) for q_len in (view.context, 1))
    row = view.batch * whole.hidden_size * config.dtype_size(view.dtype)
    ring = [2 * (view.devices - 1) * row * n // view.devices for n in (view.context, 1)]
    return Share(view.devices, kv_heads, one, step, *ring)


class Batch(NamedTuple):
    """Hold what sequences take together: tokens, FLOPs of prefilling them, bytes cached, bytes moved by one step."""

    tokens: int
    flops: int
    cache_bytes: int
    step_bytes: int


class Unequal(NamedTuple):
    """Hold a batch of unequal lengths, padded to the longest and each at its own length."""

    padded: Batch
    packed: Batch


def unequal(view: View) -> Unequal:
    """Give what padding costs; both ways one step of decoding reads the weights once for the whole batch."""
    longest = max(view.lengths)
    return Unequal(*(_together(view, lengths) for lengths in ((longest,) * len(view.lengths), view.lengths)))


def _together(view: View, lengths: tuple[int, ...]) -> Batch:
    prompts = [_of(view, view.sizes, length, length, 1) for length in lengths]
    steps = [_of(view, view.sizes, 1, length, 1) for length in lengths]
    moved = steps[0].weight_bytes + sum(step.bytes_moved - step.weight_bytes for step in steps)
    flops, cached = sum(one.flops for one in prompts), sum(one.kv_cache_bytes for one in prompts)
    return Batch(sum(lengths), flops, cached, moved)


def probe(view: View) -> Probe:
    """Give what asks for the speed of the fastest device here; a CPU is measured in float32, its best type."""
    device = default_device()
    known = device != "cpu" and view.dtype in dtypes(device)
    return Probe(view.dtype if known else "float32", device=device)


def measurable(view: View) -> tuple[Request, ...]:
    """Give a request for each scenario on this machine: one sequence, with a context that ends soon."""
    context = min(view.context, MOST_MEASURED)
    own = probe(view)
    shared = {"dtype": own.dtype, "device": own.device, "budget_s": 0.5, "rounds": 7}
    return tuple(Request((view.contestant,), min(view.queries(name), context), context, **shared) for name in SCENARIOS)
