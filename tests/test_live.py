"""The live routes: what they answer, what they refuse, and that they neither block nor grow."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import httpx2
import pytest
import streamlit as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from attnviz.text import Refusal, Text
from pages.ui import live

LONG_S = 20.0  # how long a blocked computation waits before it gives up and the test fails


def echo(params: Mapping[str, str]) -> bytes:
    if "refuse" in params:
        raise Refusal(Text("d_k must be a whole number.", "d_k 应为整数。"))
    if "crash" in params:
        raise RuntimeError("secret of /srv/machine")
    return ";".join(f"{name}={value}" for name, value in params.items()).encode()


def cell(params: Mapping[str, str]) -> dict[str, object]:
    return {"value": params["row"], "unit": "个"}


def app(figures: Mapping[str, live.Figure], desk: live.Desk | None = None) -> Starlette:
    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    return Starlette(routes=[*live.make_routes(figures, desk), Route("/health", health)])


@pytest.fixture
def client() -> TestClient:
    return TestClient(app({"echo": live.Figure(echo, cell), "flat": live.Figure(echo)}))


def run(figures: Mapping[str, live.Figure], desk: live.Desk, story: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Let several requests be under way at once on one event loop."""

    async def tell() -> None:
        transport = httpx2.ASGITransport(app(figures, desk))
        async with httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
            await story(client)

    asyncio.run(tell())


