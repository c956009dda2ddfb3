"""What the server keeps of files that never change."""

from collections.abc import Mapping

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pages.ui.kept import KeptFiles

FOREVER = {"cache-control": "public, immutable, max-age=31536000"}
BODY = b"0123456789" * 10


def client(
    asked: list[str], *, status: int = 200, headers: Mapping[str, str] = FOREVER, most: int = 1000
) -> TestClient:
    async def file(request: Request) -> Response:
        asked.append(request.url.path)
        body = BODY if "gzip" not in request.headers["accept-encoding"] else BODY[::-1]
        return Response(body, status, dict(headers), "text/javascript")

    async def parts(request: Request) -> Response:
        asked.append(request.url.path)
        return StreamingResponse((BODY[start : start + 7] for start in range(0, 100, 7)), status, dict(headers))

    routes = [Route("/parts", parts), Route("/{name}", file)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(KeptFiles, most=most)]))


@pytest.mark.parametrize("path", ["/a", "/parts"])
def test_what_never_changes_is_read_once_and_answered_alike(path):
    asked: list[str] = []
    browser = client(asked)
    first, second = (browser.get(path, headers={"accept-encoding": "br"}) for _ in range(2))
    assert first.content == second.content == BODY and asked == [path]
    assert dict(second.headers) == dict(first.headers) and "immutable" in second.headers["cache-control"]


def test_each_address_and_encoding_has_its_own_answer():
    asked: list[str] = []
    browser = client(asked)
    for _ in range(2):
        assert browser.get("/a", headers={"accept-encoding": "gzip"}).content == BODY[::-1]
        assert browser.get("/a", headers={"accept-encoding": ""}).content == BODY
        browser.get("/b", headers={"accept-encoding": ""})
    assert asked == ["/a", "/a", "/b"]


@pytest.mark.parametrize(
    "given",
    [
        {"headers": {"cache-control": "no-cache"}},
        {"headers": {}},
        {"headers": FOREVER | {"set-cookie": "a=1"}},
        {"status": 404},
        {"status": 206},
        {"most": 99},
        {"most": 0},
    ],
    ids=str,
)
def test_all_else_is_asked_again(given):
    asked: list[str] = []
    browser = client(asked, **given)
    assert browser.get("/a").status_code == browser.get("/a").status_code == given.get("status", 200)
    assert len(asked) == 2


def test_what_is_kept_is_bounded():
    asked: list[str] = []
    browser = client(asked, most=250)
    for name in "abcabc":
        assert browser.get(f"/{name}", headers={"accept-encoding": ""}).content == BODY
    assert asked == ["/a", "/b", "/c", "/c"]


@pytest.mark.parametrize("header", ["range", "if-none-match", "if-modified-since", "if-range"])
def test_a_request_for_less_than_the_whole_file_reaches_the_app(header):
    asked: list[str] = []
    browser = client(asked)
    for given in ({}, {header: "x"}, {}):
        browser.get("/a", headers=given)
    assert len(asked) == 2
    assert client(asked).head("/a").status_code == 200 and len(asked) == 3
