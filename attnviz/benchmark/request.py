"""What is to be measured: contestants at one shared shape, checked, and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from attnviz.config import check_size, dtype_size
from attnviz.masks import MASKS
from attnviz.text import Refusal, Text
from attnviz.variants import VARIANTS

WHATS = ("core", "layer", "decode")
KVS = ("packed", "expanded")
PASSES = ("forward", "forward+backward")
# What the page and the command line call a pass too: one token's forward pass behind a cache.
DECODE = "decode"
# torch's own kernels of its fused call; "auto" lets torch choose.
KERNELS = ("auto", "math", "flash", "efficient")
MOST_CONTESTANTS = 24
MOST_LENGTH = 2**24
MOST_THREADS = 256

_ONE_OF = Text("{name} must be one of {options}, got {value}.", "{name} 应为以下之一：{options}，收到的是 {value}。")
_RANGE = Text("{name} must lie in {low} … {high}, got {value}.", "{name} 应在 {low} … {high} 之间，收到的是 {value}。")
_CONTESTANTS = Text(
    "contestants must be 1 to {most} contestants, got {value}.",
    "contestants 应为 1 到 {most} 个参赛者，收到的是 {value}。",
)
_UNKNOWN = Text("{name} is not a field of a {kind}.", "{kind} 没有 {name} 这个字段。")
_BACKWARD = Text(
    "a decode step is measured forward only: nothing is trained token by token.",
    "解码步只测前向：训练不会逐 token 进行。",
)


@dataclass(frozen=True)
class Contestant:
    """Name one thing that is timed and weighed.

    Args:
        variant: Key of ``VARIANTS``.
        backend: One of the variant's backends or forms; None is its first.
        sizes: What the variant's ``config`` is given.
        what: ``core`` attends with random query, key and value, without projections (for a variant whose own form has
            no such core: the layer). ``layer`` is the whole call with its projections; where ``q_len < kv_len`` the
            other tokens come from a cache. ``decode`` is the layer's step for one token that sees ``kv_len`` tokens.
        kv: ``packed``: heads that share keys and values are computed together, MLA absorbs. ``expanded``: keys and
            values are first made for every head, as plain code does it.
        cached: For ``decode``: False has all ``kv_len`` tokens go through the layer again.
        kernel: For the backend ``sdpa``: one of ``KERNELS``.
        label: How it is called in results; empty takes variant and backend.

    Raises:
        Refusal: If a field breaks its rule, a size one of the variant's.
    """

    variant: str
    backend: str | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)
    what: str = "core"
    kv: str = "packed"
    cached: bool = True
    kernel: str = "auto"
    label: str = ""

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, tuple(VARIANTS))
        check_choice("what", self.what, WHATS)
        check_choice("kv", self.kv, KVS)
        check_choice("kernel", self.kernel, KERNELS)
        variant = VARIANTS[self.variant]
        object.__setattr__(self, "backend", variant.pick(self.backend))
        if not isinstance(self.sizes, Mapping):
            raise Refusal(_ONE_OF.fill(name="sizes", options="a mapping", value=repr(self.sizes)[:40]))
        object.__setattr__(self, "sizes", MappingProxyType(dict(self.sizes)))
        variant.config(**self.sizes)
        object.__setattr__(self, "label", str(self.label)[:80] or f"{self.variant} · {self.backend}")

    @property
    def config(self) -> Any:
        """Give the variant's configuration of these sizes; one with a form of its own is told to expand."""
        form = {"form": "expanded"} if self.kv == "expanded" and self.has_form else {}
        return VARIANTS[self.variant].config(**{**self.sizes, **form})

    @property
    def has_form(self) -> bool:
        """Say whether the variant itself has an expanded form, so that nothing has to be repeated for it."""
        return any("expanded" in getattr(knob, "options", ()) for knob in VARIANTS[self.variant].knobs)


