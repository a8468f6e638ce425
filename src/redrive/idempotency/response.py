"""HTTP responses: recorded on their way to the client, stored under a key, and replayed."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple, TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]

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


class ResponseRecording:
    """The response of one request, as the application produces it. Belongs to the request.

    A response with a known length is withheld until it is stored, so that a client that has it can
    always get it again. A streamed response is passed on, and only its end is withheld.
    """

    __slots__ = ("_headers", "_length", "_limit", "_pieces", "_status")

    def __init__(self, limit: int, /) -> None:
        """Create a recording. `limit`: maximum bytes of a body."""
        self._limit = limit
        self._status: int | None = None
        self._headers: Headers = []
        self._length = 0
        self._pieces: list[bytes] | None = []
        """The body. None: it is too large, or sent from a file."""

    @property
    def has_started(self) -> bool:
        """Whether the application has sent a status."""
        return self._status is not None

    def start(self, status: int, headers: Headers, /) -> None:
        """Record the status and the headers. An error page may replace what came before."""
        self._status, self._headers = status, headers
        self._length, self._pieces = 0, []

    def add(self, piece: bytes, /) -> None:
        """Record a piece of the body."""
        self._length += len(piece)
        if self._pieces is not None:
            self._pieces.append(piece)
            if self._length > self._limit:
                self._pieces = None

    def drop_body(self) -> None:
        """Record that the server sends the body from a file."""
        self._pieces = None

    @property
    def is_withheld(self) -> bool:
        """Whether the next pieces wait until the response is stored.

        They do if the announced length is within the limit.
        """
        if self._pieces is None:
            return False
        for name, value in self._headers:
            if name.lower() == b"content-length":
                return value.isdigit() and int(value) <= self._limit
        return False

    def response(self) -> RecordedResponse:
        """Return the recorded response."""
        assert self._status is not None
        body = None if self._pieces is None else b"".join(self._pieces)
        return RecordedResponse(self._status, self._headers, body)
