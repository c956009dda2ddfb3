"""Results as a table: one row for each contestant at each shape, with where and how it was measured."""

import csv
import io
import json
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import torch

from attnviz import device
from attnviz.benchmark.predict import predict
from attnviz.benchmark.request import Request
from attnviz.benchmark.result import Failure, Result
from attnviz.text import Refusal, Text

FORMAT = "attnviz-benchmark-1"
MOST_BYTES, MOST_ROWS, MOST_LETTERS = 4 * 2**20, 5_000, 200
TEXTS = ("label", "variant", "backend", "what", "dtype", "mask", "mode", "kernel", "memory_method", "failure",
         "device", "hardware", "torch", "system", "date")  # fmt: skip
WHOLE = ("q_len", "kv_len", "batch", "threads", "runs", "peak_bytes", "predicted_peak_bytes", "flops", "bytes_moved")
REAL = ("latency_s", "latency_lower_s", "latency_upper_s", "latency_minimum_s", "ratio", "system_share")
COLUMNS = (*TEXTS, *WHOLE, *REAL)
# Whole numbers up to here are exact in either format.
_LARGEST = 2.0**63 - 1024
# Without these a row says nothing.
_NEEDED = ("label", "q_len", "kv_len", "dtype", "device")

_NO_TABLE = Text("This file is no table of results: {why}.", "该文件不是结果表：{why}。")
_WHY = {
    "size": Text("it has more than 4 MiB", "超过 4 MiB"),
    "text": Text("it is neither CSV nor JSON of this app in UTF-8", "不是本应用导出的 UTF-8 编码 CSV 或 JSON"),
    "columns": Text("it has other columns ({found})", "列不符（{found}）"),
    "rows": Text("it has no rows or more than 5,000", "没有行，或超过 5,000 行"),
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
        core = contestant.what == "core" and request.mode == "forward"
        yield {
            **shared, "label": contestant.label, "variant": contestant.variant, "backend": contestant.backend,
            "what": contestant.what, "flops": expected.flops, "bytes_moved": expected.bytes_moved,
            "predicted_peak_bytes": expected.peak_bytes if core else None,
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
        rows = _from_json(text) if text.lstrip().startswith("{") else list(csv.DictReader(io.StringIO(text)))
    except (UnicodeDecodeError, json.JSONDecodeError, csv.Error, RecursionError):
        raise _refused("text") from None
    if not 0 < len(rows) <= MOST_ROWS:
        raise _refused("rows")
    for row in rows:
        if row.keys() != set(COLUMNS):
            found = ", ".join(sorted(map(str, row.keys() ^ set(COLUMNS))))
            raise _refused("columns", found=found[:120])
    checked = [{name: _value(name, row[name]) for name in COLUMNS} for row in rows]
    return typed(pd.DataFrame(checked, columns=list(COLUMNS)))


def _from_json(text: str) -> list[dict[str, Any]]:
    held = json.loads(text)
    rows = held.get("rows")
    if held.get("format") != FORMAT or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _refused("text")
    return rows


def _value(name: str, raw: object) -> str | float | int | None:
    """Give one value in its column's type: texts short and printable, numbers finite and not below nought."""
    if raw is None or raw == "":
        if name in _NEEDED:
            raise _refused("value", column=name, found="–")
        return None
    if name in TEXTS:
        if isinstance(raw, str) and len(raw) <= MOST_LETTERS and raw.isprintable():
            return raw
        raise _refused("value", column=name, found=repr(raw)[:60])
    number = _number(raw)
    if number is None or (name in WHOLE and number != int(number)):
        raise _refused("value", column=name, found=repr(raw)[:60])
    return int(number) if name in WHOLE else number


def _number(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)) or (isinstance(raw, str) and len(raw) > 40):
        return None
    try:
        number = float(raw)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number <= _LARGEST else None


def _refused(why: str, **fields: object) -> Refusal:
    return Refusal(_NO_TABLE.fill(why=_WHY[why].fill(**fields)))
