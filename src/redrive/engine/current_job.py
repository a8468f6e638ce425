"""What the code of a job can do through `current()`: steps, sleeps and waits for signals.

The worker provides the job behind it, so that the engine needs no ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from ..core.context import Scope, job_layer_around
from ..core.seconds import Seconds, check_dated, real

P = ParamSpec("P")
T = TypeVar("T")
UNIT_SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}


class RunningJob(Protocol):
    """The job of the attempt around, as a worker provides it."""

    def step(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any:
        """Run a step, or return its stored result. A coroutine if the function is async."""

    def sleep(self, duration: timedelta, name: str | None, /) -> None:
        """Suspend the job, or return if it has slept."""

    def asleep(self, duration: timedelta, name: str | None, /) -> Coroutine[Any, Any, None]:
        """Suspend the job, or return if it has slept."""

    def wait_for(self, name: str, timeout: Seconds, /) -> Any:
        """Return the payload of a signal, or suspend the job."""

    def await_for(self, name: str, timeout: Seconds, /) -> Coroutine[Any, Any, Any]:
        """Return the payload of a signal, or suspend the job."""

    @property
    def reports(self) -> JobReports:
        """The progress and the checkpoint of the job."""


class JobReports(Protocol):
    """The progress and the checkpoint of a job, as a worker provides them."""

    def progress(self, part: float, note: str | None, /) -> None:
        """Report which part of the work is done."""

    def checkpoint(self, value: Any, /) -> None:
        """Store a value for the next attempt."""

    def acheckpoint(self, value: Any, /) -> Coroutine[Any, Any, None]:
        """Store a value for the next attempt."""

    def last_checkpoint(self, default: Any, /) -> Any:
        """Return the value of the last checkpoint."""

    async def alast_checkpoint(self, default: Any, /) -> Any:
        """Return the value of the last checkpoint."""


class Unawaited:
    """What async code has created and not awaited yet. Belongs to the attempt that is running."""

    def __init__(self) -> None:
        self._coroutines: dict[object, tuple[str, Coroutine[Any, Any, Any]]] = {}
        """With the message of their errors."""

    def track(
        self, place: str, method: str, work: Callable[..., Coroutine[Any, Any, T]], /, *args: Any
    ) -> Coroutine[Any, Any, T]:
        """Return the coroutine of a call, and note it until it is awaited."""
        token = object()

        async def run() -> T:
            self._coroutines.pop(token, None)
            return await work(*args)

        coroutine = run()
        fix = f"write `await current().{method}(...)` in an async command"
        problem = f"{place} was never awaited, so that it did not run; {fix}"
        self._coroutines[token] = (problem, coroutine)
        return coroutine

    def refuse(self) -> None:
        """Raise TypeError if a coroutine was never awaited."""
        unawaited, self._coroutines = list(self._coroutines.values()), {}
        for _, coroutine in unawaited:
            coroutine.close()  # it does not run later, and Python does not warn
        if unawaited:
            raise TypeError(unawaited[0][0])


class DurableAttempt:
    """The attempt of a job. Outside of a job, each of these methods raises RuntimeError."""

    __slots__ = ("_scope",)

    def __init__(self, scope: Scope | None) -> None:
        self._scope = scope

    @property
    def cancelled(self) -> bool:
        """Whether the job of this attempt was cancelled. False outside of a job.

        A sync function that runs long reads it now and then, and raises to stop: any error ends
        the job as `cancelled`. If the function returns, the job is `done`. Async functions are
        cancelled instead. It becomes true within about a second of the request.
        """
        layer = job_layer_around(self._scope)
        return bool(getattr(layer, "cancelled", False))

    # A coroutine is also a T, so the async one is first.
    @overload
    def step(
        self,
        name: str,
        fn: Callable[P, Coroutine[Any, Any, T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once in the life of a job, and store its result.

        A later attempt gets the stored result, and the function is not called. Await it if the
        function is async. The function may have retries of its own: `retry(...)(charge)`.

        The result is stored when the function has returned. If the worker dies between the two, the
        step is repeated. Pass `current().key` to the service that it calls: inside a step it is a
        key of this step, and the same in each attempt.

        Args:
            name: Name of the step, which is unique in the job. A loop numbers its steps.
            fn: The function. The annotation of its result says how the result is stored.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Returns:
            The result, as it is stored.

        Raises:
            RuntimeError: No job is running here.
            ValueError: The name was used before in this attempt.
            TypeError: The result has a type that cannot be stored.
            LeaseLost: Another worker has this job now. Nothing was stored.
        """
        return self._job(f"step {name!r}").step(name, fn, args, kwargs)

    def sleep(
        self,
        duration: Seconds = 0,
        /,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        name: str | None = None,
    ) -> None:
        """Release the worker, and continue the job after this time, in any process.

        The function starts again from its beginning. Finished steps are not repeated, and a sleep
        that is over returns at once. The sleep does not count as an attempt.

        Args:
            duration: Seconds, or a `timedelta`. Added to the units.
            weeks: Weeks.
            days: Days.
            hours: Hours.
            minutes: Minutes.
            seconds: Seconds.
            name: Name of the sleep, which is unique in the job. Default: its number in the
                attempt. Name sleeps that other attempts may skip.

        Raises:
            Suspended: The attempt ends here. Do not catch it.
            RuntimeError: No job is running here, or it runs in a transaction.
            TypeError: A time is not a number, or the job is async. Use
                `await current().asleep(...)`.
            ValueError: The time is not above 0, or longer than a century.
        """
        units = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes}
        self._job("sleep").sleep(_sleep_time(duration, units | {"seconds": seconds}), name)

    def asleep(
        self,
        duration: Seconds = 0,
        /,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        name: str | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Release the worker, and continue the job after this time, from async code.

        Args:
            duration: Seconds, or a `timedelta`. Added to the units.
            weeks: Weeks.
            days: Days.
            hours: Hours.
            minutes: Minutes.
            seconds: Seconds.
            name: Name of the sleep, as of `sleep`.

        Raises:
            Suspended: The attempt ends here. Do not catch it.
        """
        units = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes}
        time = _sleep_time(duration, units | {"seconds": seconds})
        return self._job("sleep").asleep(time, name)

    def wait_for(self, name: str, *, timeout: Seconds) -> Any:
        """Release the worker until `app.signal(key, name)` was called, in any process.

        The function starts again from its beginning, as after `sleep`. A signal that was sent
        before is returned at once.

        Args:
            name: Name of the signal.
            timeout: Seconds to wait at most, or a `timedelta`.

        Returns:
            The payload of the signal.

        Raises:
            Suspended: The attempt ends here. Do not catch it.
            SignalTimeout: The signal did not arrive in time. Later attempts get this error, too.
            RuntimeError: No job is running here, or it runs in a transaction.
            TypeError: The job is async. Use `await current().await_for(...)`.
            ValueError: The name was used before in this attempt.
        """
        return self._job(f"signal {name!r}").wait_for(name, timeout)

    def await_for(self, name: str, *, timeout: Seconds) -> Coroutine[Any, Any, Any]:
        """Release the worker until `app.signal(key, name)` was called, from async code.

        Args:
            name: Name of the signal.
            timeout: Seconds to wait at most, or a `timedelta`.

        Returns:
            The payload of the signal.

        Raises:
            Suspended: The attempt ends here. Do not catch it.
            SignalTimeout: The signal did not arrive in time.
        """
        return self._job(f"signal {name!r}").await_for(name, timeout)

    def progress(self, part: float, note: str | None = None) -> None:
        """Report which part of the work is done. The console and `jobs show` show it.

        It costs no write: the worker writes the last report of each job about once a second.

        Args:
            part: From 0 to 1.
            note: What the job does now, such as `"page 12 of 30"`.

        Raises:
            ValueError: The part is not from 0 to 1.
            RuntimeError: No job is running here.
        """
        self._job("progress").reports.progress(part, note)

    def checkpoint(self, value: Any) -> None:
        """Store a value for the next attempt. It is durable when this returns.

        A replay gets it, too, unless it is fresh.

        Args:
            value: Text, numbers, lists or dicts.

        Raises:
            TypeError: The value cannot be stored, or the job is async.
            LeaseLost: Another worker has this job now. Nothing was stored.
            RuntimeError: No job is running here.
        """
        self._job("checkpoint").reports.checkpoint(value)

    def acheckpoint(self, value: Any) -> Coroutine[Any, Any, None]:
        """Store a value for the next attempt, from async code.

        Args:
            value: Text, numbers, lists or dicts.
        """
        return self._job("checkpoint").reports.acheckpoint(value)

    def last_checkpoint(self, default: Any = None) -> Any:
        """Return the value of the last checkpoint of this job.

        Args:
            default: Returned if there is no checkpoint.

        Returns:
            The value.
        """
        return self._job("last_checkpoint").reports.last_checkpoint(default)

    async def alast_checkpoint(self, default: Any = None) -> Any:
        """Return the value of the last checkpoint of this job, from async code.

        Args:
            default: Returned if there is no checkpoint.

        Returns:
            The value.
        """
        return await self._job("last_checkpoint").reports.alast_checkpoint(default)

    def _job(self, wanted: str) -> RunningJob:
        layer = job_layer_around(self._scope)
        job: RunningJob | None = getattr(layer, "running_job", None)
        if job is None:
            raise RuntimeError(
                f"{wanted}: no job is running here; submit the command to a worker, "
                "or to redrive.testing.sandbox in a test (threads need a copy of the context)"
            )
        return job


def _sleep_time(duration: object, units: Mapping[str, object]) -> timedelta:
    """Return how long to sleep. Errors name the unit and the value."""
    if isinstance(duration, timedelta):
        total = duration.total_seconds()
    elif isinstance(duration, bool) or not isinstance(duration, (int, float)):
        raise TypeError(
            f"sleep: pass seconds, a timedelta, or units such as hours=1, "
            f"not {type(duration).__name__}: {duration!r}"
        )
    else:
        total = real("sleep: the time", duration)
    total += sum(real(f"sleep: {unit}", units[unit]) * UNIT_SECONDS[unit] for unit in units)
    if total <= 0:
        raise ValueError(f"sleep: the time must be above 0, not {total:g} s; for example: hours=1")
    return timedelta(seconds=check_dated("sleep: the time", total))
