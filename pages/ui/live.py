"""The live routes: parameters in, bytes of a picture out, off the event loop and without touching anyone's session."""

import asyncio
import json
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import parse_qsl

import streamlit as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from attnviz.text import LANGUAGES, Refusal, Text

# Below what the server itself takes (64 KiB), above two sentences of 2,000 Chinese characters.
QUERY_LIMIT = 48 * 1024
FIELD_LIMIT = 256
CACHE_BYTES = 64 * 2**20
WORKERS = max(2, min(4, os.cpu_count() or 2))
WAITING = 32

# Identity: on the same machine the server's gzip costs more than the bytes it saves.
HEADERS = MappingProxyType(
    {
        "Cache-Control": "no-store",
        "Content-Encoding": "identity",
        "Cross-Origin-Resource-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }
)

TOO_LONG = Text("The settings are too long: at most {limit:,} bytes.", "设置过长：最多 {limit:,} 字节。")
UNREADABLE = Text("The settings cannot be read.", "无法读取这些设置。")
TWICE = Text("{name} is given more than once.", "{name} 出现了多次。")
UNKNOWN = Text("There is no such picture.", "没有这样的图。")
BUSY = Text("Too many pictures are being computed right now; try again in a moment.", "正在计算的图太多，请稍后再试。")
FAILED = Text("The picture could not be computed.", "无法计算这幅图。")
FOREIGN = Text("Other sites cannot ask for pictures.", "其他网站不能请求图像。")

logger = logging.getLogger(__name__)

Params = Mapping[str, str]


@dataclass(frozen=True)
class Figure:
    """Name the functions behind one picture; both run in a worker thread and raise ``Refusal`` for bad parameters.

    Args:
        frame: Parameters → the bytes of a frame.
        cell: Parameters with "part", "map", "row" and "col" → exact values for JSON; None where there are no cells.
    """

    frame: Callable[[Params], bytes]
    cell: Callable[[Params], Mapping[str, object]] | None = None


class FrameCache:
    """Keep the frames used last, at most ``limit`` bytes of them; safe to use from several threads."""

    def __init__(self, limit: int):
        self._limit = limit
        self._size = 0
        self._frames: OrderedDict[object, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object) -> bytes | None:
        """Give the frame kept under ``key``, or None."""
        with self._lock:
            if key in self._frames:
                self._frames.move_to_end(key)
            return self._frames.get(key)

    def put(self, key: object, frame: bytes) -> None:
        """Keep a frame; one that would take more than half of the room is not kept."""
        if 2 * len(frame) > self._limit:
            return
        with self._lock:
            self._size += len(frame) - len(self._frames.pop(key, b""))
            self._frames[key] = frame
            while self._size > self._limit:
                self._size -= len(self._frames.popitem(last=False)[1])

    @property
    def size(self) -> int:
        """Bytes kept."""
        return self._size


class _Busy(Exception):
    """There is no room for another computation."""


class Desk:
    """Take orders for pictures: a few workers, a bounded queue, equal orders computed once, frames kept.

    Args:
        workers: Number of threads.
        waiting: Number of orders that may wait beyond those being computed.
        cache: Where frames are kept; None makes one of this module's size.
    """

    def __init__(self, *, workers: int = WORKERS, waiting: int = WAITING, cache: FrameCache | None = None):
        self.cache = FrameCache(CACHE_BYTES) if cache is None else cache
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="live")
        self._room = workers + waiting
        self._orders: dict[object, Future[bytes]] = {}
        self._lock = threading.Lock()

    async def give(self, key: object, work: Callable[[], bytes], *, keep: bool) -> bytes:
        """Give what ``work`` returns, from the cache where it is there.

        Args:
            key: Says which orders are equal.
            work: The computation; runs in a worker thread.
            keep: Whether to cache the answer.

        Raises:
            _Busy: If too many orders wait.
        """
        kept = self.cache.get(key)
        if kept is not None:
            return kept
        # Shielded: when one visitor leaves, the others who asked for the same still get it.
        return await asyncio.shield(asyncio.wrap_future(self._order(key, work, keep)))

    def _order(self, key: object, work: Callable[[], bytes], keep: bool) -> Future[bytes]:
        with self._lock:
            order = self._orders.get(key)
            if order is None:
                if len(self._orders) >= self._room:
                    raise _Busy
                order = self._orders[key] = self._pool.submit(self._run, key, work, keep)
            return order

    def _run(self, key: object, work: Callable[[], bytes], keep: bool) -> bytes:
        try:
            answer = work()
            if keep:
                self.cache.put(key, answer)
            return answer
        finally:
            with self._lock:
                del self._orders[key]


