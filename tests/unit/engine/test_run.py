"""A run: what a failure leads to, and what is told of it."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import pytest

from redrive import Breaker, Budget, Fault, RetryPolicy, errors, journal, outcome, retry
from redrive.core.decision import LONGEST
from redrive.engine.run import SHOWN
from redrive.journal import Record, Ring
from redrive.testing import FakeClock, instant

STEADY = RetryPolicy(max_attempts=3, backoff_base=1, jitter=0)


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    with instant() as clock:
        yield clock


@pytest.fixture
def ring() -> Iterator[Ring]:
    ring = journal.ring()
    unsubscribe = journal.subscribe(ring, inline=True, every=True)
    yield ring
    unsubscribe()


class Answer(Exception):
    """As an HTTP client's error: with a response that has a status and headers."""

    def __init__(self, status: int = 503, **headers: str) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def by_answer(error: Exception) -> Fault | None:
    from redrive.core.retry_after import retry_after

    if not isinstance(error, Answer):
        return None
    return Fault("throttled", retry_after(error.headers), status=error.status)


def down(error: Callable[[], Exception] = lambda: OSError("down")) -> Callable[[], None]:
    def work() -> None:
        raise error()

    return work


# Retry-After


@pytest.mark.req("R-6")
def test_what_the_server_asks_is_a_floor(clock: FakeClock) -> None:
    for asked, waited in (("0.5", [1, 2]), ("1.5", [1.5, 2]), ("7", [7, 7]), ("0", [1, 2])):
        clock.slept.clear()
        with pytest.raises(Answer):
            retry(STEADY, on=by_answer).call(down(lambda asked=asked: Answer(retry_after=asked)))  # type: ignore[misc]
        assert clock.slept == waited


@pytest.mark.req("R-6")
@pytest.mark.parametrize("garbage", ["soon", "-5", "NaN", "inf", "1e3", "", "²", "Wed, 99 Foo 2015 07:28:00 GMT"])
def test_garbage_says_nothing(clock: FakeClock, garbage: str) -> None:
    with pytest.raises(Answer):
        retry(STEADY, on=by_answer).call(down(lambda: Answer(retry_after=garbage)))
    assert clock.slept == [1, 2]


@pytest.mark.req("R-6")
def test_a_date(clock: FakeClock) -> None:
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    dates = {
        "date": format_datetime(start, usegmt=True),
        "retry_after": format_datetime(start + timedelta(seconds=9), usegmt=True),
    }
    with pytest.raises(Answer):
        retry(STEADY, on=by_answer).call(down(lambda: Answer(**dates)))  # type: ignore[arg-type]
    assert clock.slept == [9, 9]
    clock.slept.clear()
    past = {"retry_after": format_datetime(start, usegmt=True)}
    with pytest.raises(Answer):
        retry(STEADY, on=by_answer).call(down(lambda: Answer(**past)))  # type: ignore[arg-type]
    assert clock.slept == [1, 2]


@pytest.mark.req("R-6")
@pytest.mark.parametrize(("asked", "limit"), [("30", 10.0), ("7200", None), ("9" * 400, None), ("9" * 400, 10.0)])
def test_what_does_not_fit_is_handed_over_at_once(clock: FakeClock, asked: str, limit: float | None) -> None:
    layer = retry(RetryPolicy(max_attempts=3, backoff_base=1, jitter=0, timeout=limit), on=by_answer)
    with pytest.raises(Answer) as caught:
        layer.call(down(lambda: Answer(retry_after=asked)))
    assert clock.slept == []
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.spent) == (1, "retry_after", True)
    assert ended.retry_at is not None
    assert (ended.retry_at - clock.now()).total_seconds() == min(float(asked), 1e9)
    assert "the server asks for more time than is left" in caught.value.__notes__[0]


@pytest.mark.req("R-6")
def test_spent_attempts_still_carry_the_servers_word(clock: FakeClock) -> None:
    with pytest.raises(Answer) as caught:
        retry(RetryPolicy(max_attempts=2, backoff_base=0, jitter=0), on=by_answer).call(down(lambda: Answer(retry_after="40")))
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "attempts"
    assert ended.retry_at == clock.now() + timedelta(seconds=40)


# Backoffs and rules of the user's


@pytest.mark.parametrize(
    ("wait", "slept"),
    [
        (math.nan, []),
        (-5, []),
        (0, []),
        (2, [2, 2]),
        (Decimal("0.5"), [0.5, 0.5]),
        (math.inf, [LONGEST, LONGEST]),
        (True, [1, 1]),
    ],
)
def test_any_number_of_a_backoff_is_made_sense_of(clock: FakeClock, wait: Any, slept: list[float]) -> None:
    with pytest.raises(OSError, match="down"):
        retry(STEADY, on=OSError, backoff=lambda attempt, draw: wait).call(down())
    assert clock.slept == slept
    assert all(type(each) is float for each in clock.slept)


