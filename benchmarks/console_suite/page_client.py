"""Request pages of an ASGI application on one event loop, without the overhead of an HTTP client."""

import asyncio
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Response(NamedTuple):
    """Response of the application."""

    status: int
    body: bytes


class PageClient:
    """Requests pages of an ASGI application. Not thread-safe. Call `close` at the end."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._token = f"Bearer {app.access.local_token}".encode()
        self._loop = asyncio.new_event_loop()

    def get(self, path: str) -> Response:
        """Request the page at a path."""
        return self._loop.run_until_complete(self._request(path))

    async def _request(self, path: str) -> Response:
        url = urlsplit(path)
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": url.path, "raw_path": url.path.encode(), "query_string": url.query.encode(), "root_path": "",
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
        return Response(status, bytes(body))

    def close(self) -> None:
        """Close the event loop and its threads."""
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
