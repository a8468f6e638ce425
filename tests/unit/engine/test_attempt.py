"""The attempt as code inside sees it: `current`, `deadline`, `correlate`."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redrive import Key, RetryPolicy, correlate, current, deadline, journal, retry
from redrive.core import context
from redrive.engine import fastpath, loop
from redrive.testing import FakeClock
from tests.named import case_name

ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)


def test_current_is_empty_outside_an_attempt() -> None:
    attempt = current()
    assert (attempt.number, attempt.max_attempts, attempt.operation) == (1, None, None)
    assert (attempt.key, attempt.job_id, attempt.remaining) == (None, None, None)
    assert repr(attempt) == "Attempt(number=1, operation=None, remaining=None)"


@pytest.mark.req("C-1")
@pytest.mark.parametrize(
    "options",
    [{}, {"timeout": 60}, {"key": "a:b:c:d:v1"}, {"reject": lambda _: False}, {"attempt_timeout": None, "timeout": 60}],
    ids=case_name,
)
def test_an_attempt_has_its_number_and_operation(options: dict[str, Any]) -> None:
    seen: list[tuple[int, int | None, str | None]] = []

    def note() -> None:
        seen.append((current().number, current().max_attempts, current().operation))
        if len(seen) < 3:
            raise ValueError

    async def anote() -> None:
        note()

    layer = retry(backoff_base=0, jitter=0, on=ValueError, operation="crm", **options)
    asyncio.run(layer.acall(anote))
    assert seen == [(1, 3, "crm"), (2, 3, "crm"), (3, 3, "crm")]
    seen.clear()
    layer.call(note)
    assert seen == [(1, 3, "crm"), (2, 3, "crm"), (3, 3, "crm")]
    assert current().operation is None


@pytest.mark.req("C-1")
def test_later_attempts_are_numbered_without_a_time_limit() -> None:
    seen: list[int] = []

    @retry(ZERO, on=ValueError, attempt_timeout=None)
    def call() -> None:
        seen.append(current().number)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        call()
    assert seen == [1, 2, 3]
    assert current().number == 1


@pytest.mark.req("C-1")
def test_the_innermost_key_is_current(clock: FakeClock) -> None:
    @retry(key="in:{user}:{order}:charge:v1")
    def inner(order: str, *, user: str = "ann") -> Key | None:
        return current().key

    @retry
    def between() -> Key | None:
        return current().key

    @retry(key=lambda: Key("out", "bob", "o-2", "ship"))
    def outer() -> tuple[Key | None, Key | None]:
        return between(), inner("o-1")

    assert outer() == (Key("out", "bob", "o-2", "ship"), Key("in", "ann", "o-1", "charge"))


@pytest.mark.req("C-8")
@pytest.mark.parametrize("limit", [10, None])
@pytest.mark.parametrize("ends", [lambda: 1, ValueError, KeyboardInterrupt])
def test_a_sync_layer_restores_the_surrounding_scope(limit: float | None, ends: Callable[[], Any]) -> None:
    def inner() -> None:
        if isinstance(ends, type):
            raise ends

    layer = retry(ZERO, on=ValueError, attempt_timeout=limit)
    for _ in range(2):
        try:
            layer.call(inner)
        except (ValueError, KeyboardInterrupt):
            pass
        assert context.scope_around() is None
        with deadline(50):
            around = context.scope_around()
            try:
                layer.call(inner)
            except (ValueError, KeyboardInterrupt):
                pass
            assert context.scope_around() is around


@pytest.mark.req("C-8")
def test_scopes_never_leak_between_threads_and_tasks() -> None:
    """Concurrent, nested, failing and succeeding calls in copied and new contexts. Each sees only its own scope."""
    wrong: list[str] = []
    limits = [3.0, 5.0, 7.0, None]

    def check(number: int) -> None:
        limit = limits[number % 4]
        layer = retry(ZERO, on=ValueError, attempt_timeout=limit, operation=f"layer {number}")
        tries = 0

        def leaf() -> None:
            nonlocal tries
            tries += 1
            remaining = current().remaining
            bound = 3.0 if limit is None else min(limit, 100.0)
            if limit is not None and (remaining is None or remaining > bound):
                wrong.append(f"{limit} became {remaining}")
            if limit is not None and (current().number != tries or current().operation != f"layer {number}"):
                wrong.append(f"attempt {tries} of {number} was {current()}")
            if tries < 3:
                raise ValueError

        layer.call(leaf)

    async def task(number: int) -> None:
        layer = retry(ZERO, on=ValueError, attempt_timeout=limits[number % 4], operation=f"task {number}")

        async def leaf() -> None:
            operation = current().operation
            await asyncio.sleep(0)
            check(number + 1)
            await asyncio.to_thread(check, number + 2)
            if current().operation != operation:
                wrong.append(f"{operation} became {current().operation}")

        await layer.acall(leaf)

    async def many(base: int) -> None:
        await asyncio.gather(*(task(base + number) for number in range(20)))

    def work(base: int) -> None:
        for number in range(50):
            check(base + number)
        asyncio.run(many(base))
        if context.scope_around() is not None:
            wrong.append("left behind")

    check(0)  # the contexts copied below already have a slot
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(contextvars.copy_context().run, work, base) for base in range(6)]
        futures += [pool.submit(work, base) for base in range(6)]
        for future in futures:
            future.result()
    assert wrong == []


@pytest.mark.req("C-8")
def test_a_slot_of_another_thread_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with greenlets that have their own identity and share a copied context."""
    layer = retry(ZERO, attempt_timeout=10)
    layer.call(lambda: None)
    slot = context.SLOT.get()
    assert slot is not None
    copied = contextvars.copy_context()
    stranger = threading.get_ident() + 1
    monkeypatch.setattr(context, "get_ident", lambda: stranger)
    for module in (loop, fastpath):
        monkeypatch.setattr(module, "get_ident", lambda: stranger)
    seen: list[object] = []
    copied.run(layer.call, lambda: seen.append(slot.scope))
    assert seen == [None]
    assert copied[context.SLOT] is not slot


def test_correlation_ids_reach_every_record_inside() -> None:
    ring = journal.ring()
    unsubscribe = journal.subscribe(ring, inline=True)

    def call() -> None:
        with pytest.raises(KeyError):
            retry(ZERO, operation="o").call(dict[str, int]().__getitem__, "x")

    async def later() -> None:
        async with correlate(trace_id="t"):
            call()

    try:
        with correlate(request_id="r", order="7"):
            call()
            asyncio.run(later())
        call()
    finally:
        unsubscribe()
    found = [{name: record.fields.get(name) for name in ("request_id", "order", "trace_id")} for record in ring.records]
    assert found == [
        {"request_id": "r", "order": "7", "trace_id": None},
        {"request_id": "r", "order": "7", "trace_id": "t"},
        {"request_id": None, "order": None, "trace_id": None},
    ]


@pytest.mark.req("C-11")
def test_invalid_ids_are_rejected() -> None:
    with pytest.raises(TypeError, match="request_id must be text"):
        correlate(request_id=5)  # type: ignore[arg-type]
    ids = correlate(user_id="u")
    with ids, pytest.raises(RuntimeError, match="create a new one"):
        ids.__enter__()
