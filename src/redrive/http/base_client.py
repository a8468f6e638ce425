"""The part that `Client` and `AsyncClient` share: options, connections, retry loops, readiness."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Generic, Literal, Self, TypedDict, TypeVar, cast

import httpx2

from ..core.key import KeyLike
from ..core.policy import RetryPolicy
from ..core.seconds import Seconds, positive
from ..core.text import format_duration
from ..engine.nesting import outcome
from ..engine.retry import DEFAULT, Retry, RetryLike
from ..errors import AttemptTimeout, NotReady
from .bounded_body import DEFAULT_MAX_BYTES
from .call_state import RetryLoops, resolve_retry, timeout_error
from .connections import HttpxClient, HttpxConnections, system_certificates
from .request import CallOptions, HttpCall, RequestDefaults

TIMEOUT_ERROR = timeout_error(httpx2)
NO_OPTIONS = CallOptions()
Init = TypeVar("Init", bound=Callable[..., None])


class QueryOptions(TypedDict, total=False):
    """Options of every call. `Client.request` describes them."""

    params: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    ok_statuses: Collection[int]
    operation: str | None
    timeout: Seconds | None
    idempotent: bool | None


class BodyOptions(QueryOptions, total=False):
    """Options of calls that may have a body."""

    json: object
    content: bytes | str | Iterable[bytes] | None
    idempotency_key: KeyLike | Literal[True] | None


class AsyncBodyOptions(QueryOptions, total=False):
    """Options of async calls that may have a body. Streams may be async."""

    json: object
    content: bytes | str | Iterable[bytes] | AsyncIterable[bytes] | None
    idempotency_key: KeyLike | Literal[True] | None


def reject_unknown_options(init: Init) -> Init:
    """Make a constructor name the caller's class and its options if it gets an unknown one."""
    known = getattr(init, "__kwdefaults__")  # noqa: B009  # not an attribute of every callable

    @functools.wraps(init)
    def checked(self: object, *args: object, **options: object) -> None:
        for name in sorted(options.keys() - known):
            raise TypeError(
                f"http.{type(self).__name__} has no option {name!r}; use one of: "
                f"{', '.join(known)}, such as retry=retry(max_attempts=3)"
            )
        init(self, *args, **options)

    return cast("Init", checked)


class BaseClient(Generic[HttpxClient]):
    """A client for one HTTP service, without the parts that differ between sync and async."""

    __slots__ = ("_connections", "_defaults", "_loops", "_owns_connections")

    _httpx_class: ClassVar[type[Any]]
    """`httpx2.Client` or `httpx2.AsyncClient`."""

    @reject_unknown_options
    def __init__(
        self,
        base_url: str,
        /,
        *,
        auth: str | httpx2.Auth | None = None,
        user: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry: RetryLike | None = None,
        idempotent: bool | None = None,
        idempotency_key: Literal[True] | None = None,
        max_body: int | None = DEFAULT_MAX_BYTES,
        client: HttpxClient | None = None,
    ) -> None:
        """Configure the client. Connections are opened at the first request.

        Args:
            base_url: Address of the service.
            auth: Bearer token, or an `httpx2.Auth`.
            user: User id, sent as `x-user-id`.
            headers: Headers of every request.
            retry: Policy. Default: 3 attempts, 0.25 s to 5 s apart, 10 s each, and its own budget.
            idempotent: True: every request may be repeated, including POST and PATCH. False: none
                may, unless it was never sent. None: by method and key.
            idempotency_key: True: a POST or PATCH without a key gets a new one.
            max_body: Maximum number of bytes of a response, decompressed. None: no limit. A larger
                response is an `httpx2.DecodingError`.
            client: Your own `httpx2.Client` (for `AsyncClient`: your `httpx2.AsyncClient`), with
                its proxies, certificates and limits. You close it.

        Raises:
            TypeError: `client` is of another library. Use `Transport` there.
        """
        httpx_class = self._httpx_class
        if client is not None and not isinstance(client, httpx_class):
            raise TypeError(
                f"client= must be an httpx2.{httpx_class.__name__}, "
                f"not {type(client).__module__}.{type(client).__name__}; "
                f"use redrive.http.Transport with other clients"
            )
        self._defaults = RequestDefaults.from_options(
            base_url, auth, headers, user, idempotent, idempotency_key, max_body
        )
        self._connections: HttpxConnections[HttpxClient] = HttpxConnections(
            client, lambda: httpx_class(timeout=None, verify=system_certificates())
        )
        resolved = resolve_retry(retry, f"http {self._defaults.base_url.netloc}")
        self._loops = self._build_loops(resolved, self._connections, self._defaults)
        self._owns_connections = True

    @property
    def __redrive__(self) -> Retry:
        """The `Retry` that `redrive layers` shows and `testing.inject` changes."""
        return self._loops.retry

    def using(
        self,
        *,
        user: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry: RetryLike | None = None,
        idempotent: bool | None = None,
    ) -> Self:
        """Return a copy with other options and the same connections.

        Args:
            user: User id, sent as `x-user-id`.
            headers: Headers that are added.
            retry: Another policy.
            idempotent: Whether requests may be repeated.

        Returns:
            The copy. The original client closes the connections.
        """
        copy = object.__new__(type(self))
        copy._connections = self._connections
        copy._defaults = self._defaults.using(user, headers, idempotent)
        copy._loops = self._loops
        if retry is not None:
            resolved = resolve_retry(retry, f"http {copy._defaults.base_url.netloc}")
            copy._loops = self._build_loops(resolved, copy._connections, copy._defaults)
        copy._owns_connections = False
        return copy

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._defaults.base_url)!r})"

    @staticmethod
    def _build_loops(
        retry: Retry, connections: HttpxConnections[HttpxClient], defaults: RequestDefaults
    ) -> RetryLoops:
        """Return retry loops around a function that makes one attempt.

        Not a bound method of the client: a reference cycle would delay the release of connections.
        """
        raise NotImplementedError

    def _prepare(
        self, method: str, path: str, options: CallOptions, event_loop: object = None
    ) -> tuple[HttpCall, Callable[[HttpCall], Any]]:
        """Return a call, and the loop that makes its attempts."""
        loops = self._loops
        declared = self._defaults.idempotent, loops.declared_idempotent
        client = self._connections.client(event_loop)
        call = self._defaults.build_call(self._connections, client, method, path, options, declared)
        return call, loops.loop(
            call.operation, call.repeatable, call.key is not None, TIMEOUT_ERROR
        )

    def _prepare_readiness(
        self, path: str, within: Seconds, event_loop: object = None
    ) -> tuple[HttpCall, Callable[[HttpCall], Any]]:
        """Return a GET request, and a loop that repeats it: soon at first, then every 2 s."""
        client = self._connections.client(event_loop)
        call = self._defaults.build_call(self._connections, client, "GET", path, NO_OPTIONS)
        loops = self._build_loops(_readiness_retry(within), self._connections, self._defaults)
        return call, loops.loop(READINESS_OPERATION, True, False, TIMEOUT_ERROR)


