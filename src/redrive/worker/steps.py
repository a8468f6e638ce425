"""Steps, sleeps and waits of a running job, which later attempts do not repeat.

A finished step is stored in a transaction of its own before `step` returns. In a job that runs in a
transaction, it is stored in that transaction. An attempt reads the stored steps once, when it
reaches its first step. The first attempt reads nothing.

A sleep or wait raises `Suspended`, which ends the attempt. Then `suspend` stores it and settles the
job, in one transaction.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import typing
from _thread import allocate_lock
from asyncio import _get_running_loop  # 30 ns; the public function raises without a loop
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, TypeVar

from sqlalchemy import Connection

from ..core.callables import function_name
from ..core.codec import Codec, codec, from_bytes, misfit, to_bytes
from ..core.context import ATTEMPT, END, LAYER, OUTER, ActiveScope, key_around, scope_around
from ..core.key import Key
from ..core.seconds import Seconds, dated_duration
from ..core.text import safe_str
from ..engine.current_job import Unawaited
from ..errors import LeaseLost, SignalTimeout, Suspended
from ..journal.bus import emit
from ..ledger.ledger import Ledger
from ..ledger.model import Lease, Settlement
from ..ledger.store import signals
from ..ledger.store import steps as store
from ..ledger.store.steps import MAX_STEPS, TIMED_OUT, Step, StepAct
from ..ledger.validation import check_name, storable_text
from .job_type import Undecodable, Unstorable
from .progress import (
    JobProgress,
    ProgressBoard,
    finish,
    is_first_attempt,
    reading,
    refuse_event_loop,
)

T = TypeVar("T")
MAX_STEP_NAME_BYTES = 200
DIGEST_BYTES = 16
CLOCK_TOLERANCE = timedelta(seconds=0.1)
"""A worker's clock may be this much behind the ledger's, when a sleep is over."""
LOCK_SECONDS = 1.0
"""How long a wait waits for an open transaction that sends its signal. Then the job is retried."""


class JobSteps:
    """The steps of one job, for the attempt that is running. Threads may share it."""

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        now: Callable[[], datetime],
        /,
        *,
        connection: Connection | None = None,
        board: ProgressBoard | None = None,
    ) -> None:
        """Prepare. Nothing is read before the first step.

        Args:
            ledger: For reads and writes.
            lease: Of the attempt.
            now: Returns the time by the ledger's clock.
            connection: Of the transaction in which the job runs, if it does.
            board: Takes reports of progress, which the worker writes. None: write them at once.
        """
        self._ledger, self._lease, self._now = ledger, lease, now
        self._connection = connection
        self.unawaited = Unawaited()
        self.reports = JobProgress(
            ledger, lease, now, self.unawaited, connection=connection, board=board
        )
        """Its progress and its checkpoint."""
        self._lock = allocate_lock()
        self._used: set[tuple[StepAct, str]] = set()
        self._sleeps = 0
        self._suspensions: list[Step] = []
        """Sleeps and waits that end this attempt."""
        self._stored: dict[tuple[StepAct, str], Step] | None = (
            {} if is_first_attempt(lease) else None
        )

    # ---- steps ----

    def step(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> Any:
        """Run a step, or return its stored result. A coroutine if the function is async."""
        check_name("the name of a step", name, MAX_STEP_NAME_BYTES)
        if not callable(fn):
            raise TypeError(f"step {name!r}: pass a function, not {type(fn).__name__}: {fn!r}")
        if _is_async(fn):
            return self.unawaited.track(
                f"step {name!r}", "step", self._step_async, name, fn, args, kwargs
            )
        if _get_running_loop() is not None:
            raise TypeError(
                f"step {name!r}: {function_name(fn)} is sync and would block the event loop; "
                f"use `await current().step({name!r}, asyncio.to_thread, {function_name(fn)}, ...)`"
            )
        call = self._begin(name, fn, args, kwargs)
        finished = self._finished(call)
        if finished is not None:
            return call.decode(self._result_of(finished))
        try:
            with _step_scope(name):
                result = call.function(*args, **kwargs)
            stored = call.encode(result, self._ledger.max_payload)
        except Exception as error:
            if self._connection is None:  # its transaction is rolled back
                with suppress(Exception):  # the attempt fails as without it
                    self._write(call.failed(error))
            raise
        self._write(call.finished(stored, self._now()))
        return call.decode(stored)

    async def _step_async(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        call = self._begin(name, fn, args, kwargs)
        await self._load_in_thread()
        finished = self._finished(call)
        if finished is not None:
            if finished.is_loaded:
                return call.decode(finished.result)
            return call.decode(await asyncio.to_thread(self._result_of, finished))
        try:
            with _step_scope(name):
                result = await call.function(*args, **kwargs)
            stored = call.encode(result, self._ledger.max_payload)
        except Exception as error:
            if self._connection is None:  # its transaction is rolled back
                with suppress(Exception):  # the attempt fails as without it
                    await self._write_from_loop(call.failed(error))
            raise
        await finish(self._write_from_loop(call.finished(stored, self._now())))
        return call.decode(stored)

    def _begin(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _StepCall:
        call = _StepCall(name, fn, _result_codec(name, fn), _digest(args, kwargs), self._now())
        self._reserve("step", name)
        return call

    def _reserve(self, act: StepAct, name: str) -> None:
        """Take a name, once in an attempt. Nothing new starts in an attempt that is suspended."""
        with self._lock:
            if self._suspensions and act == "step":
                raise Suspended("this attempt sleeps or waits")
            if (act, name) in self._used:
                raise ValueError(
                    f"{act} {name!r}: the name was used before in this attempt; each {act} needs "
                    f"a name of its own, such as '{name} 2'"
                )
            if len(self._used) >= MAX_STEPS:
                raise ValueError(
                    f"{act} {name!r}: a job has at most {MAX_STEPS:,} steps; do the rest in other "
                    "jobs, or store its position with a checkpoint"
                )
            self._used.add((act, name))

    def _finished(self, call: _StepCall) -> Step | None:
        """Return the stored step if it is finished."""
        stored = self._load().get(("step", call.name))
        if stored is None:
            return None
        if stored.ended_at is None:
            call.attempts = stored.attempts
            return None
        if None not in (call.digest, stored.arguments) and call.digest != stored.arguments:
            emit(
                "step_changed",
                {
                    "operation": self._lease.kind,
                    "job_id": str(self._lease.job_id),
                    "step": call.name,
                    "attempt": self._lease.attempt,
                },
            )
        return stored

    # ---- sleeps and waits ----

    def sleep(self, duration: timedelta, name: str | None, /) -> None:
        """Suspend the job, or return if it has slept."""
        name = self._begin_sleep(duration, name)
        refuse_event_loop("sleep", "asleep")
        self._sleep(duration, name)

    def asleep(self, duration: timedelta, name: str | None, /) -> Coroutine[Any, Any, None]:
        """Suspend the job, or return if it has slept."""
        place = "a sleep" if name is None else f"sleep {name!r}"

        async def sleep() -> None:
            begun = self._begin_sleep(duration, name)
            await self._load_in_thread()
            self._sleep(duration, begun)

        return self.unawaited.track(place, "asleep", sleep)

    def _begin_sleep(self, duration: timedelta, name: str | None) -> str:
        self._refuse_transaction("sleep")
        if name is None:
            with self._lock:
                self._sleeps += 1
                name = str(self._sleeps)
        check_name("the name of a sleep", name, MAX_STEP_NAME_BYTES)
        self._reserve("sleep", name)
        return name

    def _sleep(self, duration: timedelta, name: str) -> None:
        now = self._now()
        stored = self._load().get(("sleep", name))
        if stored is None:
            self._suspend(Step("sleep", name, wake_at=now + duration, started_at=now))
        elif stored.wake_at is not None and stored.wake_at > now + CLOCK_TOLERANCE:
            self._suspend(stored)

    def wait_for(self, name: str, timeout: Seconds, /) -> Any:
        """Return the payload of a signal, or suspend the job."""
        limit = self._begin_wait(name, timeout)
        refuse_event_loop("wait_for", "await_for")
        return self._wait(name, limit)

    def await_for(self, name: str, timeout: Seconds, /) -> Coroutine[Any, Any, Any]:
        """Return the payload of a signal, or suspend the job."""

        async def wait() -> Any:
            limit = self._begin_wait(name, timeout)
            return await asyncio.to_thread(self._wait, name, limit)

        return self.unawaited.track(f"wait {name!r}", "await_for", wait)

    def _begin_wait(self, name: str, timeout: Seconds) -> timedelta:
        self._refuse_transaction("wait_for")
        check_name("the name of a signal", name, MAX_STEP_NAME_BYTES)
        limit = timedelta(seconds=dated_duration(f"signal {name!r}: timeout", timeout))
        self._reserve("wait", name)
        return limit

    def _wait(self, name: str, limit: timedelta) -> Any:
        stored = self._load().get(("wait", name))
        if stored is None or stored.ended_at is None:
            with reading(self._ledger, self._connection) as connection:
                sent = signals.find_signal(connection, self._lease.job_id, name)
            if sent is not None:
                return None if sent[0] is None else from_bytes(sent[0])
            now = self._now()
            if stored is None:
                self._suspend(Step("wait", name, wake_at=now + limit, started_at=now))
            elif stored.wake_at is not None and stored.wake_at > now + CLOCK_TOLERANCE:
                self._suspend(stored)
            else:  # stored, so that a later signal changes nothing
                self._write(stored._replace(ended_at=now, error=TIMED_OUT))
        raise SignalTimeout(f"the signal {name!r} did not arrive in time")

    def _suspend(self, step: Step) -> None:
        with self._lock:
            self._suspensions.append(step)
        raise Suspended(f"{step.act} {step.name!r}")

    def _refuse_transaction(self, act: str) -> None:
        if self._connection is not None:
            raise RuntimeError(
                f"{act}: a job with in_transaction=True cannot release its worker, because its "
                "transaction would be rolled back; use a command without in_transaction=True"
            )

    @property
    def is_suspended(self) -> bool:
        """Whether a sleep or a wait ended this attempt."""
        return bool(self._suspensions)

    def suspend(self) -> Settlement:
        """Store the sleeps and waits of this attempt, and settle the job. Call it at the end.

        Returns:
            The settlement, which is in the ledger.

        Raises:
            LeaseLost: The lease is no longer this worker's. Nothing was written.
        """
        first = min(self._suspensions, key=lambda step: step.wake_at or self._now())
        waits = [step for step in self._suspensions if step.act == "wait"]
        lease, connections = self._lease, self._ledger.connections
        with (
            connections.write.use() as session,
            session.transaction("suspend", lock_seconds=LOCK_SECONDS) as connection,
        ):
            arrived = [
                step for step in waits if signals.await_signal(connection, lease.job_id, step.name)
            ]
            for step in self._suspensions:
                store.write_step_in(connection, lease, step)
            assert first.wake_at is not None
            after = 0.0 if arrived else max(0.0, (first.wake_at - self._now()).total_seconds())
            names = [step.name for step in waits]
            waits_for = None if arrived else names[0] if names else ""
            settlement = lease.suspended(after, waits_for=waits_for)
            result = connections.store.settle_in(session.run, [settlement])
            if result.late:
                raise LeaseLost(f"job {lease.job_id} ({lease.kind}, fence {lease.fence}): too late")
        return lease.cancelled() if result.cancelled else settlement

    # ---- the ledger ----

    def _load(self) -> dict[tuple[StepAct, str], Step]:
        """Return the steps that earlier attempts have stored. They are read once."""
        with self._lock:
            if self._stored is None:
                with reading(self._ledger, self._connection) as connection:
                    rows = store.steps_of(connection, self._lease.job_id)
                self._stored = {(row.act, row.name): row for row in rows}
            return self._stored

    async def _load_in_thread(self) -> None:
        """Let `_load` read now, so that it does not block the event loop."""
        if self._stored is None:
            await asyncio.to_thread(self._load)

    def _result_of(self, finished: Step) -> bytes | None:
        if finished.is_loaded:
            return finished.result
        with reading(self._ledger, self._connection) as connection:
            return store.result_of(connection, self._lease.job_id, finished.act, finished.name)

    def _write(self, written: Step) -> None:
        if self._connection is not None:
            store.write_step_in(self._connection, self._lease, written)
            return
        # The group-commit leader would wait for this thread, and this thread for the leader.
        self._ledger.connections.write.assert_not_nested()
        if not self._ledger.step_commit.submit([(self._lease, written)])[0]:
            self._write_alone(written)

    async def _write_from_loop(self, written: Step) -> None:
        if self._connection is not None:
            await asyncio.to_thread(self._write, written)
        elif not (await self._ledger.step_commit.asubmit([(self._lease, written)]))[0]:
            await asyncio.to_thread(self._write_alone, written)

    def _write_alone(self, written: Step) -> None:
        """Write a step whose job another transaction has locked, or whose lease is lost."""
        with self._ledger.connections.write.use() as session:
            store.write_step(session, self._lease, written)


@dataclass(slots=True, eq=False)
class _StepCall:
    """One call of a step in this attempt."""

    name: str
    fn: Callable[..., Any]
    codec: Codec
    digest: bytes | None
    started_at: datetime
    attempts: int = 0
    """Calls of the function, over all attempts of the job."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function, which counts its calls. Its own retries count, too."""
        retry = getattr(self.fn, "__redrive__", None)
        inner = getattr(self.fn, "__wrapped__", None)
        if retry is None or inner is None or not inspect.isfunction(self.fn):
            return self._counting(self.fn)
        retried: Callable[..., Any] = retry(self._counting(inner))
        return retried

    def _counting(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def count_sync(*args: Any, **kwargs: Any) -> Any:
            self.attempts += 1
            return fn(*args, **kwargs)

        @functools.wraps(fn)
        async def count_async(*args: Any, **kwargs: Any) -> Any:
            self.attempts += 1
            return await fn(*args, **kwargs)

        return count_async if _is_async(fn) else count_sync

    def finished(self, result: bytes | None, now: datetime) -> Step:
        return Step(
            *("step", self.name, self.digest, result),
            attempts=self.attempts,
            started_at=self.started_at,
            ended_at=now,
        )

    def failed(self, error: Exception) -> Step:
        return Step(
            *("step", self.name, self.digest),
            error=storable_text(f"{type(error).__name__}: {safe_str(error)}"),
            attempts=self.attempts,
            started_at=self.started_at,
        )

    def encode(self, result: Any, max_bytes: int) -> bytes | None:
        """Return the stored form of a result.

        Raises:
            Unstorable: It does not have the annotated type, or is too large.
        """
        if result is None:
            return None
        place = f"step {self.name!r}: {function_name(self.fn)}"
        if hasattr(type(result), "__await__"):
            if hasattr(result, "close"):
                result.close()  # otherwise Python warns that it was never awaited
            raise TypeError(f"{place} returned an awaitable; pass the `async def` itself")
        try:
            stored = to_bytes(self.codec.dump(result))
        except (TypeError, ValueError, RecursionError) as error:
            problem = misfit(error)
            raise Unstorable(
                f"{place} has run, but its result cannot be stored: {problem}"
            ) from None
        if len(stored) > max_bytes:
            raise Unstorable(
                f"{place} has run, but its result has {len(stored)} bytes; the ledger takes at "
                f"most {max_bytes}; store it elsewhere, and return its path"
            )
        return stored

    def decode(self, stored: bytes | None) -> Any:
        """Return a stored result as the annotated type.

        Raises:
            Undecodable: The annotation has changed, and the result does not fit it.
        """
        if stored is None:
            return None
        try:
            return self.codec.load(from_bytes(stored))
        except Exception as error:
            raise Undecodable(
                f"step {self.name!r}: its stored result does not fit {function_name(self.fn)}: "
                f"{misfit(error) if isinstance(error, (TypeError, ValueError)) else 'not readable'}"
            ) from None


def _is_async(fn: Callable[..., Any]) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    call = fn if inspect.isroutine(fn) else getattr(type(fn), "__call__", fn)  # noqa: B004
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def _result_codec(name: str, fn: Callable[..., Any]) -> Codec:
    """Return the codec of a function's result, before the function is called."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    try:
        return _codec_of(fn)
    except TypeError as error:
        raise TypeError(
            f"step {name!r}: the result of {function_name(fn)} cannot be stored: {error}"
        ) from None


@functools.lru_cache(1000)
def _codec_of(fn: Callable[..., Any]) -> Codec:
    try:
        hints = typing.get_type_hints(fn, include_extras=True)
    except Exception:  # a built-in function, or annotations that cannot be read
        hints = {}
    return codec(hints.get("return", Any))


def _digest(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
    """Return a digest of the arguments. None if they cannot be compared."""
    try:
        stored = [[_plain(value) for value in args], {k: _plain(kwargs[k]) for k in sorted(kwargs)}]
        return sha256(to_bytes(stored)).digest()[:DIGEST_BYTES]
    except Exception:
        return None


def _plain(value: Any) -> Any:
    kind: Any = type(value)
    return _codec_of_type(kind).dump(value)


@functools.lru_cache(1000)
def _codec_of_type(kind: Any) -> Codec:
    return codec(kind)


@contextmanager
def _step_scope(name: str) -> Iterator[None]:
    """Give the code of a step a key of its own: that of the job, with the name of the step."""
    scope = scope_around()
    key = key_around(scope)
    if scope is None or key is None:
        yield
        return
    try:
        job_key = Key.parse(key) if isinstance(key, str) else key
        key = job_key.step(name)
    except ValueError:
        pass  # a name that cannot be a part of a key: the key of the job is used
    active = ActiveScope((scope[END], scope[ATTEMPT], scope[LAYER], key, scope[OUTER]))
    try:
        yield
    finally:
        active.leave()
