"""The route that serves plotly.js, once per browser, from the installed plotly package."""

import asyncio
import gzip
from functools import cache
from importlib.metadata import version
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pages.ui.live import prefixes

# What the head of a page calls the script where it loads it from the start.
EARLY = "attnviz-plotly"
PATH = f"/live-assets/plotly-{version('plotly')}.min.js"
_HEADERS = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}


# The library is one function, given to another: a browser then reads it twice, the second time while the page waits.
# In parentheses it is compiled while it comes in.
_OPENS, _OPENS_EAGERLY = b"? self : this, () => {", b"? self : this, (function () {"
_ENDS, _ENDS_EAGERLY = b"}));", b"}).bind(this)));"


def eager(plain: bytes) -> bytes:
    """Have the browser compile the whole script at once; one of another form stays as it is."""
    if plain.count(_OPENS) != 1 or not plain.rstrip().endswith(_ENDS):
        return plain
    return plain.replace(_OPENS, _OPENS_EAGERLY).rstrip().removesuffix(_ENDS) + _ENDS_EAGERLY + b"\n"


@cache
def _script(packed: bool) -> bytes:
    plain = eager(files("plotly").joinpath("package_data", "plotly.min.js").read_bytes())
    return gzip.compress(plain, 6, mtime=0) if packed else plain


async def _answer(request: Request) -> Response:
    packed = "gzip" in request.headers.get("accept-encoding", "")
    # Packed once for everyone, off the event loop; the server's own gzip would pack it for each visitor again.
    body = await asyncio.to_thread(_script, packed)
    encoding = {"Content-Encoding": "gzip" if packed else "identity"}
    return Response(body, headers={**_HEADERS, **encoding}, media_type="text/javascript")


def asset_routes() -> list[Route]:
    """Give the routes for ``st.App``: the address carries the version, so browsers may keep the answer for good."""
    return [Route(prefix + PATH, _answer, methods=["GET"]) for prefix in prefixes()]
