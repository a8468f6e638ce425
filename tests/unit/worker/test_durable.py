"""Defaults of durable work: options that `retry(...)` did not get are those of jobs, not of calls."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import nan
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Event, RetryPolicy, backoff, current, retry
from redrive.engine.retry import RetryLike
from redrive.engine.settings import RetrySettings
from redrive.testing import sandbox
from redrive.worker.job_type import durable_settings

STEPS = [5, 30, 120, 600, 600]


def waits(settings: RetrySettings) -> list[float]:
    """The waits after the first five failed attempts, in the middle of their jitter."""
    return [settings.backoff(attempt, 0.5) for attempt in range(1, 6)]


@pytest.mark.parametrize(
    ("options", "attempts", "expected"),
    [
        ({}, 5, STEPS),
        ({"on": KeyError}, 5, STEPS),
        ({"max_attempts": 2}, 2, STEPS),
        ({"max_attempts": 5}, 5, STEPS),
        ({"attempt_timeout": 60}, 5, STEPS),
        ({"timeout": 60}, 5, STEPS),
        ({"backoff": None}, 5, STEPS),
        ({"backoff": backoff.fixed(3)}, 5, [3, 3, 3, 3, 3]),
        ({"backoff": backoff.fixed(3), "jitter": 0}, 5, [3, 3, 3, 3, 3]),
        ({"jitter": 0}, 5, [5, 10, 20, 40, 80]),
        ({"backoff_max": 30, "jitter": 0}, 5, [5, 10, 20, 30, 30]),
        ({"backoff_base": 1, "jitter": 0}, 5, [1, 2, 4, 8, 16]),
        ({"backoff_base": 2}, 5, [2.1, 4.1, 8.1, 16.1, 32.1]),
        ({"backoff_base": 900, "jitter": 0}, 5, [900, 900, 900, 900, 900]),
        ({"backoff_base": 60, "backoff_max": 60, "jitter": 0}, 5, [60, 60, 60, 60, 60]),
    ],
    ids=str,
)
def test_options_that_are_not_passed_are_those_of_jobs(options: dict[str, Any], attempts: int, expected: list[float]) -> None:
    settings = durable_settings("crm.sync", retry(**options))
    assert settings.max_attempts == settings.policy.max_attempts == attempts
    assert waits(settings) == pytest.approx(expected)


def test_an_attempt_has_a_time_limit_only_if_it_was_passed() -> None:
    assert durable_settings("crm.sync", retry()).attempt_timeout is None
    assert durable_settings("crm.sync", retry(attempt_timeout=10)).attempt_timeout == 10
    assert durable_settings("crm.sync", retry(attempt_timeout=10).using(max_attempts=2)).attempt_timeout == 10


SECONDS = "sleep: pass seconds, a timedelta, or units such as hours=1, not "
BAD_CALLS: dict[str, tuple[Callable[[App], object], str]] = {
    "sleep text": (lambda app: current().sleep("1h"), f"TypeError: {SECONDS}str: '1h'"),  # type: ignore[arg-type]
    "sleep bool": (lambda app: current().sleep(True), f"TypeError: {SECONDS}bool: True"),
    "unit text": (lambda app: current().sleep(hours="1"), "TypeError: sleep: hours must be a number, not str: '1'"),  # type: ignore[arg-type]
    "unit nan": (lambda app: current().sleep(seconds=nan), "ValueError: sleep: seconds must be a finite number, not nan"),
    "sleep nothing": (lambda app: current().sleep(), "ValueError: sleep: the time must be above 0, not 0 s"),
    "sleep negative": (lambda app: current().sleep(-1), "ValueError: sleep: the time must be above 0, not -1 s"),
    "sleep long": (lambda app: current().sleep(days=1e12), "ValueError: sleep: the time must be less than a century"),
    "sleep name": (lambda app: current().sleep(1, name=5), "TypeError: the name of a sleep must be text, not int: 5"),  # type: ignore[arg-type]
    "wait text": (
        lambda app: current().wait_for("paid", timeout="1h"),  # type: ignore[arg-type]
        "TypeError: signal 'paid': timeout must be seconds or a timedelta, not str: '1h'",
    ),
    "wait name": (lambda app: current().wait_for("", timeout=1), "ValueError: the name of a signal must be printable"),
    "step name": (lambda app: current().step(int, "a"), "TypeError: the name of a step must be text, not type"),  # type: ignore[call-overload]
    "step call": (lambda app: current().step("a", 0), "TypeError: step 'a': pass a function, not int: 0"),  # type: ignore[call-overload]
    "progress": (lambda app: current().progress(part=40), "ValueError: progress must be from 0 to 1: 40; pass done / total"),
    "signal name": (lambda app: app.signal(KEY, name=5), "TypeError: the name of a signal must be text, not int: 5"),  # type: ignore[arg-type]
    "signal kind": (lambda app: app.signal(KEY, "paid", kind=5), "TypeError: signal 'paid': kind must be text, not int: 5"),  # type: ignore[arg-type]
    "signal key": (lambda app: app.signal(5, name="paid"), "TypeError: a key must be a Key or its text, not int: 5"),  # type: ignore[arg-type]
}
KEY = "shop:ann:o-1:order:v1"


@pytest.mark.req("Q-8", "Q-10")
def test_invalid_arguments_of_durable_calls_are_named(tmp_path: Path) -> None:
    problems: dict[str, str] = {}
    app = App(f"sqlite:///{tmp_path / 'ledger.db'}")

    @app.command("order")
    def order() -> None:
        for name, (call, _) in BAD_CALLS.items():
            with pytest.raises((TypeError, ValueError)) as caught:
                call(app)
            problems[name] = f"{type(caught.value).__name__}: {caught.value}"

    with sandbox(app) as box:
        order.submit()
        box.drain()
        assert [job.state for job in box.done] == ["done"]
    wrong = {name: problems[name] for name, (_, text) in BAD_CALLS.items() if not problems[name].startswith(text)}
    assert not wrong


def test_a_sleep_takes_seconds_a_timedelta_and_units(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'ledger.db'}")

    @app.command("order")
    def order() -> None:
        current().sleep(60)
        current().sleep(timedelta(hours=1), minutes=30)

    with sandbox(app) as box:
        start = box.clock.now()
        order.submit()
        box.drain()
        assert len(box.done) == 1
        assert (box.clock.now() - start).total_seconds() == pytest.approx(60 + 5400, abs=1)


WHOLE = RetryPolicy(max_attempts=6, jitter=0)


@pytest.mark.parametrize("given", [WHOLE, retry(WHOLE, on=KeyError)], ids=["policy", "retry"])
def test_a_policy_is_used_as_a_whole(given: RetryLike) -> None:
    settings = durable_settings("crm.sync", given)
    assert (settings.max_attempts, waits(settings), settings.attempt_timeout) == (6, [1, 2, 4, 8, 16], None)


def test_copies_remember_the_options_of_the_original() -> None:
    crm = retry(max_attempts=4)
    assert durable_settings("crm.sync", crm.using(on=KeyError)).max_attempts == 4
    assert waits(durable_settings("crm.sync", crm.using(backoff=backoff.fixed(3)))) == [3, 3, 3, 3, 3]
    assert waits(durable_settings("crm.sync", crm.using(backoff=backoff.fixed(3)).using(backoff=None))) == STEPS
    assert waits(durable_settings("crm.sync", crm.using(RetryPolicy(jitter=0)).using(max_attempts=2))) == [1, 2, 4, 8, 16]


def test_the_same_object_keeps_the_defaults_of_calls_for_calls() -> None:
    crm = retry(on=KeyError)
    durable_settings("crm.sync", crm)
    assert crm.policy == RetryPolicy.service_call()
    assert crm.settings.attempt_timeout == 10
    assert crm.settings.backoff == crm.policy.wait


def test_commands_handlers_and_datasets_complete_the_passed_options() -> None:
    app = App("sqlite:///never-opened.db", stores={"raw": {"type": "memory"}})
    rule = retry(on=KeyError)

    @app.command("crm.sync", retry=rule)
    def sync() -> None: ...

    @app.on("order.placed", name="mailer", retry=rule)
    def mail(event: Event[dict[str, str]]) -> None: ...

    @app.dataset("crm", "orders", raw="raw", checks=[], customers=["acme"], retry=rule)
    def orders(partition: Any, out: Any) -> None: ...

    made = {kind.name: (kind.settings.max_attempts, waits(kind.settings)) for kind in app.kinds()}
    assert made == {"crm.sync": (5, STEPS), "mailer": (5, STEPS)}
    (dataset,) = app.datasets
    assert dataset.limits.policy.max_attempts == 6
    assert [dataset.limits.policy.backoff(attempt, 0.5) for attempt in range(1, 5)] == [300, 1800, 7200, 7200]
    assert sync.bind().job.max_attempts == 5, "the number that is stored with a job"


def test_a_dataset_doubles_from_its_own_numbers() -> None:
    app = App("sqlite:///never-opened.db", stores={"raw": {"type": "memory"}})

    @app.dataset("crm", "orders", raw="raw", checks=[], customers=["acme"], retry=retry(jitter=0))
    def orders(partition: Any, out: Any) -> None: ...

    (dataset,) = app.datasets
    assert [dataset.limits.policy.backoff(attempt, 0.5) for attempt in range(1, 7)] == [300, 600, 1200, 2400, 4800, 7200]
