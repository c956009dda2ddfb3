"""Numbers for people: bytes, seconds, FLOPs, tokens and counts, the same in every language; bytes of data types."""

import math
from collections.abc import Mapping
from types import MappingProxyType

# Bytes of one element, by torch's name.
DTYPES: Mapping[str, int] = MappingProxyType({"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2})

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB")
_METRIC = ("", "k", "M", "G", "T", "P", "E")
_COUNT = ("", "k", "M", "B", "T")
# Minutes, hours, days, years, each from so many seconds on.
_LONG_S, _LONG = 99.95, ((31_557_600, "y"), (86_400, "d"), (3600, "h"), (60, "min"))
# Where an axis of times has marks: a second's powers of ten, then what clocks and calendars count in.
TIME_MARKS = (
    *(10.0**power for power in range(-12, 2)),
    *(60.0, 600.0, 3600.0, 86_400.0, 864_000.0, 8_640_000.0),
    *(31_557_600.0 * 10**power for power in range(12)),
)
_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def number(value: int | float, digits: int = 3) -> str:
    """Give a number with ``digits`` significant digits, thousands grouped, integers of up to that many exact.

    Args:
        value: Any number; NaN and infinities read "NaN", "∞" and "−∞".
        digits: Significant digits, at least 1.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    power = math.floor(math.log10(abs(rounded)))
    if not -4 <= power < 15:
        mantissa, exponent = f"{rounded:.{digits - 1}e}".split("e")
        text = f"{_trim(mantissa)}e{int(exponent)}"
    else:
        text = _trim(f"{rounded:,.{max(0, digits - 1 - power)}f}")
    return text.replace("-", "−")


def count(value: int) -> str:
    """Give a whole number exactly, thousands grouped: 4,198,400."""
    return f"{value:,}".replace("-", "−")


def short_count(value: int | float) -> str:
    """Give a count in three digits for an axis or a label: 4.2M parameters."""
    return _scaled(value, 1000, _COUNT, "")


def binary_bytes(value: int | float, digits: int = 3) -> str:
    """Give bytes in units of 1024: KiB, MiB, GiB."""
    return _scaled(value, 1024, _BINARY, digits=digits)


def decimal_bytes(value: int | float, digits: int = 3) -> str:
    """Give bytes in units of 1000: kB, MB, GB."""
    return _scaled(value, 1000, _DECIMAL, digits=digits)


def both_bytes(value: int | float, digits: int = 3) -> str:
    """Give bytes in both units: "1.5 GiB (1.61 GB)"; below 1000 bytes they are the same and given once."""
    if abs(value) < 1000:
        return binary_bytes(value, digits)
    return f"{binary_bytes(value, digits)} ({decimal_bytes(value, digits)})"


def seconds(value: int | float) -> str:
    """Give a time in the unit that fits: ns, µs, ms, s, or minutes and seconds, or hours and minutes."""
    size = abs(value)
    if not math.isfinite(value) or value == 0:
        return f"{number(value)} s"
    if size >= 99.95:
        sign = "−" if value < 0 else ""
        whole = round(size)
        if whole < 3600:
            return f"{sign}{whole // 60} min {whole % 60} s"
        minutes = round(size / 60)
        return f"{sign}{minutes // 60:,} h {minutes % 60} min"
    for factor, unit in _TIME:
        # 0.9996 ms rounds to 1 ms in three digits and must not read 1,000 µs.
        if float(f"{size / factor:.2e}") >= 1:
            return f"{number(value / factor)} {unit}"
    return f"{number(value / 1e-9)} ns"


def short_seconds(value: int | float) -> str:
    """Give a time roughly, in one unit: as ``seconds`` below 100 s, then 2.8 h, 12 d, 3.2 y."""
    if not math.isfinite(value) or abs(value) < _LONG_S:
        return seconds(value)
    factor, unit = next((each for each in _LONG if abs(value) >= each[0]), _LONG[-1])
    return f"{number(value / factor, 2)} {unit}"


def flops(value: int | float) -> str:
    """Give a number of floating-point operations: 75.2 GFLOP."""
    return _scaled(value, 1000, tuple(f"{prefix}FLOP" for prefix in _METRIC))


def flops_per_second(value: int | float) -> str:
    """Give a speed: 740 TFLOP/s."""
    return f"{flops(value)}/s"


def bytes_per_second(value: int | float) -> str:
    """Give a bandwidth, as data sheets do in units of 1000: 3.35 TB/s."""
    return f"{decimal_bytes(value)}/s"


def short_length(tokens: int) -> str:
    """Give a length for an axis: 512, 4K and 128K are multiples of 1024; what is no such multiple is given exactly."""
    for power, letter in ((2**20, "M"), (2**10, "K")):
        if tokens >= power and tokens % power == 0:
            return f"{tokens // power:,}{letter}"
    return count(tokens)


def ratio(value: int | float) -> str:
    """Give how many times as much: 0.28×."""
    return f"{number(value)}×"


def percent(share: int | float) -> str:
    """Give a share of one as per cent: 0.125 is 12.5%."""
    return f"{number(share * 100)}%"


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: int | float, base: int, names: tuple[str, ...], gap: str = " ", digits: int = 3) -> str:
    """Give ``value`` in the largest unit in which it reads at least 1 after rounding."""
    if not math.isfinite(value):
        return f"{number(value)}{gap}{names[0]}"
    step, size = 0, abs(value)
    # The unit is chosen from the rounded number: 1023.9996 KiB is 1 MiB, not "1,024 KiB".
    while step < len(names) - 1 and float(f"{size:.3e}") >= base:
        size /= base
        step += 1
    # Units of 1024 run up to 1,023, which three digits would make 1,020.
    shown = number(math.copysign(size, value), max(digits, 4) if size >= 1000 else digits)
    return f"{shown}{gap}{names[step]}".rstrip()
