"""Press keys and drag in a page, and say how long it took until the picture had changed."""

import base64
import io
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image, ImageStat
from playwright.sync_api import Browser, Locator, Page

from tests.browser.driver import open_tab, wait_idle

PROBE = (Path(__file__).parent / "probe.js").read_text(encoding="utf-8")
# A slider counts as let go 200 ms after its last key; then comes the rerun.
QUIET_MS = 300
BETWEEN_KEYS_MS = 60
DRAG_STEPS = 120
DRAG_S = 2.0
# A frame with less than this share of the usual variation of grey in the picture's place is blank.
BLANK_SHARE = 0.3


def median_p95(values: Sequence[float]) -> tuple[float, float]:
    """Give the median and the 95th percentile."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]


class Watched:
    """Hold a page whose paints are timed.

    Args:
        browser: The browser.
        base: The server's address.
        settings: The page's parameters.
        path: The page.
        watch: What counts as its picture: ``attach`` for heatmaps, ``watchPlots`` for plots that follow a slider,
            ``watchTitle`` for charts of ``st.plotly_chart``.
    """

    def __init__(
        self, browser: Browser, base: str, settings: dict[str, Any], *, path: str = "attention", watch: str = "attach"
    ):
        self.tab = open_tab(browser, f"{base}/{path}?{urlencode({**settings, 'lang': 'en'})}", script=PROBE)
        self.page: Page = self.tab.page
        self.page.evaluate(f"attnvizProbe.{watch}()")
        self.rest()

    def close(self) -> None:
        """Close the page and whatever belongs to its visitor."""
        self.tab.context.close()

    def slider(self, label: str) -> Locator:
        """Give the slider with this label."""
        return self.page.get_by_role("slider", name=label).first

    def rest(self) -> None:
        """Wait until a slider counts as let go and the page has followed."""
        self.page.wait_for_timeout(QUIET_MS)
        wait_idle(self.page)

    def press(self, key: str = "ArrowRight") -> float:
        """Press a key and give the milliseconds until the picture was painted, then let the page come to rest."""
        count = self.page.evaluate("attnvizProbe.paints.length")
        self.page.keyboard.press(key)
        taken = float(self.page.evaluate(f"attnvizProbe.after({count})"))
        self.rest()
        return taken

    def paints(self, name: str, start: int) -> list[tuple[float, str]]:
        """Give time and value of the parameter ``name`` for each paint from number ``start`` on, repeats left out."""
        seen: list[tuple[float, str]] = []
        for paint in self.page.evaluate(f"attnvizProbe.paints.slice({start})"):
            value = str(json.loads(paint["what"]).get(name))
            if not seen or seen[-1][1] != value:
                seen.append((float(paint["t"]), value))
        return seen

    def burst(self, keys: int) -> tuple[int, float]:
        """Press ArrowRight on the focused d_k slider ``keys`` times.

        Returns:
            The number of pictures shown and the milliseconds from the last key to the last of them.
        """
        start = self.page.evaluate("attnvizProbe.paints.length")
        begun = time.perf_counter()
        for index in range(keys):
            self.page.keyboard.press("ArrowRight")
            left = begun + (index + 1) * BETWEEN_KEYS_MS / 1000 - time.perf_counter()
            if left > 0:
                self.page.wait_for_timeout(1000 * left)
        last = self.page.evaluate("attnvizProbe.input")
        self.rest()
        pictures = self.paints("d_k", start)
        return len(pictures), (pictures[-1][0] - last) if pictures else float("inf")

    def drag(self, label: str, name: str) -> tuple[float, float]:
        """Drag a slider across its track for ``DRAG_S`` seconds.

        Returns:
            Repaints per second while it moved, and the milliseconds from the last movement to the last repaint.
        """
        box = self.slider(label).bounding_box()
        assert box is not None
        y = box["y"] + box["height"] / 2
        left, right = box["x"] + 0.1 * box["width"], box["x"] + 0.9 * box["width"]
        self.page.mouse.move(left, y)
        self.page.mouse.down()
        self.page.wait_for_timeout(QUIET_MS)
        start, begun = self.page.evaluate("[attnvizProbe.paints.length, performance.now()]")
        began = time.perf_counter()
        for step in range(1, DRAG_STEPS + 1):
            self.page.mouse.move(left + (right - left) * step / DRAG_STEPS, y)
            wait = began + step * DRAG_S / DRAG_STEPS - time.perf_counter()
            if wait > 0:
                self.page.wait_for_timeout(1000 * wait)
        moved = self.page.evaluate("attnvizProbe.move")
        self.page.wait_for_timeout(QUIET_MS)
        pictures = self.paints(name, start)
        self.page.mouse.up()
        self.rest()
        during = sum(t <= moved for t, _ in pictures)
        return 1000 * during / (moved - begun), max(0.0, pictures[-1][0] - moved) if pictures else float("inf")

    def click_track(self, label: str, share: float) -> float:
        """Click a slider's track and give the milliseconds from letting go until the page's words had followed."""
        box = self.slider(label).bounding_box()
        assert box is not None
        self.page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        self.rest()
        return float(self.page.evaluate("attnvizProbe.touched - attnvizProbe.release"))

    def blank_frames(self, keys: int) -> tuple[int, int]:
        """Record what the compositor shows during a burst.

        Returns:
            The number of frames in which the picture's place was empty, and of all frames.
        """
        box = self.page.evaluate("(r => [r.left, r.top, r.right, r.bottom])(attnvizProbe.host.getBoundingClientRect())")
        session = self.page.context.new_cdp_session(self.page)
        frames: list[str] = []

        def take(event: dict[str, Any]) -> None:
            frames.append(event["data"])
            session.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

        session.on("Page.screencastFrame", take)
        session.send("Page.startScreencast", {"format": "jpeg", "quality": 70, "everyNthFrame": 1})
        self.burst(keys)
        session.send("Page.stopScreencast")
        session.detach()
        spread = [_variation(frame, box) for frame in frames]
        usual = statistics.median(spread)
        return sum(value < BLANK_SHARE * usual for value in spread), len(spread)


def _variation(frame: str, box: Sequence[float]) -> float:
    """Give the standard deviation of grey inside ``box`` of a base64 picture."""
    image = Image.open(io.BytesIO(base64.b64decode(frame))).convert("L")
    return ImageStat.Stat(image.crop(tuple(round(edge) for edge in box))).stddev[0]  # type: ignore[arg-type]
