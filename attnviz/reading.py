"""Settings as text, read one by one into a checked view: what every page and its live route share."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from attnviz import config
from attnviz.knobs import Knob, Value
from attnviz.text import Refusal, Text

V = TypeVar("V")

_UNKNOWN = Text("{name} is not a setting of this page.", "本页没有 {name} 这个设置。")
_DIVIDE = Text(
    "kv_heads must divide heads: {heads} heads allow {options}, got {got}; using {used}.",
    "KV 头数（kv_heads）必须整除头数：{heads} 个头可用 {options}，收到的是 {got}，改用 {used}。",
)


@dataclass(frozen=True)
class Settled(Generic[V]):
    """Give the view, the sentences about what could not be read, and the notes about what followed.

    ``values`` are the settings as they now stand, by parameter name; ``knobs`` the knobs that apply. ``refused`` is
    what of ``problems`` belongs to one setting, by its name.
    """

    view: V
    problems: tuple[Text, ...]
    notes: tuple[Text, ...]
    values: Mapping[str, Value]
    knobs: Mapping[str, Knob]
    defaults: Mapping[str, Value]
    refused: Mapping[str, Text] = field(default_factory=dict)

    def link(self) -> dict[str, str]:
        """Give the settings that differ from their defaults, as a link carries them."""
        return {
            name: knob.write(self.values[name])
            for name, knob in self.knobs.items()
            if self.values[name] != self.defaults[name]
        }


class Reader:
    """Read settings one by one, collecting what was wrong and what had to follow.

    Args:
        given: Parameter name → text (or value).
        known: Every name that a link to the page may carry; any other is named as a problem.
    """

    def __init__(self, given: Mapping[str, object], known: Collection[str]):
        self.given = given
        self.problems: list[Text] = [_UNKNOWN.fill(name=repr(str(name)[:40])) for name in given if name not in known]
        self.notes: list[Text] = []
        self.values: dict[str, Value] = {}
        self.defaults: dict[str, Value] = {}
        self.knobs: dict[str, Knob] = {}
        self.refused: dict[str, Text] = {}

    def read(self, name: str, knob: Knob, default: Value | None = None) -> Value:
        """Read one setting; missing or unreadable it takes its default, ``default`` where that is not the knob's."""
        default = knob.default if default is None else default
        value = default
        if name in self.given:
            try:
                value = knob.parse(self.given[name])
            except Refusal as refusal:
                self.refuse(refusal.text, name)
        self.values[name], self.defaults[name], self.knobs[name] = value, default, knob
        return value

    def refuse(self, problem: Text, *names: str) -> None:
        """Say what is wrong with the settings of these names."""
        self.problems.append(problem)
        self.refused |= dict.fromkeys(names, problem)

    def refuse_together(self, problem: Text, names: Iterable[str]) -> None:
        """Take settings back to their defaults that are fine one by one and not together, and say why."""
        asked = [name for name in names if name in self.given]
        self.refuse(problem, *asked)
        self.values |= {name: self.defaults[name] for name in names}

    def follow(self, name: str, used: Value, note: Text, **fields: object) -> None:
        """Replace a value that another setting no longer allows, and say so."""
        knob = self.knobs[name]
        shown = {"got": knob.shown(self.values[name]), "used": knob.shown(used)}
        self.notes.append(note.fill(name=knob.named, **shown, **fields))
        self.values[name] = used

    def divide_heads(self, heads: int, note: bool = True) -> None:
        """Replace KV heads that do not divide the heads by the next fewer that do, and say so where they count."""
        options, kv_heads = config.divisors(heads), cast("int", self.values["kv_heads"])
        if kv_heads in options:
            return
        used = max(n for n in options if n <= kv_heads)
        if note:
            self.follow("kv_heads", used, _DIVIDE, heads=heads, options=", ".join(map(str, options)))
        self.values["kv_heads"] = used

    def settled(self, view: V) -> "Settled[V]":
        """Give everything that was read, with the view made of it."""
        said = tuple(self.problems), tuple(self.notes)
        return Settled(view, *said, self.values, self.knobs, self.defaults, self.refused)