def test_an_endless_backoff_under_a_deadline_ends_at_once(clock: FakeClock) -> None:
    with pytest.raises(OSError, match="down") as caught:
        retry(RetryPolicy(timeout=5), on=OSError, backoff=lambda attempt, draw: math.inf).call(down())
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "timeout")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raise(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backoff": lambda attempt, draw: None, "on": OSError}, "TypeError"),
        ({"backoff": lambda attempt, draw: "1s", "on": OSError}, "ValueError"),
        ({"backoff": lambda attempt, draw: _raise(ZeroDivisionError("mine")), "on": OSError}, "ZeroDivisionError: mine"),
        ({"backoff": lambda attempt, draw: _raise(Unspeakable()), "on": OSError}, "Unspeakable: (its message cannot be read)"),
        ({"on": lambda error: _raise(KeyError("mine"))}, "KeyError: 'mine'"),
        ({"on": lambda error: 5}, "a rule gives a Fault, True, False or None, not int: 5"),
        ({"on": lambda error: Fault("transient", after="soon")}, "TypeError"),  # type: ignore[arg-type]
    ],
    ids=range(7),
)
def test_a_bug_in_a_rule_or_backoff_does_not_hide_the_error(clock: FakeClock, options: dict[str, Any], says: str) -> None:
    with pytest.raises(OSError, match="down") as caught:
        retry(STEADY, **options).call(down())
    assert "redrive: not tried again: deciding about it raised " in caught.value.__notes__[0]
    assert says in caught.value.__notes__[0]
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "not_retryable")


def test_jitter_is_drawn_for_each_wait() -> None:
    layer = retry(RetryPolicy(max_attempts=4, backoff_base=1, jitter=2), on=OSError)
    with instant(jitter=0.5) as clock, pytest.raises(OSError, match="down"):
        layer.call(down())
    assert clock.slept == [2, 3, 5]
    with instant(seed=1) as first, pytest.raises(OSError, match="down"):
        layer.call(down())
    with instant(seed=1) as second, pytest.raises(OSError, match="down"):
        layer.call(down())
    assert first.slept == second.slept != [1, 2, 4]


# Words of handlers


@pytest.mark.parametrize("word", [errors.Stop("enough"), errors.Again("later", after=5), errors.Blocked("waits")])
def test_a_handlers_word_is_final_whatever_the_rules_say(clock: FakeClock, word: Exception) -> None:
    with pytest.raises(type(word)) as caught:
        retry(STEADY, on=lambda _: True).call(down(lambda: word))
    ended = outcome(caught.value)
    assert clock.slept == []
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.spent) == (1, "stopped", False)


@pytest.mark.req("C-10")
def test_what_may_have_been_executed_is_not_repeated_unless_idempotent(clock: FakeClock) -> None:
    for sent, attempts, reason in ((True, 1, "not_idempotent"), (False, 3, "attempts")):
        calls = 0

        def work() -> None:
            nonlocal calls
            calls += 1
            raise OSError("down")

        with pytest.raises(OSError, match="down") as caught:
            retry(STEADY, idempotent=False, on=lambda _, sent=sent: Fault("transient", sent=sent)).call(work)
        ended = outcome(caught.value)
        assert ended is not None
        assert (calls, ended.reason) == (attempts, reason)


# Breakers


@pytest.mark.req("C-12")
@pytest.mark.parametrize("colour", ["plain", "async"])
def test_an_open_breaker_is_not_retried(clock: FakeClock, colour: str) -> None:
    breaker = Breaker(min_calls=3, failure_rate=0.5, open_for=10)
    layer = retry(STEADY, on=lambda _: True, breaker=breaker, operation="crm")
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise OSError("down")

    async def later() -> None:
        work()

    def go() -> None:
        layer.call(work) if colour == "plain" else asyncio.run(layer.acall(later))

    with pytest.raises(OSError, match="down") as caught:
        go()
    assert calls == 3
    with pytest.raises(errors.BreakerOpen, match="crm: the breaker is open for 10 s more") as refused:
        go()
    assert calls == 3
    assert refused.value.retry_at == clock.now() + timedelta(seconds=10)
    ended = outcome(refused.value)
    assert ended is not None
    assert (ended.attempts, ended.reason, ended.spent) == (0, "breaker_open", True)
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "attempts"


