"""A visit to a page as a server makes it: on one event loop that stays, without a client whose own work would be measured."""

import asyncio
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes


class Visitor:
    """Asks an ASGI application for pages, one after the other. Belongs to one thread; to be closed."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._token = f"Bearer {app.access.local_token}".encode()
        self._loop = asyncio.new_event_loop()

    def get(self, path: str) -> Answer:
        """The page at this path."""
        return self._loop.run_until_complete(self._asked(path))

    async def _asked(self, path: str) -> Answer:
        place = urlsplit(path)
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": place.path, "raw_path": place.path.encode(), "query_string": place.query.encode(), "root_path": "",
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
            "headers": [(b"host", b"127.0.0.1"), (b"accept", b"text/html"), (b"authorization", self._token)],
        }  # fmt: skip
        status, body = 0, bytearray()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status, body
            status = message.get("status", status)
            body += message.get("body", b"")

        await self._app(scope, receive, send)
        return Answer(status, bytes(body))

    def close(self) -> None:
        """Let go of the loop, and of the threads that pages ran in."""
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
