"""An HTTP response as it is stored under its key and replayed; and problems of our own (RFC 9457)."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

Headers = list[tuple[bytes, bytes]]

LEFT_OUT = frozenset(
    (
        # Of one connection, not of the answer.
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer", b"transfer-encoding",
        b"upgrade", b"date", b"server",
        # A session that ended meanwhile must not come to life again, nor lie in a table until then.
        b"set-cookie", b"set-cookie2",
    )
)  # fmt: skip
"""Headers that are not stored."""
REPLAYED = (b"idempotency-replayed", b"true")
REJECTED = (400, 401, 403, 404, 405, 406, 408, 411, 413, 414, 415, 417, 421, 422, 425, 426, 428, 429, 431)
FREEING = frozenset((*REJECTED, *range(500, 600)))
"""Statuses after which the key is free again: the request was invalid, not allowed or too early, or it failed. A client
that corrects its request may use the same key, and requests to unknown paths leave no rows behind."""


class Response(NamedTuple):
    """What was answered. Immutable: anything may share it."""

    status: int
    headers: Headers
    body: bytes | None
    """None: it was too large, or of a kind that cannot be kept."""

    def stored(self) -> bytes:
        """As JSON."""
        kept = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in self.headers if name.lower() not in LEFT_OUT]
        data: dict[str, Any] = {"status": self.status, "headers": kept}
        if self.body is not None:
            try:
                data["text"] = self.body.decode()
            except UnicodeDecodeError:
                data["base64"] = base64.b64encode(self.body).decode()
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def loaded(stored: bytes, /) -> Response:
    """What was stored."""
    data = json.loads(stored)
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in data["headers"]]
    if "text" in data:
        return Response(data["status"], headers, data["text"].encode())
    return Response(data["status"], headers, base64.b64decode(data["base64"]) if "base64" in data else None)


def bounded(response: Response, /, *, limit: int) -> bytes:
    """As it is stored; without its body, or without its headers too, where it would be too many bytes."""
    stored = response.stored()
    if len(stored) > limit:
        stored = response._replace(body=None).stored()
    return stored if len(stored) <= limit else response._replace(body=None, headers=[]).stored()


def problem(status: int, title: str, detail: str, /, *more: tuple[bytes, bytes]) -> Response:
    """An answer of our own."""
    body = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail}).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *more,
    ]
    return Response(status, headers, body)
