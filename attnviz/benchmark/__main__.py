"""Measure without a browser: ``python -m attnviz.benchmark --quick``."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from attnviz import device, units
from attnviz.benchmark import Failure, Request, submit, table
from attnviz.benchmark.fits import finding
from attnviz.benchmark.pairs import DEFAULTS, PAIRS, passed
from attnviz.benchmark.request import DECODE, PASSES
from attnviz.config import DTYPES, check_divides, check_size, quarter
from attnviz.masks import MASKS
from attnviz.text import Refusal, Text

QUICK_LENGTHS, LENGTHS = (1024, 2048, 4096), (256, 512, 1024, 2048, 4096, 8192)
# Three lengths of at most so long end within two minutes, with the process's start.
_QUICK_S, _LIMIT_S = 30, 120
_NOBODY = Text(
    "--kv-heads needs one of {options} among --pairs.", "使用 --kv-heads 时，--pairs 应包含以下之一：{options}。"
)


def parser() -> argparse.ArgumentParser:
    """Give the reader of the command line."""
    known = argparse.ArgumentParser("python -m attnviz.benchmark", description="Time and peak memory of attention.")
    known.add_argument("--quick", action="store_true", help="three short lengths, within two minutes")
    known.add_argument("--lengths", type=int, nargs="+", metavar="TOKENS", help=f"default {LENGTHS}")
    known.add_argument("--pairs", nargs="+", default=list(DEFAULTS), choices=list(PAIRS), metavar="PAIR",
                       help=f"variant and how it is computed: {', '.join(PAIRS)}")  # fmt: skip
    known.add_argument("--heads", type=int, default=8)
    known.add_argument("--kv-heads", type=int, help="of GQA, a divisor of --heads; default about a quarter of them")
    known.add_argument("--d-k", type=int, default=64)
    known.add_argument("--batch", type=int, default=1)
    known.add_argument("--what", choices=("core", "layer"), default="core", help="with or without projections")
    known.add_argument("--mask", choices=list(MASKS), default="full")
    known.add_argument("--mode", choices=(*PASSES, DECODE), default="forward",
                       help="decode: one token with its projections, behind a cache of each length")  # fmt: skip
    known.add_argument("--dtype", choices=list(DTYPES), default="float32")
    known.add_argument("--threads", type=int, default=1)
    known.add_argument("--device", default=device.default_device(), help=f"one of {', '.join(device.present())}")
    known.add_argument("--output", type=Path, help="write the table to this .json or .csv file")
    return known


def requests(asked: argparse.Namespace) -> list[Request]:
    """Give what a command line asks for.

    Raises:
        Refusal: If a value breaks its rule.
    """
    device.resolve(asked.device)
    for name in ("heads", "d_k"):
        check_size(f"--{name.replace('_', '-')}", getattr(asked, name))
    kv_heads = _kv_heads(asked)
    budget_s, limit_s = (1, _QUICK_S) if asked.quick else (3, _LIMIT_S)
    wanted = []
    for length in dict.fromkeys(asked.lengths or (QUICK_LENGTHS if asked.quick else LENGTHS)):
        what, own = passed(asked.mode, length, what=asked.what, mask=asked.mask)
        names = dict.fromkeys(asked.pairs)
        contestants = [PAIRS[name].contestant(asked.heads, asked.d_k, what, kv_heads) for name in names]
        shared = {"batch": asked.batch, "dtype": asked.dtype, "threads": asked.threads, "device": asked.device}
        wanted.append(Request(contestants, budget_s=budget_s, limit_s=limit_s, **shared, **own))
    return wanted


def _kv_heads(asked: argparse.Namespace) -> int:
    """Give the KV heads of what shares them.

    Raises:
        Refusal: If they do not divide the heads, or nothing shares.
    """
    if asked.kv_heads is None:
        return quarter(asked.heads)
    check_divides("--kv-heads", asked.kv_heads, "--heads", asked.heads)
    sharing = [name for name, pair in PAIRS.items() if pair.shares]
    if not set(asked.pairs).intersection(sharing):
        raise Refusal(_NOBODY.fill(options=", ".join(sharing)))
    return asked.kv_heads


def main(arguments: Sequence[str]) -> int:
    """Measure, print a line for each point as it comes, and write the table.

    Returns:
        0, or 2 for what cannot be asked.
    """
    asked = parser().parse_args(arguments)
    problem = None if asked.output is None else _unwritable(asked.output)
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    try:
        wanted = requests(asked)
    except Refusal as refused:
        print(refused, file=sys.stderr)
        return 2
    mask = "" if asked.mode == DECODE else f" · mask {asked.mask}"
    print(f"{device.model(asked.device)} · {asked.dtype} · {asked.mode}{mask} · threads {asked.threads}")
    print(f"{'length':>8}  {'':24}{'time':>10}{'ratio':>8}{'peak':>12}{'predicted':>12}")
    job = submit(wanted)
    for number, known in job.follow():
        if isinstance(known, Failure) or known.complete:
            _print(table.frame(wanted[number : number + 1], (known,)))
    held = table.frame(wanted, job.results)
    curves = {str(name): _series(rows) for name, rows in held.groupby("label", sort=False)}
    said = finding(curves, _hints(held))
    print("" if said is None else f"\n{said.en}")
    if asked.output is not None:
        asked.output.write_text(table.to_csv(held) if asked.output.suffix == ".csv" else table.to_json(held), "utf-8")
    return 0


def _unwritable(target: Path) -> str | None:
    """Say why no table can be written there, before minutes are spent on it; None where it can."""
    if target.suffix not in (".json", ".csv"):
        return f"--output must end in .json or .csv, got {str(target)!r}."
    if not target.parent.is_dir():
        return f"--output must lie in a folder that is there, got {str(target)!r}."
    if target.is_dir() or not os.access(target if target.exists() else target.parent, os.W_OK):
        return f"--output must be a file that can be written, got {str(target)!r}."
    return None


def _hints(held: "table.pd.DataFrame") -> list[tuple[str, int]]:
    """Give name and length of the points whose times are no more than a hint."""
    hints = table.noisy(held)
    return [(row["label"], row["kv_len"]) for row, hint in zip(_records(held), hints, strict=True) if hint]


def _series(rows: "table.pd.DataFrame") -> dict[int, float]:
    return {int(row["kv_len"]): float(row["latency_s"]) for row in _records(rows) if row["latency_s"] is not None}


def _print(rows: "table.pd.DataFrame") -> None:
    for row in _records(rows):
        line = f"{row['kv_len']:8}  {row['label']:24}"
        if row["latency_s"] is None:
            print(f"{line}{row['failure']}", flush=True)
            continue
        ratio = "" if row["ratio"] is None else units.ratio(row["ratio"])
        peaks = "".join(f"{'' if row[name] is None else units.binary_bytes(row[name]):>12}"
                        for name in ("peak_bytes", "predicted_peak_bytes"))  # fmt: skip
        # A time without its peak: the request ended before memory was measured.
        why = "" if row["failure"] is None else f"  {row['failure']}"
        print(f"{line}{units.seconds(row['latency_s']):>10}{ratio:>8}{peaks}{why}", flush=True)


def _records(rows: "table.pd.DataFrame") -> list[dict]:
    return [{k: None if table.pd.isna(v) else v for k, v in row.items()} for row in rows.to_dict("records")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
