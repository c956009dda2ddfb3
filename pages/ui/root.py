"""Give each browser at once what Streamlit would send late: where the app's root is, and the pages' style."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages import entries
from pages.ui.plot.asset import EARLY, PATH
from pages.ui.style import STYLE

# What would have the page answered as "unchanged" or packed, and what no longer fits it once it is changed.
_ASKED = (b"accept-encoding", b"if-none-match", b"if-modified-since")
_ANSWERED = (b"content-length", b"etag", b"last-modified")


def script() -> str:
    """Give the script for the head of every page, as HTML.

    Streamlit's page otherwise looks for its server below the page's own address first: a link to any page but the
    first one then waits for an answer that nothing is there, and the browser's console calls it an error. Where the
    first picture is a chart, its library is on its way before Streamlit's own code asks for it.
    """
    keys = "|".join(entry.key for entry in entries())
    charts = "|".join(entry.key for entry in entries() if entry.charts)
    return f"""<script>{{
  const root = location.pathname.replace(/\\/({keys})\\/?$/, "/")
  window.__streamlit = {{ BACKEND_BASE_URL: location.origin + root, ...window.__streamlit }}
  if (/\\/({charts})\\/?$/.test(location.pathname)) {{
    const early = document.createElement("script")
    const failed = () => globalThis.Plotly || early.remove()
    const src = root.replace(/\\/$/, "") + "{PATH}"
    Object.assign(early, {{ id: "{EARLY}", src, onload: failed, onerror: failed }})
    document.head.append(early)
  }}
}}</script>"""


class KnownRoot:
    """Put ``script`` and the style into the head of every HTML page that ``app`` answers with."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.added = app, (script() + STYLE).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] != "GET" or b"text/html" not in _header(scope, b"accept"):
            await self.app(scope, receive, send)
            return
        asked = [(name, value) for name, value in scope["headers"] if name.lower() not in _ASKED]
        await self.app({**scope, "headers": asked}, receive, self._changed(send))

    def _changed(self, send: Send) -> Send:
        held: list[Message] = []

        async def changed(message: Message) -> None:
            if message["type"] == "http.response.start" and b"text/html" in _header(message, b"content-type"):
                held.append(message)
                return
            if not held:
                await send(message)
                return
            held.append(message)
            if message.get("more_body"):
                return
            start, *parts = held
            held.clear()
            body = b"".join(part.get("body", b"") for part in parts).replace(b"<head>", b"<head>" + self.added, 1)
            kept = [(name, value) for name, value in start["headers"] if name.lower() not in _ANSWERED]
            await send({**start, "headers": [*kept, (b"content-length", str(len(body)).encode())]})
            await send({"type": "http.response.body", "body": body})

        return changed


def _header(message: Scope | Message, name: bytes) -> bytes:
    return b", ".join(value for key, value in message["headers"] if key.lower() == name)
