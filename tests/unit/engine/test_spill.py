"""Spilling: a call that gave up is enqueued as a job."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
import tenacity

from redrive import Breaker, Key, RetryPolicy, deadline, outcome, retry
from redrive.errors import Again, BreakerOpen
from redrive.testing import FakeClock
from tests.unit.engine.spilled import Kept, afailing, both, failing

pytestmark = pytest.mark.usefixtures("clock")


def test_exhausted_attempts_are_spilled_once_with_their_history() -> None:
    kept = Kept()
    number = 0
    for _, error in both(
        TimeoutError("token=s3cret"), max_attempts=3, backoff_base=1, jitter=0, spill=kept, key=Key("a", "b", "c", "d")
    ):
        number += 1
        (spilled,) = kept.spilled[number - 1 :]
        assert (spilled.operation, spilled.args, spilled.kwargs) == ("crm", (1,), {"user": "ann"})
        assert str(spilled.key) == "a:b:c:d:v1"
        assert (spilled.error, spilled.message) == ("TimeoutError", "token=[redacted]")
        assert (spilled.attempts, spilled.reason, spilled.retry_at, spilled.elapsed) == (3, "attempts", None, 3.0)
        assert spilled.history == (("TimeoutError", 1.0), ("TimeoutError", 2.0))
        ended = outcome(error)
        assert ended is not None
        assert (ended.job_id, ended.reason) == (str(number), "attempts")
        assert error.__notes__[-1] == f"redrive: enqueued as job {number}"
    assert number == 2


def test_a_wait_that_does_not_fit_is_spilled_with_its_time(clock: FakeClock) -> None:
    kept = Kept()
    started = clock.now()
    for _, error in both(ConnectionError("x"), max_attempts=5, backoff_base=60, backoff_max=60, jitter=0, timeout=30, spill=kept):
        ended = outcome(error)
        assert ended is not None
        assert (ended.reason, ended.attempts) == ("timeout", 1)
    assert [spilled.retry_at for spilled in kept.spilled] == [started + timedelta(seconds=60)] * 2


@pytest.mark.parametrize(
    "options", [{"timeout": None, "attempt_timeout": None}, {}, {"timeout": 100}, {"key": "a:b:{user}:d:v1"}]
)
def test_every_loop_spills(options: dict[str, Any]) -> None:
    kept = Kept()
    layer = retry(max_attempts=2, backoff_base=0, jitter=0, spill=kept, **options)

    @layer
    def plain(user: str) -> None:
        raise ConnectionError

    @layer
    async def coloured(user: str) -> None:
        raise ConnectionError

    async def call() -> None:
        with pytest.raises(ConnectionError):
            await coloured("ann")
        with pytest.raises(ConnectionError):
            await layer.acall(coloured.__wrapped__, "bob")  # type: ignore[attr-defined]

    with pytest.raises(ConnectionError):
        plain("ann")
    with pytest.raises(ConnectionError):
        layer.call(plain.__wrapped__, "bob")  # type: ignore[attr-defined]
    asyncio.run(call())
    assert [spilled.args for spilled in kept.spilled] == [("ann",), ("bob",), ("ann",), ("bob",)]
    assert {str(spilled.key) for spilled in kept.spilled} == ({"a:b:ann:d:v1", "a:b:bob:d:v1"} if "key" in options else {"None"})


def test_successes_and_permanent_errors_are_not_spilled() -> None:
    kept = Kept()
    layer = retry(max_attempts=3, backoff_base=0, jitter=0, spill=kept)
    assert layer(lambda: 7)() == 7
    for error in (ValueError("a bug"), Again("later")):
        for _ in both(error, spill=kept):
            pass
    for _ in both(ConnectionError(), idempotent=False, spill=kept):
        pass
    with pytest.raises(KeyboardInterrupt):
        layer(failing(KeyboardInterrupt()))()
    assert kept.spilled == []


@pytest.mark.parametrize(
    ("spills_inside", "idempotent", "expected"), [(False, True, (1, 0)), (True, True, (0, 1)), (False, False, (0, 0))]
)
def test_an_outer_layer_spills_an_error_that_the_inner_layer_did_not_spill(
    spills_inside: bool, idempotent: bool, expected: tuple[int, int]
) -> None:
    outer, inner = Kept(), Kept()
    around = retry(max_attempts=2, backoff_base=0, jitter=0, operation="outer", spill=outer, idempotent=idempotent)
    spill = inner if spills_inside else None
    inside = retry(max_attempts=2, backoff_base=0, jitter=0, operation="inner", spill=spill)(failing(TimeoutError()))
    further_out = retry(max_attempts=5, backoff_base=0, jitter=0)
    with pytest.raises(TimeoutError) as caught:
        further_out(lambda: around(lambda: inside())())()  # noqa: PLW0108
    assert (len(outer.spilled), len(inner.spilled)) == expected
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.layer, ended.reason, ended.job_id) == ("inner", "attempts", "1" if sum(expected) else None)


def test_spent_retries_of_another_library_are_spilled() -> None:
    kept = Kept()
    spent = tenacity.RetryError(tenacity.Future.construct(2, ConnectionError("refused"), has_exception=True))
    for _ in both(spent, spill=kept):
        pass
    assert [spilled.reason for spilled in kept.spilled] == ["nested", "nested"]


def test_a_recursive_function_is_spilled_once() -> None:
    kept = Kept()

    @retry(max_attempts=2, backoff_base=0, jitter=0, spill=kept)
    def down(depth: int) -> None:
        if depth:
            down(depth - 1)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        down(3)
    assert [spilled.args for spilled in kept.spilled] == [(0,)]


def test_a_single_failed_attempt_is_spilled() -> None:
    kept = Kept()
    for _, error in both(TimeoutError(), max_attempts=1, spill=kept):
        ended = outcome(error)
        assert ended is not None
        assert (ended.attempts, ended.reason, ended.spent) == (1, "attempts", True)
    assert len(kept.spilled) == 2
    (_, unmarked), *_ = both(TimeoutError(), max_attempts=1)
    assert outcome(unmarked) is None


def test_a_call_that_could_not_start_is_spilled() -> None:
    kept = Kept()
    layer = retry(
        RetryPolicy(2, backoff_base=0, jitter=0),
        breaker=Breaker(min_calls=1, open_for=60),
        spill=kept,
        key=Key("a", "b", "c", "d"),
    )
    work = layer(failing(TimeoutError()))
    with pytest.raises(TimeoutError):
        work(1)
    with pytest.raises(BreakerOpen) as refused:
        work(2)
    opened, closed = kept.spilled
    assert (opened.args, opened.reason, closed.args, closed.reason, closed.attempts) == (
        (1,),
        "breaker_open",
        (2,),
        "breaker_open",
        0,
    )
    assert closed.retry_at == refused.value.retry_at
    assert str(closed.key) == "a:b:c:d:v1"
    with deadline(0), pytest.raises(TimeoutError) as late:
        retry(spill=kept)(failing(ValueError()))(3)
    assert (kept.spilled[2].args, kept.spilled[2].reason) == ((3,), "timeout")
    ended = outcome(late.value)
    assert ended is not None
    assert ended.job_id == "3"


def test_an_error_shared_by_many_calls_is_spilled_for_each() -> None:
    kept = Kept()
    lost = ConnectionError("the connection of all of them")
    work = retry(max_attempts=2, backoff_base=0, jitter=0, spill=kept)(afailing(lost))

    async def main() -> None:
        await asyncio.gather(*(work(each) for each in range(20)), return_exceptions=True)

    asyncio.run(main())
    assert sorted(spilled.args[0] for spilled in kept.spilled) == list(range(20))

    kept.spilled.clear()
    plain = retry(max_attempts=2, backoff_base=0, jitter=0, spill=kept)(failing(lost))

    def call(each: int) -> None:
        with pytest.raises(ConnectionError):
            plain(each)

    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads overlap often
    try:
        threads = [threading.Thread(target=call, args=(each,)) for each in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(often)
    assert sorted(spilled.args[0] for spilled in kept.spilled) == list(range(20))
    assert "__redrive_left__" not in vars(lost)


def test_spilling_leaves_no_reference_cycle() -> None:
    @retry(max_attempts=2, backoff_base=0, jitter=0, spill=lambda _spilled: 1)
    def work() -> None:
        raise TimeoutError

    @retry(max_attempts=2, backoff_base=0, jitter=0, spill=lambda _spilled: 1)
    async def coloured() -> None:
        raise TimeoutError

    async def call() -> None:
        try:
            await coloured()
        except TimeoutError:
            pass
        before = gc.collect()
        gc.freeze()  # objects of other tests do not count
        gc.disable()
        try:
            await coloured()
        except TimeoutError:
            pass
        assert (gc.collect(), before) == (0, before)

    def fail() -> None:
        try:
            work()
        except TimeoutError:
            pass

    fail()
    gc.collect()
    gc.freeze()  # objects of other tests do not count
    gc.disable()
    try:
        fail()
        assert gc.collect() == 0
        asyncio.run(call())
    finally:
        gc.enable()
        gc.unfreeze()
