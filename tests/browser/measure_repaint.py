"""Measure the real app in a real Chromium against the budgets: ``python tests/browser/measure_repaint.py``.

A script to run on a quiet machine, not a test: times on a busy one mean nothing. Every figure runs from the event of
the key or pointer to the painted picture. The comparison with ``st.plotly_chart`` is the same page with the same
controls, measured in turns with ours (``apps/plotly_app.py``).
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from playwright.sync_api import Browser, Response, sync_playwright

from pages import entries
from tests.browser.driver import go_to, launch, open_tab, wait_idle
from tests.browser.server import Server
from tests.browser.timing import PROBE, Watched, median_p95

D_K = "d_k (head_dim)"
EIGHT = {"input": "normal", "length": 256, "heads": 8, "d_k": 4}
LARGE = {"input": "normal", "length": 1024, "heads": 1, "d_k": 4}
ONE = {"input": "normal", "length": 256, "heads": 1, "d_k": 1}
WARM_UPS = 2
KEYS = 30
MOST_BYTES = 2.2e6


class Row(NamedTuple):
    """One line of the table."""

    name: str
    measured: str
    budget: str
    passed: bool


def milliseconds(name: str, values: Sequence[float], most: float, most_p95: float) -> Row:
    """Make the row of a series of times in milliseconds."""
    median, p95 = median_p95(values)
    measured = f"{median:.0f} / {p95:.0f} ms (n = {len(values)})"
    return Row(name, measured, f"{most:.0f} / {most_p95:.0f} ms", median <= most and p95 <= most_p95)


class Bench:
    """Hold the browser and the two servers."""

    def __init__(self, browser: Browser, app: Server, plotly: Server, rounds: int):
        self.browser, self.app, self.plotly, self.rounds = browser, app, plotly, rounds

    def live(self, name: str, settings: dict, most: float, most_p95: float) -> Iterator[Row]:
        """Press an arrow key on the live slider, in turns with the same page drawn by ``st.plotly_chart``."""
        ours = Watched(self.browser, self.app.url, settings)
        theirs = Watched(self.browser, self.plotly.url, settings, watch="watchTitle")
        pairs = []
        for _ in range(self.rounds + WARM_UPS):
            pair = []
            for side in (ours, theirs):
                side.page.bring_to_front()
                side.slider(D_K).focus()
                pair.append(side.press())
            pairs.append(pair)
        ours.close()
        theirs.close()
        pairs = pairs[WARM_UPS:]
        yield milliseconds(f"live plane: {name}", [own for own, _ in pairs], most, most_p95)
        ratio = statistics.median(other / own for own, other in pairs)
        other, other_p95 = median_p95([other for _, other in pairs])
        measured = f"{ratio:.1f} × (it takes {other:.0f} / {other_p95:.0f} ms)"
        yield Row(f"ratio to st.plotly_chart: {name}", measured, "20 ×", ratio >= 20)

    def live_eight(self) -> Iterator[Row]:
        """Eight heads of 256 × 256."""
        return self.live("8 heads × 256²", EIGHT, 40, 70)

    def live_large(self) -> Iterator[Row]:
        """One head of 1024 × 1024."""
        return self.live("one head × 1024²", LARGE, 60, 100)

    def live_curves(self) -> Iterator[Row]:
        """Press an arrow key on the saturation page: d_k finds its sweep ready, the others measure all anew."""
        for name, label, show in (
            ("d_k", D_K, "collapse"),
            ("temperature, a new sweep", "Temperature", "collapse"),
            ("seed, other queries and keys", "Seed", "collapse"),
            ("temperature, gradients", "Temperature", "learning"),
        ):
            settings = {"seed": 1, "d_k": 1, "show": show}
            page = Watched(self.browser, self.app.url, settings, path="saturation", watch="watchPlots")
            page.slider(label).focus()
            taken = [page.press() for _ in range(self.rounds + WARM_UPS)][WARM_UPS:]
            page.close()
            yield milliseconds(f"live plane: a page of three curves ({name})", taken, 90, 150)

    def live_masks(self) -> Iterator[Row]:
        """Press an arrow key on the masks page: mask, thumbnail and chart follow; then the tiles of a long mask."""
        base = {"mask": "sliding_window", "window": 4}
        for name, settings, most, most_p95 in (
            ("a mask of 256², gallery and chart", {**base, "length": 256}, 60, 100),
            ("512² tiles of a mask of 4096²", {**base, "length": 4096, "section": "blocks", "tile": 8}, 60, 100),
        ):
            page = Watched(self.browser, self.app.url, settings, path="masks")
            page.slider("Window").focus()
            taken = [page.press() for _ in range(self.rounds + WARM_UPS)][WARM_UPS:]
            page.close()
            yield milliseconds(f"live plane: {name}", taken, most, most_p95)

    def live_others(self) -> Iterator[Row]:
        """Press an arrow key on the main slider of the other pages: their largest map, or all their plots, follow."""
        for path, label, settings, watch in (
            (
                "kv_cache",
                "Token generated",
                {"step": 1, "prompt": 1, "text": " ".join("abcdefghijklmnopqrstuvwxyz")},
                "",
            ),
            ("linear", "Tokens read", {"step": 2, "length": 64}, ""),
            ("variants", D_K, {"d_k": 8, "heads": 8, "kv_heads": 2}, ""),
            ("flash", "Step", {"step": 1}, "watchPlots"),
            ("why_attention", "Recurrent weights ×", {"gain": 0.5}, "watchPlots"),
        ):
            page = Watched(self.browser, self.app.url, settings, path=path, watch=watch or "attach")
            page.slider(label).focus()
            taken = [page.press() for _ in range(self.rounds + WARM_UPS)][WARM_UPS:]
            page.close()
            budget = (90, 150) if watch else (60, 100)
            yield milliseconds(f"live plane: {path}, {label}", taken, *budget)

    def drag(self) -> Iterator[Row]:
        """Drag the scale factor, whose track has a value for every pixel, so that no picture comes from a cache."""
        rates, tails = [], []
        for seed in range(3):
            page = Watched(self.browser, self.app.url, {**ONE, "d_k": 64, "scale": "custom", "seed": 20 + seed})
            rate, tail = page.drag("Scale factor", "scale_value")
            rates.append(rate)
            tails.append(tail)
            page.close()
        rate, tail = statistics.median(rates), max(tails)
        measured = f"{rate:.0f} repaints/s, tail {tail:.0f} ms"
        yield Row("dragging, one head × 256²", measured, "30 repaints/s, tail 100 ms", rate >= 30 and tail <= 100)

    def burst(self) -> Iterator[Row]:
        """Press 30 arrow keys in a row, once for counting and once under a screencast."""
        counts, tails = [], []
        for seed in range(3):
            page = Watched(self.browser, self.app.url, {**ONE, "seed": 30 + seed})
            page.slider(D_K).focus()
            count, tail = page.burst(KEYS)
            counts.append(count)
            tails.append(tail)
            page.close()
        page = Watched(self.browser, self.app.url, {**ONE, "seed": 40})
        page.slider(D_K).focus()
        blank, frames = page.blank_frames(KEYS)
        page.close()
        fewest, tail = min(counts), max(tails)
        measured = f"{fewest} pictures, tail {tail:.0f} ms, {blank} blank of {frames} frames"
        budget = "28 pictures, tail 100 ms, 0 blank"
        passed = fewest >= 28 and tail <= 100 and blank == 0 and frames >= 28
        yield Row(f"{KEYS} arrow keys 60 ms apart", measured, budget, passed)

    def rest_of_page(self) -> Iterator[Row]:
        """Let a slider go and wait for the words; then switch a control that is not live and wait for the picture."""
        window = {"mask": "sliding_window", "window": 4, "length": 256}
        for path, label, settings, control, key in (
            ("attention", D_K, {**EIGHT, "seed": 50, "log": "1"}, "log", "Space"),
            ("masks", "Window", window, "invert", "Space"),
            # Every control of this page that a key can move is live.
            ("saturation", "Temperature", {"seed": 70}, None, None),
        ):
            watch = "watchPlots" if path == "saturation" else "attach"
            page = Watched(self.browser, self.app.url, settings, path=path, watch=watch)
            page.page.evaluate("attnvizProbe.watchPage()")
            shares = [0.1 + 0.8 * index / (self.rounds + WARM_UPS) for index in range(self.rounds + WARM_UPS)]
            released = [page.click_track(label, share) for share in shares][WARM_UPS:]
            yield milliseconds(f"the rest of the page after release: {path}", released, 250, 400)
            if control is None:
                page.close()
                continue
            page.page.locator(f".st-key-{path}-{control} input").focus()
            switched = [page.press(key) for _ in range(self.rounds + WARM_UPS)][WARM_UPS:]
            page.close()
            yield milliseconds(f"a control that is not live: {path}, {control}", switched, 250, 400)

    def first_paint(self) -> Iterator[Row]:
        """Start a server and visit it, then visit a running one, each time as a new visitor."""
        for page in ("home", "attention", "masks", "saturation"):
            path = "" if page == entries()[0].key else page
            watch = "watchStrips" if page == "saturation" else "attach"
            cold, later = [], []
            for _ in range(3):
                begun = time.perf_counter()
                server = Server("app.py")
                try:
                    self._visit(f"{server.url}/{path}", watch)
                    cold.append(time.perf_counter() - begun)
                finally:
                    server.stop()
            for _ in range(5):
                later.append(self._visit(f"{self.app.url}/{path}", watch))
            measured = f"{statistics.median(cold):.2f} / {statistics.median(later):.2f} s"
            passed = statistics.median(cold) <= 4 and statistics.median(later) <= 1.2
            yield Row(f"server start to first paint, cold / later: {page}", measured, "4 / 1.2 s", passed)

    def _visit(self, address: str, watch: str) -> float:
        """Visit with an empty cache; give the seconds from the start of the navigation, by the page's own clock."""
        tab = open_tab(self.browser, f"{address}?lang=en", script=PROBE, wait=False)
        painted = float(tab.page.evaluate(f"attnvizProbe.{watch}()"))
        tab.context.close()
        return painted / 1000

    def page_to_page(self) -> Iterator[Row]:
        """Go from page to page by the navigation, until the new page has drawn its words; needs two pages."""
        keys = [entry.key for entry in entries()]
        if len(keys) < 2:
            return
        tab = open_tab(self.browser, f"{self.app.url}/?lang=en", script=PROBE)
        times = []
        for key in [*keys[1:], keys[0]] * 2:
            tab.page.evaluate("attnvizProbe.watchPage()")
            go_to(tab.page, "" if key == keys[0] else key)
            tab.page.wait_for_timeout(300)
            wait_idle(tab.page)
            times.append(float(tab.page.evaluate("attnvizProbe.touched - attnvizProbe.release")))
        tab.context.close()
        median, p95 = median_p95(times)
        yield Row("page to page", f"{median / 1000:.2f} / {p95 / 1000:.2f} s", "0.5 s", median <= 500)

    def first_bars(self) -> Iterator[Row]:
        """Press an arrow key on the benchmark page and wait for the first bar that was measured at the new length."""
        taken: list[float] = []
        for heads in (4, 8):
            page = Watched(
                self.browser, self.app.url, {"length": 128, "heads": heads}, path="benchmark", watch="watchPlots"
            )
            ended = page.page.get_by_text("Measured.", exact=True)
            ended.wait_for(timeout=60_000)
            # 256, 512 and 1,024 tokens.
            for _ in range(3):
                page.slider("Length").focus()
                page.page.evaluate("globalThis.firstBar = attnvizProbe.measured('.st-key-benchmark-time'), null")
                page.page.keyboard.press("ArrowRight")
                taken.append(float(page.page.evaluate("firstBar")))
                ended.wait_for(timeout=60_000)
            page.close()
        most = max(taken)
        measured = f"{statistics.median(taken) / 1000:.2f} s, at most {most / 1000:.2f} s (n = {len(taken)})"
        yield Row("benchmark: first measured bar, 256 to 1,024 tokens", measured, "1 s", most <= 1000)

    def update_bytes(self) -> Iterator[Row]:
        """Add up what one movement and one release send to the browser."""
        for name, settings in (("8 heads × 256²", EIGHT), ("one head × 1024²", LARGE)):
            answers: list[Response] = []
            received: list[int] = []
            page = Watched(self.browser, self.app.url, {**settings, "seed": 60})
            page.page.on("response", lambda answer, into=answers: into.append(answer))
            for socket in page.tab.sockets:
                socket.on("framereceived", lambda payload, into=received: into.append(len(payload)))
            page.slider(D_K).focus()
            page.press()
            moved = max(int(answer.headers["content-length"]) for answer in answers if "/live/" in answer.url)
            page.close()
            most = max(moved, sum(received))
            measured = f"{moved / 1e6:.2f} MB live, {sum(received) / 1e6:.2f} MB on release"
            yield Row(f"update sent to the browser: {name}", measured, "2.2 MB", most <= MOST_BYTES)


ROWS = (
    "live_eight",
    "live_large",
    "live_curves",
    "live_masks",
    "live_others",
    "drag",
    "burst",
    "rest_of_page",
    "first_paint",
    "page_to_page",
    "first_bars",
    "update_bytes",
)


def main() -> int:
    """Measure and print the table; give 0 when every row is within its budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="updates measured per row (default 15)")
    parser.add_argument("--rows", nargs="*", default=ROWS, choices=ROWS, help="only these rows")
    asked = parser.parse_args()
    app, plotly = Server("app.py"), Server("tests/browser/apps/plotly_app.py")
    rows: list[Row] = []
    try:
        with sync_playwright() as playwright:
            print(f"{os.cpu_count()} cores; median / 95th percentile", flush=True)
            for name in asked.rows:
                # A browser of its own for each: one that has drawn a hundred large pages is slower than a visitor's.
                browser = launch(playwright)
                for row in getattr(Bench(browser, app, plotly, asked.rounds), name)():
                    rows.append(row)
                    print(f"{'ok' if row.passed else 'OVER':<5} {row.name:<50} {row.measured:<50} budget {row.budget}")
                    sys.stdout.flush()
                browser.close()
    finally:
        app.stop()
        plotly.stop()
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
