"""Check what only a GPU can show, and sweep to 65,536 tokens: ``python tests/gpu_check.py [found.json]``.

Each backend against eager in float64, no memory left behind, and a sweep whose table is written as one JSON, which the
benchmark page draws beside its own. Ends within five minutes; without a GPU it says so in one sentence.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from attnviz.backends import BACKENDS
from attnviz.benchmark import Failure, Request, submit, table
from attnviz.benchmark.fits import finding
from attnviz.benchmark.pairs import PAIRS
from attnviz.device import present
from attnviz.masks import MASKS

LENGTHS = tuple(1024 << step for step in range(7))
NAMES = ("mha-eager", "mha-sdpa", "gqa-sdpa", "mqa-sdpa", "mla-sdpa", "linear-chunked")
ENOUGH_S = 240


def main(arguments: list[str]) -> int:
    """Run the checks and the sweep.

    Returns:
        0 when all passed or there is no GPU, 1 otherwise.
    """
    if len(arguments) > 1 or any(one.startswith("-") for one in arguments):
        print(__doc__)
        return 0 if {"-h", "--help"} & set(arguments) else 1
    device = next((name for name in present() if name != "cpu"), None)
    if device is None:
        print("There is no GPU here that this PyTorch build can use, so nothing was checked.")
        return 0
    target = Path(arguments[0] if arguments else "gpu_check.json")
    if not target.parent.is_dir():
        print(f"The table cannot be written: there is no folder {str(target.parent)!r}.")
        return 1
    begun = time.monotonic()
    problems = [*agreement(device), *leaks(device)]
    problems += sweep(device, target, begun)
    print("\n".join(problems) or f"All passed in {time.monotonic() - begun:.0f} s; the table is {target}.")
    return 1 if problems else 0


def agreement(device: str) -> list[str]:
    """Hold each backend on the GPU to eager in float64: at most twice eager's own error in that dtype."""
    problems = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        query, key, value = (torch.randn(2, 4, 300, 64, dtype=dtype, device=device) for _ in range(3))
        for name in ("full", "causal"):
            mask = MASKS[name].build()
            wide = [part.cpu().double() for part in (query, key, value)]
            truth = BACKENDS["eager"].attend(*wide, allowed=mask).output
            errors = {}
            for backend in BACKENDS:
                with torch.no_grad():
                    output = BACKENDS[backend].attend(query, key, value, allowed=mask).output
                errors[backend] = float((output.cpu().double() - truth).abs().max())
            allowed = 2 * errors["eager"] + torch.finfo(dtype).eps * float(truth.abs().max())
            problems += [
                f"{backend} in {dtype} with mask {name} is off by {error:.3g}, allowed are {allowed:.3g}."
                for backend, error in errors.items()
                if error > allowed
            ]
    return problems


def leaks(device: str) -> list[str]:
    """See that calls give back what they took."""
    if torch.device(device).type != "cuda":
        return []

    def held() -> int:
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated(device)

    query = torch.randn(1, 8, 2048, 64, device=device)
    before = held()
    for _ in range(10):
        for backend in BACKENDS:
            with torch.no_grad():
                BACKENDS[backend].attend(query, query, query)
    left = held() - before
    return [f"{left} bytes of GPU memory were left behind."] if left else []


def sweep(device: str, target: Path, begun: float) -> list[str]:
    """Measure, write the table, and say what ended a request."""
    entrants = tuple(PAIRS[name].contestant(16, 64) for name in NAMES)
    requests = [
        Request(entrants, length, dtype="bfloat16", device=device, mask="causal", budget_s=2.0, limit_s=60)
        for length in LENGTHS
    ]
    job = submit(requests)
    job.wait(max(1.0, ENOUGH_S - (time.monotonic() - begun)))
    job.cancel()
    results = job.wait(30)
    held = table.frame(requests, results)
    target.write_text(table.to_json(held), "utf-8")
    curves = {
        str(label): {int(n): float(s) for n, s in zip(rows["q_len"], rows["latency_s"], strict=True) if s == s and s}
        for label, rows in held.dropna(subset=["latency_s"]).groupby("label", sort=False)
    }
    said = finding(curves)
    print("" if said is None else said.en)
    return [result.text.en for result in results if isinstance(result, Failure)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
