"""The state of one HTTP call, its fields in log records, and the retry loop of its operation."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import replace
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..core.budget import Budget
from ..core.context import IDS, SLOW_PATH_USERS
from ..core.policy import RetryPolicy
from ..engine.retry import DEFAULT, Retry, RetryLike
from ..engine.settings import RetrySettings

if TYPE_CHECKING:
    from ..engine.settings import Options


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


MAX_CACHED_LOOPS = 256
"""Operations beyond this limit get a new loop for each call. Their names probably contain ids."""


class RetryLoops:
    """The engine's loops for the operations of a client. Threads and event loops may share it."""

    __slots__ = ("_attempt", "_build_loop", "_loops", "retry")

    def __init__(
        self,
        retry: Retry,
        build_loop: Callable[[RetrySettings, Callable[..., Any]], Callable[..., Any]],
        attempt: Callable[..., Any],
    ) -> None:
        """Prepare the loops of a client.

        Args:
            retry: The policy.
            build_loop: Function of the engine that makes sync or async loops.
            attempt: Makes one attempt. It takes a call with a `key`.
        """
        self.retry = retry
        self._build_loop = build_loop
        self._attempt = attempt
        self._loops: dict[
            tuple[str, bool, bool, Callable[[str], Exception]], Callable[..., Any]
        ] = {}

    @property
    def declared_idempotent(self) -> bool | None:
        """The value of `retry(idempotent=...)`, or None if it was not set."""
        settings = self.retry.settings
        return settings.idempotent if settings.idempotent_explicit else None

    def loop(
        self,
        operation: str,
        repeatable: bool,
        has_key: bool,
        timeout_error: Callable[[str], Exception],
        /,
    ) -> Callable[..., Any]:
        """Return the function that makes all attempts of a call.

        A request that is not repeatable is retried only if it was never sent. With `has_key`,
        `current()` shows the idempotency key of the call.
        """
        loop = self._loops.get((operation, repeatable, has_key, timeout_error))
        if loop is None:
            key = _key_of if has_key else None
            settings = replace(
                self.retry.settings, key=key, idempotent=repeatable, timeout_error=timeout_error
            )
            loop = self._build_loop(settings.named(operation, self.retry), self._attempt)
            if len(self._loops) < MAX_CACHED_LOOPS:
                self._loops[operation, repeatable, has_key, timeout_error] = loop
        return loop


def _key_of(call: Any) -> Any:
    return call.key


def resolve_retry(retry: RetryLike | None, name: str, /, **defaults: Any) -> Retry:
    """Return the `Retry` of a client: the one passed, or three attempts with a new budget.

    `name` is the operation if `retry` has none. `defaults` apply unless `retry` is a `Retry`.
    """
    if isinstance(retry, Retry):
        _check_supported(retry.settings)
        return Retry(retry.settings.named(retry.operation or name, retry))
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise TypeError(
            "retry= must be a RetryPolicy or a result of retry(...), "
            f"not {type(retry).__name__}: {retry!r}"
        )
    options: Options = {"budget": Budget(), "operation": name, **defaults}  # type: ignore[typeddict-item]  # our own names
    return DEFAULT.using(retry, **options)


def _check_supported(settings: RetrySettings) -> None:
    if settings.spill is not None:
        raise TypeError(
            "a client cannot enqueue a request as a job; "
            "pass spill= to the retry of the function around it"
        )
    if settings.hedge is not None:
        raise TypeError(
            "a client makes one request at a time for a call; "
            "pass hedge= to the retry of the async function around it"
        )
    if settings.key is not None:
        raise TypeError(
            "a client needs a key for each call, not one for all; pass idempotency_key= to the call"
        )