@dataclass(frozen=True)
class Request:
    """Say what is measured: contestants in turn, round by round, at one shape.

    Args:
        contestants: Ratios are taken to the first.
        q_len: Tokens that ask.
        kv_len: Tokens attended to; None is ``q_len``.
        batch: Sequences.
        dtype: As torch has it.
        threads: Of torch on the CPU.
        device: One of ``device.present()``.
        mask: Key of ``MASKS``, with its own defaults or ``mask_knobs``. A backend that keeps the score matrix is given
            it as a matrix that was made before.
        mask_knobs: Settings of the mask.
        mode: One of ``PASSES``.
        rounds: Most rounds that are timed.
        budget_s: Seconds after which no new round begins, three rounds at least.
        limit_s: Seconds after which the request ends as a ``Failure``.
        memory: Whether the peak is measured too, in a pass of its own.

    Raises:
        Refusal: If a field breaks its rule.
    """

    contestants: Sequence[Contestant]
    q_len: int
    kv_len: int | None = None
    batch: int = 1
    dtype: str = "float32"
    threads: int = 1
    device: str = "cpu"
    mask: str = "full"
    mask_knobs: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "forward"
    rounds: int = 21
    budget_s: int | float = 3.0
    limit_s: int | float = 60.0
    memory: bool = True

    def __post_init__(self) -> None:
        entrants = tuple(self.contestants)
        if not 1 <= len(entrants) <= MOST_CONTESTANTS or not all(isinstance(one, Contestant) for one in entrants):
            raise Refusal(_CONTESTANTS.fill(most=MOST_CONTESTANTS, value=len(entrants)))
        object.__setattr__(self, "contestants", entrants)
        object.__setattr__(self, "kv_len", self.q_len if self.kv_len is None else self.kv_len)
        for name, high in (("q_len", MOST_LENGTH), ("kv_len", MOST_LENGTH), ("batch", 4096), ("threads", MOST_THREADS)):
            check_size(name, getattr(self, name))
            _check_range(name, getattr(self, name), 1, high)
        check_size("rounds", self.rounds)
        _check_range("rounds", self.rounds, 1, 1000)
        for name, high in (("budget_s", 600), ("limit_s", 3600)):
            _check_range(name, getattr(self, name), 0.01, high)
        dtype_size(self.dtype)
        check_choice("mode", self.mode, PASSES)
        check_choice("mask", self.mask, tuple(MASKS))
        object.__setattr__(self, "mask_knobs", MappingProxyType(dict(self.mask_knobs)))
        MASKS[self.mask].build(**self.mask_knobs)
        if self.mode != "forward" and any(one.what == "decode" for one in entrants):
            raise Refusal(_BACKWARD)

    @property
    def keys(self) -> int:
        """Number of tokens attended to."""
        return self.q_len if self.kv_len is None else self.kv_len

    def to_json(self) -> dict[str, Any]:
        """Give the request as plain lists and mappings."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        plain["contestants"] = [
            {one.name: getattr(entrant, one.name) for one in fields(entrant)} for entrant in self.contestants
        ]
        return _plain(plain)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Request":
        """Read what ``to_json`` gave.

        Raises:
            Refusal: If a field is not known or breaks its rule.
        """
        _check_fields("request", given, cls)
        contestants = []
        for one in given.get("contestants", ()):
            _check_fields("contestant", one, Contestant)
            contestants.append(Contestant(**one))
        return cls(**{**given, "contestants": tuple(contestants)})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _check_fields(kind: str, given: Mapping[str, Any], of: type) -> None:
    known = {one.name for one in fields(of)}
    for name in given:
        if name not in known:
            raise Refusal(_UNKNOWN.fill(name=repr(str(name)[:40]), kind=kind))


def check_choice(name: str, value: object, options: Sequence[str]) -> None:
    """Check that a value is one of the options.

    Raises:
        Refusal: If it is not.
    """
    if value not in options:
        raise Refusal(_ONE_OF.fill(name=name, options=", ".join(options), value=repr(value)[:42]))


def _check_range(name: str, value: object, low: int | float, high: int | float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise Refusal(_RANGE.fill(name=name, low=f"{low:g}", high=f"{high:,}", value=repr(value)[:42]))
