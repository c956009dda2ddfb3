"""Results as a table: one row for each contestant at each shape, with where and how it was measured."""

import csv
import io
import json
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pandas as pd
import torch

from attnviz import device
from attnviz.benchmark.peaks import declared_peak
from attnviz.benchmark.predict import predict
from attnviz.benchmark.request import Request
from attnviz.benchmark.result import NOISY, Failure, Result
from attnviz.text import Refusal, Text
from attnviz.variants import VARIANTS

FORMAT = "attnviz-benchmark-2"
MOST_BYTES, MOST_ROWS, MOST_LETTERS, MOST_CURVES = 4 * 2**20, 5_000, 200, 32
TEXTS = ("label", "variant", "backend", "what", "dtype", "mask", "mode", "kernel", "memory_method", "failure",
         "device", "hardware", "torch", "system", "date")  # fmt: skip
# Whole numbers up to here are exact in either format.
_LARGEST = 2**63 - 1024
_LENGTH, _SIZE, _TIME = (1, 2**30), (1, 2**20), (1e-12, 1e9)
# Each with the least and the most that it may be: beyond that it was not measured, and no axis could hold it.
WHOLE = MappingProxyType({
    "q_len": _LENGTH, "kv_len": _LENGTH, "batch": _SIZE, "heads": _SIZE, "kv_heads": _SIZE, "d_k": _SIZE,
    "threads": _SIZE, "runs": (0, 10**9), "peak_bytes": (0, _LARGEST), "predicted_peak_bytes": (0, _LARGEST),
    "flops": (0, _LARGEST), "bytes_moved": (0, _LARGEST),
})  # fmt: skip
REAL = MappingProxyType({
    "latency_s": _TIME, "latency_lower_s": _TIME, "latency_upper_s": _TIME, "latency_minimum_s": _TIME,
    "ratio": (0, 1e18), "system_share": (0, 1e6),
})  # fmt: skip
COLUMNS = (*TEXTS, *WHOLE, *REAL)
# What must be the same for one time to be held against another; the variant and its backend are what is compared.
SETTINGS = ("what", "mode", "mask", "batch", "heads", "d_k", "threads")
# Rows that differ in one of these belong to different curves.
_CURVE = ("label", "dtype", "device", "hardware", "date", *SETTINGS)
# Of fewer calls nobody knows how much they spread.
_LEAST_RUNS = 3
# Without these a row says nothing.
_NEEDED = ("label", "q_len", "kv_len", "dtype", "device")

_NO_TABLE = Text("This file is no table of results: {why}.", "该文件不是结果表：{why}。")
_WHY = {
    "size": Text("it has more than 4 MiB", "超过 4 MiB"),
    "text": Text("it is neither CSV nor JSON of this app in UTF-8", "不是本应用导出的 UTF-8 编码 CSV 或 JSON"),
    "columns": Text("it has other columns ({found})", "列不符（{found}）"),
    "rows": Text("it has no rows or more than 5,000", "没有行，或超过 5,000 行"),
    "curves": Text("it has more than 32 curves", "超过 32 条曲线"),
    "twice": Text("it has {found} twice in one row", "同一行中 {found} 出现两次"),
    "value": Text("{column} holds {found}", "{column} 中出现 {found}"),
}


def frame(requests: Sequence[Request], results: Sequence[Result]) -> pd.DataFrame:
    """Give the table of results, in the order of requests and contestants; what failed has a row with its reason."""
    rows = [row for request, result in zip(requests, results, strict=False) for row in _rows(request, result)]
    return typed(pd.DataFrame(rows, columns=list(COLUMNS)))


