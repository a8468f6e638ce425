"""Defaults of durable work: options that `retry(...)` did not get are those of jobs, not of calls."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App, Event, RetryPolicy, backoff, retry
from redrive.engine.retry import RetryLike
from redrive.engine.settings import RetrySettings
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


def test_commands_handlers_and_datasets_complete_what_was_passed() -> None:
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
