"""Temporal: a real server runs an activity as often as the policy says, with its waits."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import ActivityFailureError, Client, WorkflowFailureError
from temporalio.common import RetryPolicy as TemporalPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from redrive import RetryPolicy, native
from redrive.native.temporal_retry import TEMPORAL
from tests.acceptance.native.wire import SLACK

pytestmark = pytest.mark.req("R-10", "X-10")
LIMIT = timedelta(seconds=60)


class Failing:
    """What the activity does, and when it was called."""

    policy: TemporalPolicy
    error: Callable[[], Exception]
    calls: list[float]


@activity.defn
async def fail() -> None:
    Failing.calls.append(time.monotonic())
    raise Failing.error()


@workflow.defn
class Order:
    """A workflow that calls the activity."""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(fail, start_to_close_timeout=LIMIT, retry_policy=Failing.policy)


def call(
    address: str, retry: TemporalPolicy, error: Callable[[], Exception], *, in_workflow: bool = True
) -> BaseException | None:
    """Run the activity until the server gives up. Return its last error."""

    async def run() -> BaseException | None:
        client = await Client.connect(address)
        queue = name = f"orders-{uuid.uuid4().hex}"
        runner = UnsandboxedWorkflowRunner()
        async with Worker(client, task_queue=queue, activities=[fail], workflows=[Order], workflow_runner=runner):
            if in_workflow:
                with pytest.raises(WorkflowFailureError) as failed:
                    await client.execute_workflow(Order.run, id=name, task_queue=queue)
                assert isinstance(failed.value.cause, ActivityError)
                cause: BaseException | None = failed.value.cause.cause
                return cause
            with pytest.raises(ActivityFailureError) as ended:
                options: dict[str, Any] = {"start_to_close_timeout": LIMIT, "retry_policy": retry}
                await client.execute_activity(fail, id=name, task_queue=queue, **options)
            return ended.value.cause

    Failing.policy, Failing.error, Failing.calls = retry, error, []
    return asyncio.run(run())


@pytest.mark.parametrize("in_workflow", [True, False], ids=["workflow", "standalone"])
@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(max_attempts=1),
        RetryPolicy(max_attempts=4, backoff_base=1, backoff_max=1.5, jitter=0),
        RetryPolicy(max_attempts=3, backoff_base=2, backoff_max=1.2, jitter=1),
        RetryPolicy(max_attempts=3, backoff_base=0, jitter=0),
    ],
)
def test_attempts_and_waits_follow_the_policy(temporal_address: str, policy: RetryPolicy, in_workflow: bool) -> None:
    error = call(temporal_address, native.temporal(policy).value, lambda: ConnectionError("away"), in_workflow=in_workflow)
    assert isinstance(error, ApplicationError)
    assert error.type == "ConnectionError"
    assert len(Failing.calls) == policy.max_attempts
    for attempt, (earlier, later) in enumerate(zip(Failing.calls, Failing.calls[1:], strict=False), 1):
        least, most = TEMPORAL.wait_range(policy, attempt)
        assert least - 0.01 <= later - earlier <= most + SLACK, f"after attempt {attempt}"


def test_a_wait_of_zero_is_not_the_default_of_the_server_and_does_not_grow() -> None:
    value = native.temporal(RetryPolicy(20, 0, 60, 0)).value
    assert (value.initial_interval, value.maximum_interval) == (timedelta(milliseconds=1),) * 2


def test_errors_that_are_not_retryable_end_the_activity(temporal_address: str) -> None:
    retry = native.temporal(RetryPolicy(3, 0.01, 0.01, 0)).value
    call(temporal_address, retry, lambda: ApplicationError("no", non_retryable=True))
    assert len(Failing.calls) == 1
    call(temporal_address, replace(retry, non_retryable_error_types=["ValueError"]), lambda: ValueError("no"))
    assert len(Failing.calls) == 1
    call(temporal_address, retry, lambda: ValueError("no"))
    assert len(Failing.calls) == 3, "every other error is retried"


def test_an_activity_can_ask_for_its_next_wait(temporal_address: str) -> None:
    retry = native.temporal(RetryPolicy(2, 0.01, 0.01, 0)).value
    call(temporal_address, retry, lambda: ApplicationError("busy", next_retry_delay=timedelta(seconds=1.5)))
    first, second = Failing.calls
    assert second - first >= 1.49


def test_fields_that_are_not_carried_are_reported() -> None:
    assert native.temporal(RetryPolicy(3, 0.5, 60, 1, timeout=9)).dropped == ("jitter", "timeout")
    assert native.temporal(RetryPolicy(3, 0, 1e300, 0)).dropped == ("backoff_base", "backoff_max", "jitter")
    assert native.temporal(RetryPolicy.disabled()).dropped == ()
    assert native.temporal(RetryPolicy(10**12)).value.maximum_attempts == 2**31 - 1
