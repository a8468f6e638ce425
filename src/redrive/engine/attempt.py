"""The attempt as the code inside it sees it: `current()`, `deadline()` and `correlate()`."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any, NoReturn, Self

from ..core.context import (
    ATTEMPT,
    END,
    IDS,
    LAYER,
    ActiveScope,
    Scope,
    clock_around,
    job_around,
    key_around,
    merge_ids,
    scope_around,
    within,
)
from ..core.key import Key, KeyLike
from ..core.seconds import Seconds
from ..core.seconds import seconds as duration
from ..errors import Rejected
from .current_job import DurableAttempt

MIN_TIMEOUT_SECONDS = 0.001
"""The shortest timeout that is passed to a client."""


class Attempt(DurableAttempt):
    """The attempt that is running now, from `current()` or from a block of `attempts()`.

    It belongs to the code of that attempt. Do not share it.
    """

    __slots__ = ("_block",)

    def __init__(self, scope: Scope | None, block: Any = None) -> None:
        super().__init__(scope)
        self._block = block

    @property
    def number(self) -> int:
        """Number of the attempt, from 1."""
        return 1 if self._scope is None else self._scope[ATTEMPT]

    @property
    def max_attempts(self) -> int | None:
        """Maximum number of attempts. None outside of a retry."""
        layer = None if self._scope is None else self._scope[LAYER]
        return None if layer is None else layer.max_attempts

    @property
    def operation(self) -> str | None:
        """Name of the call. None outside of a retry."""
        layer = None if self._scope is None else self._scope[LAYER]
        return None if layer is None else layer.operation

    @property
    def job_id(self) -> str | None:
        """Id of the job in the ledger that this attempt is part of. None outside of a job."""
        return job_around(self._scope)

    @property
    def key(self) -> Key | None:
        """Idempotency key of the work. It is the same for all attempts."""
        key: KeyLike | None = key_around(self._scope)
        return Key.parse(key) if isinstance(key, str) else key

    @property
    def remaining(self) -> float | None:
        """Seconds that this attempt may still take, or None if there is no limit.

        It is the smaller of the attempt's timeout and all deadlines. It is never 0, not even after
        the limit: clients treat 0 as "do not wait", or reject it.
        """
        if self._scope is None or self._scope[END] == math.inf:
            return None
        return max(MIN_TIMEOUT_SECONDS, self._scope[END] - clock_around().monotonic())

    def reject(
        self, because: str = "the result was rejected", /, *, result: Any = None
    ) -> NoReturn:
        """Fail this attempt because its result is not usable. It is then retried.

        Args:
            because: Reason, for the log records.
            result: The result. `errors.Rejected` carries it if the attempts are used up.

        Raises:
            Rejected: Always.
        """
        raise Rejected(because, result=result)

    def __enter__(self) -> Self:
        if self._block is None:
            raise RuntimeError(
                "only the attempts of `for attempt in retry.attempts()` can be entered"
            )
        self._block.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool:
        is_suppressed: bool = self._block.leave(error)
        return is_suppressed

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool:
        return self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return (
            f"Attempt(number={self.number}, operation={self.operation!r}, "
            f"remaining={self.remaining})"
        )


def current() -> Attempt:
    """Return the attempt that is running around this code.

    Returns:
        The attempt. Outside of a retry it has number 1, no limit and no key.
    """
    return Attempt(scope_around())


class _Deadline:
    """A deadline for one `with` or `async with` block."""

    __slots__ = ("_active", "_seconds")

    def __init__(self, limit: float) -> None:
        self._seconds = limit
        self._active: ActiveScope | None = None

    def __enter__(self) -> None:
        if self._active is not None:
            raise RuntimeError("this deadline is already in use; create a new one")
        end = clock_around().monotonic() + self._seconds
        self._active = ActiveScope(within(end, scope_around()))

    def __exit__(self, *_: object) -> None:
        active, self._active = self._active, None
        if active is not None:
            active.leave()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


def deadline(seconds: Seconds, /) -> _Deadline:
    """Limit the time of all retries inside a block: `with deadline(5):`, or `async with`.

    No attempt starts after the deadline, and no wait passes it. An inner deadline can only shorten
    it. It does not interrupt running code.

    Args:
        seconds: Seconds from now, or a `timedelta`.

    Returns:
        A context manager for one use.
    """
    return _Deadline(duration("deadline", seconds))


class _Correlation:
    """Correlation ids for one `with` or `async with` block."""

    __slots__ = ("_ids", "_token")

    def __init__(self, ids: dict[str, str]) -> None:
        self._ids = ids
        self._token: Any = None

    def __enter__(self) -> None:
        if self._token is not None:
            raise RuntimeError("this correlate(...) is already in use; create a new one")
        self._token = IDS.set(merge_ids(IDS.get(), self._ids))

    def __exit__(self, *_: object) -> None:
        token, self._token = self._token, None
        try:
            IDS.reset(token)
        except ValueError:
            pass  # a generator that another context closed, which has no ids of ours to restore

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


def correlate(
    *,
    request_id: str | None = None,
    trace_id: str | None = None,
    user_id: str | None = None,
    org_id: str | None = None,
    **more: str,
) -> _Correlation:
    """Add ids to every log record inside a block, across processes and queues.

    An id of more than 256 characters is shortened to its start and a digest.

    Args:
        request_id: Id of the request.
        trace_id: Id of the trace.
        user_id: Id of the user.
        org_id: Id of the organisation.
        more: Other ids, by name.

    Returns:
        A context manager for `with` and `async with`.

    Raises:
        ValueError: There are more than 64 ids, or a name has more than 100 characters.
    """
    known = {
        "request_id": request_id,
        "trace_id": trace_id,
        "user_id": user_id,
        "org_id": org_id,
    }
    ids: dict[str, str] = {}
    for name, value in {**known, **more}.items():
        if value is None:
            continue
        if not isinstance(value, str):
            kind = type(value).__name__
            raise TypeError(f"correlation id {name} must be text, not {kind}: {value!r}")
        ids[name] = value
    return _Correlation(ids)
