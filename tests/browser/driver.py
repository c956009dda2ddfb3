"""Open pages in Chromium, wait until Streamlit is done, and remember everything that went wrong."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, FloatRect, Locator, Page, Playwright, WebSocket

from tests.chromium import FLAGS, find_chromium

WAIT_MS = 30_000
DESKTOP = (1280, 720)
PHONE = (390, 844)
LOCAL_HOSTS = ("127.0.0.1", "localhost")

# True once the page has drawn something, no script has been running for 150 ms, and nothing shown is left over from an
# earlier run. A single look is not enough: just after a click the new run has not begun yet.
IDLE = """() => {
  const app = document.querySelector('[data-testid="stApp"]');
  const main = document.querySelector('[data-testid="stMainBlockContainer"]');
  const still = app && main
    && app.getAttribute('data-test-connection-state') === 'CONNECTED'
    && app.getAttribute('data-test-script-state') === 'notRunning'
    && main.querySelector('[data-testid="stElementContainer"], [data-testid="stException"]')
    && !document.querySelector('[data-stale="true"]');
  const now = performance.now();
  if (!still) { window.__idleSince = undefined; return false; }
  window.__idleSince ??= now;
  return now - window.__idleSince >= 150;
}"""

# The window's rectangle of an element, once it has been the same for eight frames.
RESTING = """element => new Promise((resolve, reject) => {
  const end = performance.now() + 30000
  let last = "", same = 0
  const look = () => {
    const { x, y, width, height } = element.getBoundingClientRect()
    const now = JSON.stringify({ x, y, width, height })
    same = now === last ? same + 1 : 0
    last = now
    if (same >= 8 && width > 0) resolve({ x, y, width, height })
    else if (performance.now() > end) reject(new Error(`never rests: ${now}`))
    else requestAnimationFrame(look)
  }
  look()
})"""


def launch(playwright: Playwright) -> Browser:
    """Start the Chromium that ``find_chromium`` names.

    Raises:
        RuntimeError: If there is none.
    """
    path = find_chromium()
    if path is None:
        raise RuntimeError("no Chromium found; `python tests/run.py` installs one")
    return playwright.chromium.launch(executable_path=path, args=list(FLAGS))


def wait_idle(page: Page, timeout: float = WAIT_MS) -> None:
    """Wait until the page's script has finished and everything it sent is drawn.

    Args:
        page: The page.
        timeout: Milliseconds after which to give up.
    """
    page.evaluate("window.__idleSince = undefined")
    page.wait_for_function(IDLE, timeout=timeout, polling=50)


def resting_box(locator: Locator) -> FloatRect:
    """Give where something is in the window once it has stayed there for eight frames on end.

    Parts above a picture may still grow after the page's script has ended; a point read meanwhile is another cell's.

    Raises:
        playwright.sync_api.Error: If it does not rest within half a minute.
    """
    return locator.evaluate(RESTING)


def go_to(page: Page, path: str) -> None:
    """Go to another page by the navigation at the top, whose sections open when clicked."""
    link = page.locator(f'[data-testid^="stTopNav"][href$="/{path}"]')
    for section in page.get_by_test_id("stTopNavSection").all():
        if link.count():
            break
        section.click()
        link.or_(page.get_by_test_id("stTopNavDropdownLink")).first.wait_for()
    link.click()


@dataclass
class Tab:
    """Hold one opened page, its connections to the server and what it complained about."""

    context: BrowserContext
    page: Page
    allowed: Sequence[str] = ()
    problems: list[str] = field(default_factory=list)
    sockets: list[WebSocket] = field(default_factory=list)

    def note(self, problem: str) -> None:
        """Remember a problem unless it matches one of the allowed patterns."""
        if not any(re.search(pattern, problem) for pattern in self.allowed):
            self.problems.append(problem)


def _console(tab: Tab, message: ConsoleMessage) -> None:
    if message.type == "error":
        tab.note(f"console error: {message.text} ({message.location.get('url', '')})")


def _request(tab: Tab, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in LOCAL_HOSTS:
        tab.note(f"request to another machine: {url}")


def _connection(tab: Tab, socket: WebSocket) -> None:
    tab.sockets.append(socket)
    _request(tab, socket.url)


def open_tab(
    browser: Browser,
    url: str,
    *,
    locale: str = "en-US",
    color_scheme: str = "light",
    viewport: tuple[int, int] = DESKTOP,
    allow: Sequence[str] = (),
    touch: bool = False,
    wait: bool = True,
    script: str | None = None,
) -> Tab:
    """Open ``url`` as a new visitor.

    Args:
        browser: The browser.
        url: Full address.
        locale: The visitor's language, such as "zh-CN".
        color_scheme: "light" or "dark".
        viewport: Width and height in CSS pixels.
        allow: Patterns (``re.search``) of problems that this test expects.
        touch: Whether the visitor has a touch screen.
        wait: Whether to wait until the page's script has finished.
        script: JavaScript that runs before anything of the page does.

    Returns:
        The tab; its context is the caller's to close.
    """
    width, height = viewport
    context = browser.new_context(
        locale=locale,
        color_scheme=color_scheme,  # pyright: ignore[reportArgumentType]
        viewport={"width": width, "height": height},
        has_touch=touch,
    )
    if script is not None:
        context.add_init_script(script)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    tab = Tab(context, page, allow)
    page.on("console", lambda message: _console(tab, message))
    page.on("pageerror", lambda error: tab.note(f"page error: {error}"))
    page.on("request", lambda request: _request(tab, request.url))
    page.on("websocket", lambda socket: _connection(tab, socket))
    page.goto(url, wait_until="domcontentloaded")
    if wait:
        wait_idle(page)
    return tab