class Gate:
    """A figure that waits until it is let through, and counts how often it was computed."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = threading.Semaphore(0)
        self.count = 0

    def __call__(self, params: Mapping[str, str]) -> bytes:
        self.count += 1
        self.begun.release()
        if not self.open.wait(LONG_S):
            raise TimeoutError
        return b"frame"

    async def wait_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=LONG_S)


def test_a_frame_is_bytes_that_nothing_stores_or_compresses(client: TestClient) -> None:
    answer = client.get("/live/echo?d_k=64&lang=zh&text=a%26b%20%E4%B8%AD&empty=")
    assert answer.status_code == 200
    assert answer.content.decode() == "d_k=64;lang=zh;text=a&b 中;empty="
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-encoding"] == "identity"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_cell_is_json(client: TestClient) -> None:
    answer = client.get("/live/echo/cell?row=3")
    assert answer.json() == {"value": "3", "unit": "个"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/live/nothing", 404, "no such picture"),
        ("/live/flat/cell?row=1", 404, "no such picture"),
        ("/live/__class__", 404, "no such picture"),
        ("/live/%2e%2e%2fetc", 404, None),
        ("/live/echo?a=1&a=2", 400, "'a' is given more than once"),
        ("/live/echo?%61=1&a=2", 400, "'a' is given more than once"),
        ("/live/echo?a", 400, "cannot be read"),
        ("/live/echo?a=%ff", 400, "cannot be read"),
        ("/live/echo?" + "&".join(f"a{i}=1" for i in range(live.FIELD_LIMIT + 1)), 400, "cannot be read"),
        ("/live/echo?a=" + "x" * live.QUERY_LIMIT, 414, "49,152"),
        ("/live/echo?refuse=1", 422, "d_k must be a whole number."),
        ("/live/echo?crash=1", 500, "could not be computed"),
    ],
)
def test_what_is_refused_gets_one_sentence(client: TestClient, path: str, status: int, words: str | None) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    if words is not None:
        assert words in answer.json()["error"]
        assert answer.headers["content-encoding"] == "identity"


@pytest.mark.parametrize("path", ["?refuse=1", "?a=1&a=2", "?a", "?crash=1", "?a=" + "x" * live.QUERY_LIMIT])
def test_a_refusal_is_in_the_asked_language(client: TestClient, path: str) -> None:
    english = client.get(f"/live/echo{path}").json()["error"]
    chinese = client.get(f"/live/echo?lang=zh&{path[1:]}").json()["error"]
    unknown = client.get(f"/live/echo?lang=xx&{path[1:]}").json()["error"]
    assert english.isascii()
    assert not chinese.isascii()
    assert unknown == english


def test_a_crash_is_logged_and_not_told(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    answer = client.get("/live/echo?crash=1")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "secret of /srv/machine" in caplog.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_get_and_head(client: TestClient, method: str) -> None:
    assert client.request(method, "/live/echo?a=1").status_code == 405
    assert client.head("/live/echo?a=1").status_code == 200


def test_other_sites_are_refused_and_the_app_itself_is_not(client: TestClient) -> None:
    assert client.get("/live/echo?a=1", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.get("/live/echo?a=1", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_parameters_cannot_be_changed_by_a_figure() -> None:
    def greedy(params: Mapping[str, str]) -> bytes:
        params["a"] = "2"  # type: ignore[index]
        return b""

    assert TestClient(app({"greedy": live.Figure(greedy)})).get("/live/greedy?a=1").status_code == 500


def test_a_slow_figure_does_not_block_the_event_loop() -> None:
    gate = Gate()

    async def story(client: Any) -> None:
        slow = asyncio.create_task(client.get("/live/slow"))
        await gate.wait_begun()
        assert (await client.get("/health")).text == "ok"
        assert (await client.get("/live/echo?a=1")).text == "a=1"
        assert not slow.done()
        gate.open.set()
        assert (await slow).content == b"frame"

    run({"slow": live.Figure(gate), "echo": live.Figure(echo)}, live.Desk(workers=2), story)


def test_a_figure_that_is_busy_holds_up_no_other() -> None:
    gate = Gate()

    async def story(client: Any) -> None:
        slow = [asyncio.create_task(client.get(f"/live/slow?a={index}")) for index in range(live.WORKERS + 1)]
        await gate.wait_begun()
        assert (await asyncio.wait_for(client.get("/live/echo?a=1"), 20)).text == "a=1"
        assert not any(task.done() for task in slow)
        gate.open.set()
        assert {(await task).status_code for task in slow} == {200}

    run({"slow": live.Figure(gate), "echo": live.Figure(echo)}, None, story)


def test_equal_requests_are_computed_once_then_cached() -> None:
    gate = Gate()

    async def story(client: Any) -> None:
        # Order of the parameters does not matter.
        paths = ["/live/slow?a=1&b=2", "/live/slow?b=2&a=1", "/live/slow?a=1&b=2"]
        tasks = [asyncio.create_task(client.get(path)) for path in paths]
        await gate.wait_begun()
        gate.open.set()
        assert [answer.content for answer in await asyncio.gather(*tasks)] == [b"frame"] * 3
        assert gate.count == 1
        assert (await client.get("/live/slow?a=1&b=2")).content == b"frame"
        assert gate.count == 1
        await client.get("/live/slow?a=1&b=3")
        assert gate.count == 2

    run({"slow": live.Figure(gate)}, live.Desk(workers=2), story)


def test_a_visitor_who_leaves_does_not_spoil_it_for_the_others() -> None:
    gate = Gate()

    async def story(client: Any) -> None:
        ahead = asyncio.create_task(client.get("/live/slow?a=1"))
        await gate.wait_begun()
        first = asyncio.create_task(client.get("/live/slow?a=2"))
        second = asyncio.create_task(client.get("/live/slow?a=2"))
        await asyncio.sleep(0.05)  # both stand in the queue
        first.cancel()
        await asyncio.wait([first])
        gate.open.set()
        assert [answer.content for answer in await asyncio.gather(ahead, second)] == [b"frame"] * 2
        assert gate.count == 2

    run({"slow": live.Figure(gate)}, live.Desk(workers=1), story)


def test_too_many_waiting_are_turned_away_and_the_rest_are_served() -> None:
    gate = Gate()

    async def story(client: Any) -> None:
        tasks = [asyncio.create_task(client.get(f"/live/slow?i={i}")) for i in range(3)]
        await gate.wait_begun()
        await asyncio.sleep(0)
        answer = await client.get("/live/slow?i=9&lang=zh")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert "请稍后再试" in answer.json()["error"]
        gate.open.set()
        assert {task.status_code for task in await asyncio.gather(*tasks)} == {200}
        assert (await client.get("/live/slow?i=9")).status_code == 200

    run({"slow": live.Figure(gate)}, live.Desk(workers=1, waiting=2), story)


def test_failures_are_not_cached_and_free_their_place() -> None:
    count = 0

    def weak(params: Mapping[str, str]) -> bytes:
        nonlocal count
        count += 1
        if count <= 5:
            raise RuntimeError("not yet")
        return b"now"

    client = TestClient(app({"weak": live.Figure(weak)}, live.Desk(workers=1, waiting=0)))
    assert [client.get("/live/weak").status_code for _ in range(6)] == [500] * 5 + [200]


def test_the_cache_forgets_the_oldest_and_stays_in_its_bound() -> None:
    cache = live.FrameCache(100)
    for key in "abc":
        cache.put(key, b"x" * 30)
    assert cache.get("a") is not None  # now the one used last
    cache.put("d", b"x" * 30)
    assert cache.get("b") is None
    assert all(cache.get(key) is not None for key in "acd")
    assert cache.size == 90
    cache.put("a", b"x" * 10)  # the same key again counts once
    assert cache.size == 70
    cache.put("huge", b"x" * 51)
    assert cache.get("huge") is None
    assert cache.size == 70


def test_the_cache_holds_its_bound_under_threads() -> None:
    cache = live.FrameCache(1000)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(300):
                cache.put((number, i % 7), bytes(i % 90))
                cache.get((number ^ 1, i % 5))
        except BaseException as failure:  # noqa: BLE001  # carried to the test's own thread
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [cache.get((number, i)) for number in range(4) for i in range(7)]
    assert not failures
    assert cache.size == sum(len(frame) for frame in kept if frame is not None) <= 1000


def test_visitors_get_their_own_parameters_when_many_ask_at_once() -> None:
    async def story(client: Any) -> None:
        answers = await asyncio.gather(*(client.get(f"/live/echo?i={i}") for i in range(20)))
        assert [answer.text for answer in answers] == [f"i={i}" for i in range(20)]

    run({"echo": live.Figure(echo)}, live.Desk(workers=2), story)


def test_a_base_path_is_served_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "get_option", lambda name: {"server.baseUrlPath": "/lab/"}[name])
    client = TestClient(app({"echo": live.Figure(echo, cell)}))
    assert client.get("/lab/live/echo?a=1").text == "a=1"
    assert client.get("/lab/live/echo/cell?row=1").json()["value"] == "1"
    assert client.get("/live/echo?a=1").text == "a=1"
    assert client.get("/other/live/echo?a=1").status_code == 404
