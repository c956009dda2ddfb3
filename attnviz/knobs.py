"""What a person can set: one description that pickers, links, routes and checks all read."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from attnviz.text import Refusal, Text

Value = int | float | str | bool | tuple[int, ...]

_BAD = Text("{name} must be {rule}, got {value}.", "{name}应为{rule}，收到的是 {value}。")
_INTEGER = Text("a whole number from {low} to {high}", " {low} 到 {high} 之间的整数")
_NUMBER = Text("a number from {low} to {high}", " {low} 到 {high} 之间的数")
_CHOICE = Text("one of {options}", "以下之一：{options}")
_SEVERAL = Text(
    "1 to {most} of {options}, each once and separated by commas",
    "以下选项中的 1 到 {most} 个，以逗号分隔、不重复：{options}",
)
_FLAG = Text("0 or 1", " 0 或 1")
_LENGTHS = Text("whole numbers from {low} to {high}, separated by commas", "以逗号分隔的 {low} 到 {high} 之间的整数")
_FEWER = Text("at most {most} whole numbers, separated by commas", "最多 {most} 个以逗号分隔的整数")
_WORDS = Text("text of at most {high} characters", "不超过 {high} 个字符的文本")


@runtime_checkable
class _Listed(Protocol):
    """An array or tensor, which can give its numbers as a list."""

    def tolist(self) -> object: ...


def _short(raw: object) -> str:
    """Give a bad value as a person may see it: quoted, and cut so that it cannot flood the page."""
    text = str(raw)
    return repr(text if len(text) <= 40 else text[:39] + "…")


@dataclass(frozen=True)
class Knob:
    """Describe one setting.

    Args:
        name: Plain key, used in links, routes and as the argument name.
        label: What it is called on screen.
        default: Value when nothing is given.
        help: One sentence on what it does, or None.
        unit: Unit of the value ("tokens"), or None.
    """

    name: str
    label: Text
    default: Value
    help: Text | None = None
    unit: Text | None = None

    def parse(self, raw: object) -> Value:
        """Turn a link's text or a widget's value into a checked value.

        Raises:
            Refusal: If it is not allowed; names the knob, the rule and the value received.
        """
        raise NotImplementedError

    def write(self, value: Value) -> str:
        """Give the value as it stands in a link."""
        return str(value)

    @property
    def named(self) -> Text:
        """Give the name as a sentence begins with it: in Chinese the label first, for the name alone is English."""
        return Text(self.name, f"{self.name} " if self.label.zh == self.name else f"{self.label.zh}（{self.name}）")

    def shown(self, value: Value) -> str | Text:
        """Give the value for a sentence: as a link carries it."""
        return self.write(value)

    def _refuse(self, rule: Text, raw: object) -> Refusal:
        return Refusal(_BAD.fill(name=self.named, rule=rule, value=_short(raw)))


@dataclass(frozen=True)
class Integer(Knob):
    """A whole number from ``low`` to ``high``; a slider shows ``low`` to ``slider_high`` or the values of ``stops``.

    ``stops`` lists the slider's positions where they are not every whole number; other values can still be typed.
    """

    low: int = 0
    high: int = 1
    slider_high: int | None = None
    stops: tuple[int, ...] | None = None

    def parse(self, raw: object) -> int:
        rule = _INTEGER.fill(low=f"{self.low:,}", high=f"{self.high:,}")
        if isinstance(raw, bool):
            raise self._refuse(rule, raw)
        if isinstance(raw, float) and raw.is_integer():
            raw = int(raw)
        if not isinstance(raw, (int, float, str)):
            # Other libraries' whole numbers, such as NumPy's.
            try:
                raw = operator.index(raw)  # type: ignore[arg-type]  # what is no whole number is refused below
            except TypeError:
                raise self._refuse(rule, raw) from None
        if not isinstance(raw, int):
            # int() alone takes "1_0", " 7 " and other alphabets' digits, which a link should not carry.
            text = raw if isinstance(raw, str) else ""
            if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 12):
                raise self._refuse(rule, raw)
            raw = int(text)
        if not self.low <= raw <= self.high:
            raise self._refuse(rule, raw)
        return raw


@dataclass(frozen=True)
class Number(Knob):
    """A finite number from ``low`` to ``high``; a slider shows ``low`` to ``slider_high`` in steps of ``step``."""

    low: float = 0.0
    high: float = 1.0
    step: float = 0.01
    slider_high: float | None = None

    def parse(self, raw: object) -> float:
        rule = _NUMBER.fill(low=f"{self.low:g}", high=f"{self.high:g}")
        if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
            raise self._refuse(rule, raw)
        if isinstance(raw, str) and (len(raw) > 32 or not raw.isascii() or "_" in raw or raw != raw.strip()):
            raise self._refuse(rule, raw)
        try:
            value = float(raw)
        except (ValueError, OverflowError):
            raise self._refuse(rule, raw) from None
        if not math.isfinite(value) or not self.low <= value <= self.high:
            raise self._refuse(rule, raw)
        return value

    def write(self, value: Value) -> str:
        return f"{value:.12g}"


@dataclass(frozen=True)
class Choice(Knob):
    """One of ``options``: key → label. Keys travel in links, labels on screen.

    ``elsewhere`` holds keys that a person may well expect here → why they are not, and where they are.
    """

    options: Mapping[str, Text] = None  # type: ignore[assignment]  # dataclass order: a default is needed after the base's
    elsewhere: Mapping[str, Text] | None = None

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str) or raw not in self.options:
            refusal = self._refuse(_CHOICE.fill(options=", ".join(self.options)), raw)
            where = self.elsewhere.get(raw) if self.elsewhere and isinstance(raw, str) else None
            raise (
                refusal if where is None else Refusal(Text(f"{refusal.text.en} {where.en}", refusal.text.zh + where.zh))
            )
        return raw

    def shown(self, value: Value) -> str | Text:
        """Give the value for a sentence: its key, and in Chinese its label, for keys are English."""
        return Text(self.write(value), self.options[str(value)].zh)


@dataclass(frozen=True)
class Several(Knob):
    """One to ``most`` of ``options``, key → label, each once; the value is their keys as chosen, by commas."""

    options: Mapping[str, Text] = None  # type: ignore[assignment]  # dataclass order: a default is needed after the base's
    most: int = 8

    def parse(self, raw: object) -> str:
        parts = raw.split(",") if isinstance(raw, str) and len(raw) <= 4096 else []
        if not 1 <= len(parts) <= self.most or len(set(parts)) < len(parts) or not set(parts) <= self.options.keys():
            raise self._refuse(_SEVERAL.fill(most=self.most, options=", ".join(self.options)), raw)
        return str(raw)


@dataclass(frozen=True)
class Flag(Knob):
    """On or off."""

    def parse(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        if raw not in ("0", "1"):
            raise self._refuse(_FLAG, raw)
        return raw == "1"

    def write(self, value: Value) -> str:
        return "1" if value else "0"


@dataclass(frozen=True)
class Lengths(Knob):
    """A list of whole numbers, such as the real lengths of the sequences of a batch."""

    low: int = 0
    high: int = 1
    most: int = 64

    def parse(self, raw: object) -> tuple[int, ...]:
        rule = _LENGTHS.fill(low=f"{self.low:,}", high=f"{self.high:,}")
        parts: Sequence[object]
        if isinstance(raw, _Listed):
            raw = raw.tolist()
        if isinstance(raw, str):
            parts = raw.split(",") if len(raw) <= 16 * self.most else ()
        elif isinstance(raw, (list, tuple)):
            parts = raw
        elif isinstance(raw, int) and not isinstance(raw, bool):
            parts = (raw,)
        else:
            parts = ()
        if len(parts) > self.most or (isinstance(raw, str) and raw.count(",") >= self.most):
            raise self._refuse(_FEWER.fill(most=self.most), raw)
        if not parts:
            raise self._refuse(rule, raw)
        one = Integer(self.name, self.label, self.low, low=self.low, high=self.high)
        try:
            return tuple(one.parse(part.strip() if isinstance(part, str) else part) for part in parts)
        except Refusal:
            raise self._refuse(rule, raw) from None

    def write(self, value: Value) -> str:
        return ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Words(Knob):
    """Free text of at most ``most`` characters."""

    most: int = 2000

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str) or len(raw) > self.most:
            raise self._refuse(_WORDS.fill(high=f"{self.most:,}"), raw)
        return raw


def checked(owner: str, knobs: Sequence[Knob], settings: Mapping[str, object]) -> dict[str, Value]:
    """Give the checked value of every knob; those not given take their default.

    Args:
        owner: Key of what has these knobs.
        knobs: The knobs.
        settings: Values by the knobs' names.

    Raises:
        Refusal: If a value breaks its knob's rule.
        ValueError: If a setting is not one of the knobs.
    """
    unknown = settings.keys() - {knob.name for knob in knobs}
    if unknown:
        raise ValueError(f"{owner} has no setting {', '.join(sorted(unknown))}")
    return {knob.name: knob.parse(settings.get(knob.name, knob.default)) for knob in knobs}