READINESS_ERRORS = (httpx2.HTTPError, AttemptTimeout)
"""Errors of the last request that mean that a service is not ready."""
READINESS_OPERATION = "wait_until_ready"
READINESS_REQUEST_SECONDS = 5.0
"""Maximum duration of one readiness request."""
UNLIMITED_ATTEMPTS = 1_000_000
UNAVAILABLE_STATUSES = frozenset((429, 502, 503, 504))
"""Statuses of a service that is not available now. Others mean that it runs, and fails."""
HOPELESS_STATUSES = frozenset((405, 410, 501))
"""Statuses that do not change by waiting. 404 is not one of them, because many proxies return it
while the service behind them is starting."""


def _readiness_retry(within: Seconds) -> Retry:
    limit = positive("within", within)
    policy = RetryPolicy(
        max_attempts=UNLIMITED_ATTEMPTS,
        backoff_base=0.1,
        backoff_max=2.0,
        jitter=0.1,
        timeout=limit,
    )
    return DEFAULT.using(
        policy,
        on=(_classify_readiness, httpx2.HTTPError),
        attempt_timeout=min(READINESS_REQUEST_SECONDS, limit),
        operation=READINESS_OPERATION,
    )


def _classify_readiness(error: Exception) -> bool | None:
    if (
        isinstance(error, httpx2.HTTPStatusError)
        and error.response.status_code in HOPELESS_STATUSES
    ):
        return False
    return None


def not_ready(url: str, error: Exception, /) -> NotReady:
    """Describe a service that was not ready in time, by the error of the last request."""
    ended = outcome(error)
    effort = (
        f" ({ended.attempts} requests in {format_duration(ended.elapsed)})"
        if ended is not None
        else ""
    )
    if not isinstance(error, httpx2.HTTPStatusError):
        reason = f"it could not be reached: {type(error).__name__}: {error}".rstrip(": ")
        return NotReady(f"{url} is unavailable{effort}: {reason}", unavailable=True)
    status = error.response.status_code
    if status in UNAVAILABLE_STATUSES:
        return NotReady(f"{url} is unavailable{effort}: it returns {status}", unavailable=True)
    hint = ""
    if status == 404:
        hint = " each time; check the path"
    elif status in HOPELESS_STATUSES:
        hint = "; waiting does not help"
    message = f"{url} failed{effort}: it is reachable, and returns {status}{hint}"
    return NotReady(message, unavailable=False)
