"""The state of one HTTP call, and the fields that its journal records carry."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import cache
from time import monotonic
from typing import Any

from ..core.context import IDS, SLOW_PATH_USERS


class CallState:
    """Progress of one call: the attempt's number, status and start. Used by that call only.

    Journal records take their fields from the correlation ids, so this state is published there
    when an attempt ends. Building the fields is skipped when no record will be written.
    """

    __slots__ = (
        "_method",
        "_previous_ids",
        "_request_id",
        "_started",
        "_url",
        "attempt",
        "reports_sending",
        "sent",
        "status",
    )

    def __init__(self, method: str, url: Any, request_id: str, reports_sending: bool) -> None:
        self.reports_sending = reports_sending
        """Whether the connections set `sent` when they write the first bytes."""
        self.sent = False
        self.attempt = 0
        self.status: int | None = None
        self._method = method
        self._url = url
        self._request_id = request_id
        self._previous_ids: Token[Any] | None = None
        self._started = 0.0

    @property
    def url(self) -> str:
        """The URL without its query, which may contain secrets."""
        return f"{self._url.scheme}://{self._url.netloc.decode('ascii')}{self._url.path}"

    def begin_attempt(self) -> int:
        """Reset the state for the next attempt and return its number."""
        self.status = None
        self.sent = False
        self._started = monotonic()
        self.attempt += 1
        return self.attempt

    def publish(self) -> None:
        """Add the finished attempt's fields to the correlation ids."""
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
        self._previous_ids = self._previous_ids or token

    def publish_success(self) -> None:
        """Publish if a record follows: after a failed attempt, or for sinks with `every=True`."""
        if SLOW_PATH_USERS or self.attempt > 1:
            self.publish()

    def restore_ids(self) -> None:
        """Restore the correlation ids from before the call."""
        token, self._previous_ids = self._previous_ids, None
        if token is not None:
            reset(token)


CURRENT_CALL: ContextVar[CallState | None] = ContextVar("redrive_http", default=None)
"""The call of the current async task. Its connections set `sent` here."""


def reset(token: Token[Any], /) -> None:
    """Reset a context variable, if this still is the context in which it was set."""
    try:
        token.var.reset(token)
    except ValueError:
        pass  # The call is closed from another context, which has nothing to reset.


@cache
def timeout_error(library: Any, /) -> Callable[[str], Exception]:
    """Return a function that creates the library's timeout error for a cancelled async attempt.

    The error is a ConnectTimeout if the request was not sent, and a ReadTimeout otherwise.
    """

    def create(message: str) -> Exception:
        call = CURRENT_CALL.get()
        is_unsent = call is not None and call.reports_sending and not call.sent
        error: Exception = (library.ConnectTimeout if is_unsent else library.ReadTimeout)(message)
        return error

    return create