@pytest.mark.req("C-12")
def test_the_callers_error_wins_when_the_breaker_opens_on_it(clock: FakeClock) -> None:
    breaker = Breaker(min_calls=2, failure_rate=0.5, open_for=10)
    with pytest.raises(OSError, match="down") as caught:
        retry(STEADY, on=OSError, breaker=breaker).call(down())
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (2, "breaker_open")
    assert clock.slept == [1]
    assert ended.retry_at == clock.now() + timedelta(seconds=10)


@pytest.mark.req("C-12")
@pytest.mark.parametrize("colour", ["plain", "async", "block"])
def test_the_callers_error_wins_when_others_open_the_breaker_in_the_wait(
    clock: FakeClock, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaker = Breaker(min_calls=2, failure_rate=0.5, open_for=10)
    budget = Budget(capacity=50, cost=10, floor=0)
    sleep = FakeClock.sleep

    def slept(clock: FakeClock, wait: float) -> None:
        sleep(clock, wait)
        breaker.record(True, clock.monotonic())

    monkeypatch.setattr(FakeClock, "sleep", slept)
    layer = retry(STEADY, on=OSError, breaker=breaker, budget=budget)

    async def later() -> None:
        raise OSError("down")

    with pytest.raises(OSError, match="down") as caught:
        if colour == "plain":
            layer.call(down())
        elif colour == "async":
            asyncio.run(layer.acall(later))
        else:
            for attempt in layer.attempts():
                with attempt:
                    raise OSError("down")
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "breaker_open")
    assert ended.retry_at == clock.now() + timedelta(seconds=10)
    assert budget.left == 50


@pytest.mark.req("C-12")
def test_a_wait_that_outlasts_the_breaker_is_worth_it(clock: FakeClock) -> None:
    breaker = Breaker(min_calls=1, failure_rate=0.1, open_for=2)
    calls = 0

    def work() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError
        return calls

    layer = retry(RetryPolicy(max_attempts=3, backoff_base=5, jitter=0), on=OSError, breaker=breaker)
    assert layer.call(work) == 2
    assert breaker.state == "closed"


@pytest.mark.req("C-12")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError])
def test_a_probe_that_was_interrupted_says_nothing(clock: FakeClock, kind: type[BaseException]) -> None:
    breaker = Breaker(min_calls=1, failure_rate=0.1, open_for=2)
    layer = retry(RetryPolicy.disabled(), on=OSError, breaker=breaker)
    with pytest.raises(OSError, match="down"):
        layer.call(down())
    clock.advance(3)

    def interrupted() -> None:
        raise kind

    with pytest.raises(kind):
        layer.call(interrupted)
    assert layer.call(lambda: 1) == 1
    assert breaker.state == "closed"


@pytest.mark.req("C-12")
def test_what_trying_again_cannot_cure_is_no_failure_of_the_other_side(clock: FakeClock) -> None:
    breaker = Breaker(min_calls=1, failure_rate=0.1)
    for _ in range(5):
        with pytest.raises(KeyError):
            retry(STEADY, on=OSError, breaker=breaker).call(down(lambda: KeyError("x")))
    assert breaker.state == "closed"


# What is told


@pytest.mark.req("C-1")
def test_every_attempt_is_a_record(clock: FakeClock, ring: Ring) -> None:
    fields = {"tenant": "acme", "attempt": "mine"}
    layer = retry(STEADY, on=OSError, fields=fields, operation="crm", key=lambda: "a:b:c:d:v1")
    fields["tenant"] = "changed"
    with pytest.raises(OSError, match="down"):
        layer.call(down())
    assert [(record.kind, record.fields["attempt"]) for record in ring.records] == [("retry", 1), ("retry", 2), ("giveup", 3)]
    for record in ring.records:
        assert record.fields["tenant"] == "acme"
        assert record.fields["operation"] == "crm"
        assert record.fields["max_attempts"] == 3
        assert record.fields["idempotency_key"] == "a:b:c:d:v1"
        assert record.fields["error_class"] == "OSError"
        assert record.fields["error"] == "down"
        assert record.fields["retryable"] is True
    assert [record.fields.get("wait") for record in ring.records] == [1, 2, None]
    assert ring.records[2].fields["reason"] == "attempts"
    assert [record.at for record in ring.records] == [clock.now() - timedelta(seconds=left) for left in (3, 2, 0)]