def _rows(request: Request, result: Result) -> Iterable[dict[str, Any]]:
    known = result.partial if isinstance(result, Failure) else result
    shared = {
        "q_len": request.q_len, "kv_len": request.keys, "batch": request.batch, "dtype": request.dtype,
        "mask": request.mask, "mode": request.mode, "threads": request.threads, "device": request.device,
        "hardware": device.model(request.device), "torch": torch.__version__, "system": platform.system(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }  # fmt: skip
    for index, contestant in enumerate(request.contestants):
        point = None if known is None else known.points[index]
        failure = result if isinstance(result, Failure) else None
        failure = point.failure if point is not None and point.failure is not None else failure
        taken = None if point is None else point.latency_s
        expected = predict(contestant, request)
        heads = VARIANTS[contestant.variant].heads(contestant.config)
        yield {
            **shared, "label": contestant.label, "variant": contestant.variant, "backend": contestant.backend,
            "what": contestant.what, "heads": heads.heads, "kv_heads": heads.kv_heads, "d_k": heads.head_dim,
            "flops": expected.flops, "bytes_moved": expected.bytes_moved,
            "predicted_peak_bytes": declared_peak(contestant, request),
            "failure": None if failure is None else failure.text.en,
            **({} if taken is None else {
                "latency_s": taken.median, "latency_lower_s": taken.lower, "latency_upper_s": taken.upper,
                "latency_minimum_s": taken.minimum, "runs": taken.runs,
            }),
            **({} if point is None else {
                "peak_bytes": point.peak_bytes, "memory_method": point.memory_method, "kernel": point.kernel or None,
                "ratio": point.ratio, "system_share": point.system_share,
            }),
        }  # fmt: skip


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """Give the table with the type of each column; what is missing stays missing."""
    kinds = dict.fromkeys(TEXTS, "string") | dict.fromkeys(WHOLE, "Int64") | dict.fromkeys(REAL, "Float64")
    return table.astype(kinds)


def noisy(table: pd.DataFrame) -> pd.Series:
    """Say of each row whether its time is a hint only: the middle half spreads widely, or few calls were timed."""
    columns = ("latency_s", "latency_lower_s", "latency_upper_s", "runs")
    found = []
    for median, lower, upper, runs in zip(*(table[name] for name in columns), strict=True):
        wide = not pd.isna(lower) and not pd.isna(upper) and upper - lower > NOISY * median
        found.append(not pd.isna(median) and bool(wide or (not pd.isna(runs) and runs < _LEAST_RUNS)))
    return pd.Series(found, index=table.index, dtype=bool)


def to_csv(table: pd.DataFrame) -> str:
    """Give the table as CSV."""
    return table.to_csv(index=False)


def to_json(table: pd.DataFrame) -> str:
    """Give the table as JSON: the format's name and a list of rows."""
    rows = json.loads(str(table.to_json(orient="records", double_precision=15)))
    return json.dumps({"format": FORMAT, "rows": rows}, indent=1)


def read(content: bytes) -> pd.DataFrame:
    """Read a table from a file of this or another machine; trusts nothing in it.

    Args:
        content: CSV or JSON as ``to_csv`` and ``to_json`` give them.

    Raises:
        Refusal: If it is too large, no such table, or a value breaks its column's rule.
    """
    if len(content) > MOST_BYTES:
        raise _refused("size")
    try:
        text = content.decode("utf-8")
        rows = _from_json(text) if text.lstrip().startswith("{") else _from_csv(text)
    except Refusal:
        raise
    except (ValueError, csv.Error, RecursionError):  # no UTF-8, no JSON, or a number of thousands of digits
        raise _refused("text") from None
    if not 0 < len(rows) <= MOST_ROWS:
        raise _refused("rows")
    for row in rows:
        if row.keys() != set(COLUMNS):
            found = ", ".join(sorted(map(str, row.keys() ^ set(COLUMNS))))
            raise _refused("columns", found=found[:120])
    checked = [{name: _value(name, row[name]) for name in COLUMNS} for row in rows]
    if len({tuple(row[name] for name in _CURVE) for row in checked}) > MOST_CURVES:
        raise _refused("curves")
    return typed(pd.DataFrame(checked, columns=list(COLUMNS)))


def _from_json(text: str) -> list[dict[str, Any]]:
    held = json.loads(text, object_pairs_hook=_once)
    rows = held.get("rows")
    if held.get("format") != FORMAT or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _refused("text")
    return rows


def _from_csv(text: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text))
    _once([(name, None) for name in reader.fieldnames or ()])
    return list(reader)


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Give the mapping of pairs, no name of which may come twice: else readers differ in which one counts."""
    known: dict[str, Any] = {}
    for name, value in pairs:
        if name in known:
            raise _refused("twice", found=repr(name)[:60])
        known[name] = value
    return known


def _value(name: str, raw: object) -> str | float | int | None:
    """Give one value in its column's type: texts short and printable, numbers within the column's range."""
    if raw is None or raw == "":
        if name in _NEEDED:
            raise _refused("value", column=name, found="–")
        return None
    if name in TEXTS:
        if isinstance(raw, str) and len(raw) <= MOST_LETTERS and raw.isprintable():
            return raw
        raise _refused("value", column=name, found=repr(raw)[:60])
    least, most = {**WHOLE, **REAL}[name]
    number = _number(raw)
    if number is None or not least <= number <= most or (name in WHOLE and number != int(number)):
        raise _refused("value", column=name, found=repr(raw)[:60])
    return int(number) if name in WHOLE else number


def _number(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)) or (isinstance(raw, str) and len(raw) > 40):
        return None
    try:
        return float(raw)
    except (ValueError, OverflowError):
        return None


def _refused(why: str, **fields: object) -> Refusal:
    return Refusal(_NO_TABLE.fill(why=_WHY[why].fill(**fields)))
