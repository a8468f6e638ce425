"""HTTP responses: recorded on their way to the client, stored under a key, and replayed."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]
Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

NOT_STORED_HEADERS = frozenset(
    (
        # These belong to the connection, not to the response.
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"date",
        b"server",
        # A replayed cookie would revive a session that has ended.
        b"set-cookie",
        b"set-cookie2",
    )
)
REPLAYED_HEADER = (b"idempotency-replayed", b"true")
_REJECTIONS = (
    400,
    401,
    403,
    404,
    405,
    406,
    408,
    411,
    413,
    414,
    415,
    417,
    421,
    422,
    425,
    426,
    428,
    429,
    431,
)
FREEING_STATUSES = frozenset((*_REJECTIONS, *range(500, 600)))
"""Statuses after which the key can be used again: the request was rejected, or it failed.

A client that corrects its request may use the same key. Requests to unknown paths store nothing.
"""
_SENT_BY_SERVER = ("http.response.pathsend", "http.response.zerocopysend")


class RecordedResponse(NamedTuple):
    """A response. Immutable: anything may share it."""

    status: int
    headers: Headers
    body: bytes | None
    """None: the body was too large, or the server sent it from a file."""

    def dump(self) -> bytes:
        """Return the stored form, as JSON."""
        headers = [
            [name.decode("latin-1"), value.decode("latin-1")]
            for name, value in self.headers
            if name.lower() not in NOT_STORED_HEADERS
        ]
        data: dict[str, Any] = {"status": self.status, "headers": headers}
        if self.body is not None:
            try:
                data["text"] = self.body.decode()
            except UnicodeDecodeError:
                data["base64"] = base64.b64encode(self.body).decode()
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def load(cls, stored: bytes, /) -> RecordedResponse:
        """Return the response of a stored form."""
        data = json.loads(stored)
        headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in data["headers"]
        ]
        if "text" in data:
            return cls(data["status"], headers, data["text"].encode())
        body = base64.b64decode(data["base64"]) if "base64" in data else None
        return cls(data["status"], headers, body)


def dump_within(response: RecordedResponse, /, *, limit: int) -> bytes:
    """Return the stored form. Above `limit` bytes it has no body, and if needed no headers."""
    stored = response.dump()
    if len(stored) > limit:
        stored = response._replace(body=None).dump()
    return stored if len(stored) <= limit else response._replace(body=None, headers=[]).dump()


def problem_response(
    status: int, title: str, detail: str, /, *extra_headers: tuple[bytes, bytes]
) -> RecordedResponse:
    """Return a problem of the middleware itself (RFC 9457)."""
    problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *extra_headers,
    ]
    return RecordedResponse(status, headers, body)


class ResponseRecorder:
    """The `send` of one request. It passes the response to `on_complete` before the client has it.

    A response with a known length is withheld until it is stored, so that a client that has it can
    always get it again. A streamed response is passed on, and only its last message is withheld.
    """

    def __init__(
        self, send: Send, on_complete: Callable[[RecordedResponse], Awaitable[None]], limit: int
    ) -> None:
        """Create a recorder around the `send` of the server. `limit`: maximum bytes of a body."""
        self._send = send
        self._on_complete = on_complete
        self._limit = limit
        self._start: Message | None = None
        self._withheld: list[Message] = []
        self._is_withholding = False
        self._pieces: list[bytes] | None = []
        """The body. None: it is too large, or sent from a file."""
        self._length = 0
        self._is_complete = False

    async def __call__(self, message: Message, /) -> None:
        kind = message["type"]
        is_running = self._start is not None and not self._is_complete
        if kind == "http.response.start" and self._start is None:
            self._start = message
            self._is_withholding = True
            self._withheld.append(message)
        elif kind == "http.response.body" and is_running:
            await self._record(message)
        elif kind in _SENT_BY_SERVER and is_running:
            self._pieces = None  # the server reads the body from a file
            await self._complete(message)
        else:
            await self._send(message)

    async def _record(self, message: Message) -> None:
        piece = bytes(message.get("body", b""))
        self._length += len(piece)
        if self._pieces is not None:
            self._pieces.append(piece)
            if self._length > self._limit:
                self._pieces = None
        if not message.get("more_body", False):
            await self._complete(message)
        elif self._is_withholding and self._pieces is not None and self._has_known_length():
            self._withheld.append(message)
        else:
            await self._release()
            await self._send(message)

    def _has_known_length(self) -> bool:
        """Return whether the announced length is within the limit."""
        assert self._start is not None
        for name, value in self._start.get("headers", ()):
            if name.lower() == b"content-length":
                return value.isdigit() and int(value) <= self._limit
        return False

    async def _complete(self, last: Message) -> None:
        assert self._start is not None
        self._is_complete = True
        body = None if self._pieces is None else b"".join(self._pieces)
        headers = list(self._start.get("headers", ()))
        await self._on_complete(RecordedResponse(self._start["status"], headers, body))
        await self._release()
        await self._send(last)

    async def _release(self) -> None:
        self._is_withholding = False
        messages, self._withheld = self._withheld, []
        for message in messages:
            await self._send(message)
