"""Find the Chromium that the browser tests drive; standard library only, because the test command runs it first."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

VARIABLES = ("CHROMIUM", "CHROME_BIN", "PLAYWRIGHT_CHROMIUM_EXECUTABLE_PATH")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
)
# Playwright is asked in a process of its own: its driver cannot be started twice in one.
ASK_PLAYWRIGHT = (
    "from playwright.sync_api import sync_playwright\n"
    "with sync_playwright() as driver:\n"
    "    print(driver.chromium.executable_path)\n"
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium(python: str = sys.executable) -> str | None:
    """Give the path of a Chromium to drive.

    A path in an environment variable of ``VARIABLES`` comes first, then a browser on the search path, then the one that
    Playwright installed for itself.

    Args:
        python: The interpreter that has Playwright.

    Returns:
        The path, or None when there is no browser.

    Raises:
        ValueError: If a variable is set and names no file.
    """
    for variable in VARIABLES:
        named = os.environ.get(variable)
        if named:
            if not Path(named).is_file():
                raise ValueError(f"{variable} must be the path of a browser, got {named!r}")
            return named
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found
    for place in PLACES:
        if Path(place).is_file():
            return place
    asked = subprocess.run([python, "-c", ASK_PLAYWRIGHT], capture_output=True, text=True, timeout=60, check=False)
    own = asked.stdout.strip()
    return own if asked.returncode == 0 and own and Path(own).is_file() else None
