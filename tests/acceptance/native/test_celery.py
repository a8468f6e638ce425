"""Celery: executions and waits of a task follow the policy. Run by Celery's own code, without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, Task

from redrive import RetryPolicy, native
from redrive.native.celery_task import CELERY

pytestmark = pytest.mark.req("R-10", "X-8")


def run(policy: RetryPolicy, error: Exception, **options: Any) -> tuple[int, list[float]]:
    """Return the executions of a task that fails, and the waits that Celery chose."""
    executions: list[int] = []
    waits: list[float] = []

    class NotingTask(Task):  # type: ignore[misc]
        def retry(self, *args: Any, **given: Any) -> Any:
            waits.append(self.default_retry_delay if (wait := given.get("countdown")) is None else wait)
            return super().retry(*args, **given)

    app = Celery("shop", broker="memory://", set_as_current=False)

    def fail() -> None:
        executions.append(1)
        raise error

    app.task(base=NotingTask, shared=False, **native.celery(policy, **options).value)(fail).apply()
    app.close()
    return len(executions), waits[: len(executions) - 1]


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(max_attempts=1),
        RetryPolicy(max_attempts=4, backoff_base=2, backoff_max=5, jitter=0),
        RetryPolicy(max_attempts=4, backoff_base=2, backoff_max=5, jitter=1),
        RetryPolicy(max_attempts=3, backoff_base=0.25, backoff_max=1.5, jitter=0),
        RetryPolicy(max_attempts=3, backoff_base=0, backoff_max=60, jitter=0),
    ],
)
def test_executions_and_waits_follow_the_policy(policy: RetryPolicy) -> None:
    executions, waits = run(policy, ConnectionError("away"))
    assert executions == policy.max_attempts
    for attempt, wait in enumerate(waits, 1):
        least, most = CELERY.wait_range(policy, attempt)
        assert least <= wait <= most
        if policy.jitter == 0:
            assert wait == most
    assert waits != [180] * len(waits) or not waits, "not Celery's own default"


def test_only_the_chosen_errors_are_retried() -> None:
    policy = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)
    assert run(policy, ValueError("no"), on=(ConnectionError, TimeoutError))[0] == 1
    assert run(policy, TimeoutError("late"), on=(ConnectionError, TimeoutError))[0] == 3


def test_fields_that_are_not_carried_are_reported() -> None:
    assert native.celery(RetryPolicy(3, 2, 60, 0)).dropped == ()
    assert native.celery(RetryPolicy(3, 0.5, 60.5, 1, timeout=9)).dropped == ("backoff_base", "backoff_max", "jitter", "timeout")
    assert native.celery(RetryPolicy.disabled()).dropped == ()


def test_rules_that_celery_does_not_know_are_rejected() -> None:
    with pytest.raises(TypeError, match="on must be a class of errors or a tuple of them, not <function"):
        native.celery(RetryPolicy(), on=lambda error: True)  # type: ignore[arg-type]
