"""`once` on both databases: sync, async, and in a transaction."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from redrive import App, Key, current, deadline
from redrive.errors import Again, BreakerOpen, KeyBusy, KeyConflict, KeyFailed, Stop
from tests.conformance.idempotency.order import NOW, ORDER, TEMPLATE, Order, Receipt
from tests.conformance.idempotency.world import KEY


@pytest.mark.req("I-3", "I-4")
def test_later_calls_get_the_result_as_its_type(app: App) -> None:
    ran = []

    @app.once(TEMPLATE)
    def charge(order: Order, note: str = "") -> Receipt:
        """Charge an order."""
        ran.append(current().key)
        return Receipt(len(ran), Decimal("1.10"), NOW)

    first = charge(ORDER)
    assert charge(Order("ann", "o-1")) == first == Receipt(1, Decimal("1.10"), NOW)
    assert charge(order=ORDER, note="") == first
    assert ran == [Key("billing", "ann", "o-1", "charge")]
    assert charge.__doc__ == "Charge an order."
    assert current().key is None
    assert charge(Order("ann", "o-2")).number == 2


@pytest.mark.req("I-3")
def test_another_request_with_the_same_key_is_rejected(app: App) -> None:
    @app.once(TEMPLATE)
    def charge(order: Order) -> int:
        return order.cents

    assert charge(ORDER) == 100
    with pytest.raises(KeyConflict, match="was used for another request") as refused:
        charge(Order("ann", "o-1", 200))
    assert refused.value.key == str(KEY)


def test_request_chooses_the_compared_arguments(app: App) -> None:
    @app.once(TEMPLATE, request=lambda order, trace: order.cents)
    def charge(order: Order, trace: object) -> int:
        return order.cents

    assert charge(ORDER, object()) == charge(ORDER, object()) == 100
    with pytest.raises(KeyConflict):
        charge(Order("ann", "o-1", 200), object())


@pytest.mark.req("I-1")
def test_the_key_may_be_a_function_of_the_arguments(app: App) -> None:
    @app.once(lambda user, n: Key("billing", user, str(n), "charge"))
    def charge(user: str, n: int) -> int:
        return n

    @app.once(lambda n: f"billing:ann:{n}:text:v1")
    def other(n: int) -> int:
        return n

    assert charge("ann", 1) == 1
    assert other(2) == 2
    assert [record.key for record in app.keys().page()] == ["billing:ann:1:charge:v1", "billing:ann:2:text:v1"]

    @app.once(lambda n: 5)  # type: ignore[arg-type,return-value]
    def wrong(n: int) -> int:
        return n

    with pytest.raises(TypeError, match="not int: 5"):
        wrong(1)


@pytest.mark.req("I-3")
def test_a_permanent_failure_is_stored_and_a_transient_one_frees_the_key(app: App) -> None:
    errors: list[Exception] = [
        ConnectionResetError("cut"),
        Again(),
        BreakerOpen("open", retry_at=NOW),
        ValueError("bad token=abc123xyz"),
    ]
    raised = iter(errors)

    @app.once(TEMPLATE)
    def charge(order: Order) -> int:
        raise next(raised)

    for error in errors:
        with pytest.raises(type(error)) as own:
            charge(ORDER)
        assert own.value is error
    with pytest.raises(KeyFailed, match="failed permanently .ValueError: bad") as stored:
        charge(ORDER)
    assert stored.value.error["type"] == "ValueError"
    assert "abc123xyz" not in str(stored.value.error)
    app.keys().release(KEY, actor="ann", because="fixed")
    with pytest.raises(StopIteration):
        charge(ORDER)


@pytest.mark.req("I-3")
def test_free_on_chooses_which_failures_are_stored(app: App) -> None:
    @app.once(TEMPLATE, free_on=(ValueError, lambda error: isinstance(error, KeyError)))
    def charge(order: Order, error: str) -> int:
        raise {"value": ValueError, "key": KeyError, "cut": ConnectionResetError, "stop": Stop}[error]("no")

    for error, kind in (("value", ValueError), ("key", KeyError), ("cut", ConnectionResetError)):
        with pytest.raises(kind):
            charge(ORDER, error)
    with pytest.raises(KeyConflict):
        charge(ORDER, "stop")
    with pytest.raises(KeyFailed):
        charge(ORDER, "cut")

    @app.once("billing:ann:{n}:none:v1", free_on=Exception)
    def nothing_stored(n: int) -> int:
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            nothing_stored(1)


def test_a_result_of_the_wrong_type_is_a_permanent_failure(app: App) -> None:
    ran = []

    @app.once("billing:ann:{n}:charge:v1")
    def charge(n: int) -> int:
        ran.append(n)
        return "five"  # type: ignore[return-value]

    with pytest.raises(TypeError, match="expected int, not str") as told:
        charge(1)
    assert any("is done, but its result cannot be stored" in note for note in told.value.__notes__)
    with pytest.raises(KeyFailed):
        charge(1)
    assert ran == [1]


@pytest.mark.req("I-3")
def test_a_held_key_is_busy_or_waited_for(app: App) -> None:
    entered, go = threading.Event(), threading.Event()

    @app.once("billing:ann:{n}:charge:v1")
    def charge(n: int) -> int:
        entered.set()
        assert go.wait(60)
        return n

    @app.once("billing:ann:{n}:charge:v1", wait=20)
    def patient(n: int) -> int:
        raise AssertionError("it is done already")

    @app.once("billing:ann:{n}:charge:v1", wait=timedelta(milliseconds=50))
    def hasty(n: int) -> int:
        raise AssertionError("it is done already")

    answers: list[int] = []
    worker = threading.Thread(target=lambda: answers.append(charge(7)))
    worker.start()
    assert entered.wait(60)
    with pytest.raises(KeyBusy, match="is in use by another caller") as busy:
        charge(7)
    assert timedelta(0) < busy.value.retry_at - datetime.now(timezone.utc) < timedelta(seconds=31)
    with pytest.raises(KeyBusy):
        hasty(7)
    with deadline(0.05), pytest.raises(KeyBusy):
        patient(7)
    waiter = threading.Thread(target=lambda: answers.append(patient(7)))
    waiter.start()
    time.sleep(0.05)
    go.set()
    worker.join(60)
    waiter.join(60)
    assert answers == [7, 7]


def test_methods_and_defaults(app: App) -> None:
    class Service:
        def __init__(self, name: str) -> None:
            self.name = name

        @app.once("billing:{self.name}:{n}:charge:v1")
        def charge(self, n: int, *more: int, flag: bool = False, **rest: str) -> list[int]:
            return [n, *more]

    assert Service("a").charge(1, 2, 3) == [1, 2, 3]
    assert Service("a").charge(1, 2, 3, flag=False) == [1, 2, 3]
    with pytest.raises(KeyConflict):
        Service("a").charge(1, 2)
    assert Service("b").charge(1, 2) == [1, 2]


def test_an_added_parameter_keeps_old_fingerprints(app: App) -> None:
    @app.once("billing:ann:{n}:charge:v1")
    def before(n: int) -> int:
        return n

    @app.once("billing:ann:{n}:charge:v1")
    def after(n: int, currency: str = "EUR") -> int:
        raise AssertionError

    assert before(1) == after(1) == 1
    with pytest.raises(KeyConflict):
        after(1, "USD")


def test_a_bare_decorator_is_rejected(app: App) -> None:
    def charge(order: int) -> int:
        return order

    decorated: Any = app.once(charge)  # type: ignore[arg-type]  # the effect of `@app.once` without a key
    with pytest.raises(TypeError, match="once needs a key"):
        decorated(7)
