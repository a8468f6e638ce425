"""Attempt: one try, as the code inside it sees it."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any, NoReturn, Self

from ..core.context import IDS, Entered, Scope, clock_around, job_around, key_around, scope_around, within
from ..core.ids import merged
from ..core.key import Key, KeyLike
from ..core.seconds import Seconds
from ..core.seconds import seconds as duration
from ..errors import Rejected

LEAST = 0.001
"""Seconds, the shortest time-out that is ever handed to a client."""


class Attempt:
    """The attempt that is running now, from `current()` or from a block of `attempts()`.

    It belongs to the code of that attempt. Do not share it.
    """

    __slots__ = ("_block", "_scope")

    def __init__(self, scope: Scope | None, block: Any = None) -> None:
        self._scope = scope
        self._block = block

    @property
    def number(self) -> int:
        """Number of the attempt, from 1."""
        return 1 if self._scope is None else self._scope[1]

    @property
    def max_attempts(self) -> int | None:
        """Maximum number of attempts. None outside of a retry."""
        layer = None if self._scope is None else self._scope[2]
        return None if layer is None else layer.max_attempts

    @property
    def operation(self) -> str | None:
        """Name of the call. None outside of a retry."""
        layer = None if self._scope is None else self._scope[2]
        return None if layer is None else layer.operation

    @property
    def job_id(self) -> str | None:
        """Id of the job in the ledger that this attempt is part of. None outside of a job."""
        return job_around(self._scope)

    @property
    def key(self) -> Key | None:
        """Idempotency key of the work. It is the same for all attempts."""
        found: KeyLike | None = key_around(self._scope)
        return Key.parse(found) if isinstance(found, str) else found

    @property
    def remaining(self) -> float | None:
        """Seconds that this attempt may still take, or None if there is no limit.

        It is the smaller of the attempt's timeout and all deadlines. It is never 0, not even after
        the limit: clients treat 0 as "do not wait", or reject it.
        """
        if self._scope is None or self._scope[0] == math.inf:
            return None
        return max(LEAST, self._scope[0] - clock_around().monotonic())

    def reject(self, because: str = "the result was rejected", /, *, result: Any = None) -> NoReturn:
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
            raise RuntimeError("only the attempts of `for attempt in retry.attempts()` can be entered")
        self._block.enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> bool:
        left: bool = self._block.leave(error)
        return left

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        return self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"Attempt(number={self.number}, operation={self.operation!r}, remaining={self.remaining})"


def current() -> Attempt:
    """Return the attempt that is running around this code.

    Returns:
        The attempt. Outside of a retry it has number 1, no limit and no key.
    """
    return Attempt(scope_around())


class _Bound:
    """A scope that `with` and `async with` both open; made anew for each use."""

    __slots__ = ("_entered", "_seconds")

    def __init__(self, limit: float) -> None:
        self._seconds = limit
        self._entered: Entered | None = None

    def __enter__(self) -> None:
        if self._entered is not None:
            raise RuntimeError("this deadline is already in use; create a new one")
        end = clock_around().monotonic() + self._seconds
        self._entered = Entered(within(end, scope_around()))

    def __exit__(self, *_: object) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.leave()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


def deadline(seconds: Seconds, /) -> _Bound:
    """Limit the time of all retries inside a block: `with deadline(5):`, or `async with`.

    No attempt starts after the deadline, and no wait passes it. An inner deadline can only shorten
    it. It does not interrupt running code.

    Args:
        seconds: Seconds from now, or a `timedelta`.

    Returns:
        A context manager for one use.
    """
    return _Bound(duration("deadline", seconds))


class _Ids:
    """Correlation ids for a block, opened by `with` or `async with`."""

    __slots__ = ("_ids", "_token")

    def __init__(self, ids: dict[str, str]) -> None:
        self._ids = ids
        self._token: Any = None

    def __enter__(self) -> None:
        if self._token is not None:
            raise RuntimeError("this correlate(...) is already in use; create a new one")
        self._token = IDS.set(merged(IDS.get(), self._ids))

    def __exit__(self, *_: object) -> None:
        token, self._token = self._token, None
        try:
            IDS.reset(token)
        except ValueError:
            pass  # a generator was closed by another context than the one it ran in, which has nothing of ours to undo

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
) -> _Ids:
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
    given = {"request_id": request_id, "trace_id": trace_id, "user_id": user_id, "org_id": org_id, **more}
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"correlation id {name} must be text, not {type(value).__name__}: {value!r}")
    return _Ids({name: value for name, value in given.items() if value is not None})