class _Reject(Exception):
    """A request that is answered with a status and one sentence."""

    def __init__(self, status: int, text: Text):
        super().__init__(text.en)
        self.status = status
        self.text = text


def _language(query: str) -> str:
    """Give the language asked for, also when the rest of the query is no good."""
    given = [part.removeprefix("lang=") for part in query.split("&") if part.startswith("lang=")]
    return given[0] if given and given[0] in LANGUAGES else LANGUAGES[0]


def _parameters(query: str) -> dict[str, str]:
    """Read a query string.

    Raises:
        _Reject: If it is too long, is no text, has too many fields or names one twice.
    """
    if len(query) > QUERY_LIMIT:
        raise _Reject(414, TOO_LONG.fill(limit=QUERY_LIMIT))
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=FIELD_LIMIT
        )
    except ValueError:
        raise _Reject(400, UNREADABLE) from None
    params: dict[str, str] = {}
    for name, value in pairs:
        if name in params:
            raise _Reject(400, TWICE.fill(name=repr(name[:40])))
        params[name] = value
    return params


def _refuse(status: int, sentence: str) -> Response:
    body = json.dumps({"error": sentence}, ensure_ascii=False)
    extra = {"Retry-After": "1"} if status == 503 else {}
    return Response(body, status, {**HEADERS, **extra}, media_type="application/json")


async def _answer(request: Request, figures: Mapping[str, Figure], desks: Mapping[str, Desk], kind: str) -> Response:
    """Answer one request; every failure becomes a status and one sentence in the asked language."""
    query = request.scope["query_string"].decode("latin-1")
    language = _language(query[:QUERY_LIMIT])
    try:
        if request.headers.get("sec-fetch-site") == "cross-site":
            raise _Reject(403, FOREIGN)
        params = _parameters(query)
        figure = figures.get(request.path_params["figure"])
        work = getattr(figure, kind, None)
        if work is None:
            raise _Reject(404, UNKNOWN)
        desk = desks[request.path_params["figure"]]
        key = (kind, request.path_params["figure"], tuple(sorted(params.items())))
        if kind == "frame":
            body = await desk.give(key, lambda: work(MappingProxyType(params)), keep=True)
            return Response(body, 200, HEADERS, media_type="application/octet-stream")
        body = await desk.give(
            key, lambda: json.dumps(dict(work(MappingProxyType(params))), ensure_ascii=False).encode(), keep=False
        )
        return Response(body, 200, HEADERS, media_type="application/json")
    except _Reject as reject:
        return _refuse(reject.status, reject.text.say(language))
    except Refusal as refusal:
        return _refuse(422, refusal.text.say(language))
    except _Busy:
        return _refuse(503, BUSY.say(language))
    except Exception:
        # The traceback is for the log only: its text can name files of this machine.
        logger.exception("live figure %r failed", request.path_params["figure"])
        return _refuse(500, FAILED.say(language))


def prefixes() -> tuple[str, ...]:
    """Give the path prefixes under which the app is reached: none, and the configured ``server.baseUrlPath``.

    Streamlit puts the base path in front of its own routes but not of an app's.
    """
    base = (st.get_option("server.baseUrlPath") or "").strip("/")
    return ("", f"/{base}") if base else ("",)


def make_routes(figures: Mapping[str, Figure], desk: Desk | None = None) -> list[Route]:
    """Give the routes ``/live/{figure}`` (a frame) and ``/live/{figure}/cell`` (JSON) for ``st.App``.

    Args:
        figures: Key in the address → the functions behind it.
        desk: Where the work is done; None gives each figure workers of its own, so that a slow one holds up no other.

    Returns:
        Routes that answer GET and HEAD; bad parameters give 4xx and ``{"error": sentence}``.
    """
    table = MappingProxyType(dict(figures))
    cache = FrameCache(CACHE_BYTES)
    desks = {name: desk or Desk(cache=cache) for name in table}

    async def frame(request: Request) -> Response:
        return await _answer(request, table, desks, "frame")

    async def cell(request: Request) -> Response:
        return await _answer(request, table, desks, "cell")

    return [
        Route(prefix + path, endpoint, methods=["GET"])
        for prefix in prefixes()
        for path, endpoint in (("/live/{figure}", frame), ("/live/{figure}/cell", cell))
    ]
