"""Keep the files that never change in memory, so that a new visitor's hundred scripts need no disk and no thread."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Streamlit's own scripts, styles and fonts are about 20 MB; a browser asks for 3 MB of them.
MOST_BYTES = 32 * 2**20
# With one of these another answer than the whole file may be wanted.
_SPECIAL = frozenset((b"range", b"if-none-match", b"if-modified-since", b"if-range"))


class KeptFiles:
    """Answer again, from memory, what ``app`` called immutable.

    Only whole answers to plain requests are kept, one for each address and accepted encoding, ``most`` bytes at most.
    """

    def __init__(self, app: ASGIApp, most: int = MOST_BYTES) -> None:
        self.app, self.room = app, most
        self._kept: dict[tuple[bytes, bytes], tuple[Message, Message]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] != "GET" or _SPECIAL & {name for name, _ in scope["headers"]}:
            await self.app(scope, receive, send)
            return
        encoding = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding")
        address = (scope.get("raw_path") or scope["path"].encode(), encoding)
        if address in self._kept:
            for message in self._kept[address]:
                await send(message)
            return
        await self.app(scope, receive, self._keeping(address, send) if self.room > 0 else send)

    def _keeping(self, address: tuple[bytes, bytes], send: Send) -> Send:
        seen: list[Message] = []

        async def keeping(message: Message) -> None:
            await send(message)
            # The first message says whether it is worth holding the others.
            if (not seen and not _is_immutable(message)) or address in self._kept:
                return
            seen.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self._keep(address, seen)

        return keeping

    def _keep(self, address: tuple[bytes, bytes], seen: list[Message]) -> None:
        body = b"".join(message.get("body", b"") for message in seen[1:])
        if len(body) <= self.room:
            self.room -= len(body)
            self._kept[address] = (seen[0], {"type": "http.response.body", "body": body})


def _is_immutable(message: Message) -> bool:
    if message["type"] != "http.response.start" or message["status"] != 200:
        return False
    headers = dict(message["headers"])
    return b"immutable" in headers.get(b"cache-control", b"") and b"set-cookie" not in headers
