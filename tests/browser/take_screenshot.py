"""Take the README's picture of the real app in a real Chromium: ``python tests/browser/take_screenshot.py``."""

import argparse
import sys
from pathlib import Path
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from playwright.sync_api import expect, sync_playwright

from tests.browser.driver import launch, open_tab
from tests.browser.server import Server

PICTURE = Path(__file__).with_name("screenshot.png")
MOST_BYTES = 250_000
# One head that fills the picture, with a selected cell and its row beside it.
VIEW = {"lang": "en", "d_k": "16", "head": "1", "cell": "1,7,3"}
# Streamlit says it is done before its widgets' code has loaded; until then grey boxes stand for them.
SKELETON = '[data-testid="stSkeleton"]'
DRAWN = ("canvas >> nth=1", ".bars path >> nth=0")
SETTLE_MS = 1000


def main() -> int:
    """Write the picture; give 1 if the page complained or the file is too large for the repository."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", default="attention", help="page of the address")
    parser.add_argument("--link", default=urlencode(VIEW), help="settings after the ? of the address")
    parser.add_argument("--to", type=Path, default=PICTURE, help="file to write")
    parser.add_argument("--dark", action="store_true", help="as a visitor with a dark screen sees it")
    asked = parser.parse_args()
    server = Server("app.py")
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            scheme = "dark" if asked.dark else "light"
            tab = open_tab(browser, f"{server.url}/{asked.page}?{asked.link}", color_scheme=scheme)
            for mark in DRAWN:
                tab.page.locator(mark).wait_for(state="attached")
            expect(tab.page.locator(SKELETON)).to_have_count(0)
            tab.page.wait_for_timeout(SETTLE_MS)
            tab.page.screenshot(path=asked.to)
            browser.close()
    finally:
        server.stop()
    size = asked.to.stat().st_size
    print(f"{asked.to}: {size} bytes")
    for problem in tab.problems:
        print(problem)
    return int(bool(tab.problems) or size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
