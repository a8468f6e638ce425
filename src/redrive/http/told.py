"""Told: what the journal's records of one call say of it. Put together only when somebody is going to hear it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import cache
from time import monotonic
from typing import Any

from ..core.context import IDS, WATCH


class Told:
    """The ids of one call and the state of its attempt: request id, method, address, status, time. Belongs to that call."""

    __slots__ = ("_method", "_request_id", "_started", "_token", "_url", "attempt", "bounded", "sent", "status")

    def __init__(self, method: str, url: Any, request_id: str, bounded: bool) -> None:
        """url: the library's own. bounded: its connections are ours, and tell when something is sent."""
        self.bounded = bounded
        self.sent = False
        self._method = method
        self._url = url
        self._request_id = request_id
        self._token: Token[Any] | None = None
        self._started = 0.0
        self.attempt = 0
        self.status: int | None = None

    @property
    def url(self) -> str:
        """The address without its query, which may have secrets in it."""
        return f"{self._url.scheme}://{self._url.netloc.decode('ascii')}{self._url.path}"

    def begin(self) -> int:
        """Another attempt begins: its number."""
        self.status = None
        self.sent = False
        self._started = monotonic()
        self.attempt += 1
        return self.attempt

    def ended(self) -> None:
        """The attempt has ended, and will be told: with all that is known of it."""
        ids: dict[str, Any] = {
            **IDS.get(),
            "request_id": self._request_id,
            "http_method": self._method,
            "url": self.url,
            "latency_ms": round((monotonic() - self._started) * 1000, 3),
        }
        ids.pop("http_status", None)
        if self.status is not None:
            ids["http_status"] = self.status
        token = IDS.set(ids)
        self._token = self._token or token

    def succeeded(self) -> None:
        """The attempt has succeeded, which is told only after others had failed, or to those who hear everything."""
        if WATCH or self.attempt > 1:
            self.ended()

    def over(self) -> None:
        """The call has ended: what was around it is around again."""
        token, self._token = self._token, None
        if token is not None:
            put_back(token)


TOLD: ContextVar[Told | None] = ContextVar("redrive_http", default=None)
"""The call that async code is in: its connections note here that something was sent."""


def put_back(token: Token[Any], /) -> None:
    """Put back what was there before."""
    try:
        token.var.reset(token)
    except ValueError:
        pass  # closed by another context than the one it ran in, which has nothing of ours to undo


@cache
def overdue(library: Any, /) -> Callable[[str], Exception]:
    """Makes the time-out of an async attempt that was ended: the library's own, by whether anything had been sent."""

    def made(message: str) -> Exception:
        told = TOLD.get()
        kind = library.ConnectTimeout if told is not None and told.bounded and not told.sent else library.ReadTimeout
        error: Exception = kind(message)
        return error

    return made