@pytest.mark.req("C-1")
def test_success_is_told_to_those_who_ask(clock: FakeClock, ring: Ring) -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        clock.advance(0.25)
        if calls == 2:
            raise OSError

    layer = retry(STEADY, on=OSError, fields={"tenant": "acme"})
    layer.call(work)
    layer.call(work)
    assert [record.kind for record in ring.records] == ["success", "retry", "recovered"]
    assert {record.fields["latency_ms"] for record in ring.records} == {250}
    assert {record.fields["tenant"] for record in ring.records} == {"acme"}


def test_a_nested_give_up_is_told_by_each_layer(clock: FakeClock, ring: Ring) -> None:
    inner, outer = (retry(STEADY, on=OSError, operation=name) for name in ("inner", "outer"))
    with pytest.raises(OSError, match="down"):
        outer.call(inner(down()))
    told = [(record.fields["operation"], record.fields.get("reason")) for record in ring.records if record.kind == "giveup"]
    assert told == [("inner", "attempts"), ("outer", "nested")]


def test_refusals_are_told(clock: FakeClock, ring: Ring) -> None:
    from redrive import deadline

    with deadline(0), pytest.raises(errors.AttemptTimeout):
        retry(STEADY, operation="crm", fields={"tenant": "acme"}).call(down())
    (record,) = ring.records
    assert (record.kind, record.fields["reason"], record.fields["attempt"]) == ("giveup", "timeout", 0)
    assert (record.fields["operation"], record.fields["tenant"]) == ("crm", "acme")


def test_breakers_tell_when_they_open_and_close(clock: FakeClock, ring: Ring) -> None:
    layer = retry(RetryPolicy.disabled(), on=OSError, breaker=Breaker(min_calls=1, failure_rate=0.1, open_for=1), operation="crm")
    with pytest.raises(OSError, match="down"):
        layer.call(down())
    clock.advance(2)
    layer.call(lambda: None)
    told = [record for record in ring.records if record.kind.startswith("breaker")]
    assert [record.kind for record in told] == ["breaker_opened", "breaker_closed"]
    assert {record.fields["operation"] for record in told} == {"crm"}


def test_an_error_that_cannot_say_itself_is_told(clock: FakeClock, ring: Ring) -> None:
    with pytest.raises(Unspeakable):
        retry(STEADY, on=Unspeakable).call(down(Unspeakable))
    assert {record.fields["error"] for record in ring.records} == {"(its message cannot be read)"}


def test_sinks_that_raise_do_not_break_the_call(clock: FakeClock) -> None:
    heard = 0

    def broken(_: Record) -> None:
        nonlocal heard
        heard += 1
        raise ZeroDivisionError

    before = journal.dropped()
    unsubscribe = journal.subscribe(broken, inline=True, every=True)
    try:
        calls = 0

        def work() -> int:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise OSError
            return calls

        assert retry(STEADY, on=OSError).call(work) == 2
        assert retry(STEADY, on=OSError).call(work) == 3
    finally:
        unsubscribe()
    assert heard == 3
    assert journal.dropped() == before + 3


def test_retries_and_give_ups_are_logged(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "redrive"), pytest.raises(OSError, match="down"):
        retry(STEADY, on=OSError, operation="crm").call(down())
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "crm: attempt 1 of 3 failed (OSError: down), again in 1 s"),
        ("INFO", "crm: attempt 2 of 3 failed (OSError: down), again in 2 s"),
        ("WARNING", "crm: attempt 3 of 3 failed (OSError: down), giving up: attempts"),
    ]


def test_a_refusal_is_logged_in_plain_words(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    from redrive import deadline

    with deadline(0), pytest.raises(errors.AttemptTimeout):
        retry(STEADY, operation="crm").call(down())
    (record,) = caplog.records
    assert "None" not in record.message


@pytest.mark.req("C-4")
def test_a_long_story_is_told_short(clock: FakeClock) -> None:
    with pytest.raises(OSError, match="down") as caught:
        retry(RetryPolicy(max_attempts=SHOWN + 5, backoff_base=1, backoff_max=1, jitter=0), on=OSError).call(down())
    (note,) = caught.value.__notes__
    assert note.count("1, ") == SHOWN
    assert "1, … s): attempts spent" in note


@pytest.mark.req("C-9")
def test_threads_share_one_retry_and_one_budget() -> None:
    budget = Budget(capacity=1000, cost=1, refill=0, floor=0)
    layer = retry(RetryPolicy(max_attempts=1000, backoff_base=0, jitter=0), on=OSError, budget=budget, attempt_timeout=None)
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise OSError("down")

    def go() -> None:
        for _ in range(20):
            with pytest.raises(OSError, match="down"):
                layer.call(work)

    threads = [threading.Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 8 * 20 + 1000
    assert budget.left == 0
