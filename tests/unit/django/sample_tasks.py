"""Tasks of the tests, and a backend that knows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Group
from django.tasks import Task, TaskContext, TaskResult, task
from django.test import override_settings

from redrive.django import get_app
from redrive.errors import Dead

BROKEN: set[str] = set()
"""Names of what is out of order."""


@task
def add(*numbers: int, times: int = 1) -> int:
    return sum(numbers) * times


@task
async def count_groups(name: str) -> int:
    count: int = await Group.objects.filter(name=name).acount()
    return count


@task(queue_name="mail")
def send_mail(to: str) -> str:
    if "mail" in BROKEN:
        raise ConnectionError(f"no mail to {to}")
    Group.objects.create(name=f"mail to {to}")
    return to


@task(takes_context=True)
def read_context(context: TaskContext, fail_until: int = 0) -> list[Any]:
    result: TaskResult = context.task_result
    if context.attempt < fail_until:
        raise LookupError(f"attempt {context.attempt}")
    return [result.id, context.attempt, result.status, len(result.errors), len(set(result.worker_ids))]


NOT_JSON = {"function": abs, "nan": float("nan"), "bytes": b"\xff", "surrogate": "\ud800", "large": "x" * 2_000_000}


@task
def return_value(name: str) -> Any:
    return NOT_JSON[name]


@task
def leave() -> None:
    raise SystemExit("bye")


@contextmanager
def backend_settings(queues: list[str], options: dict[str, Any]) -> Iterator[None]:
    """Set the backend `default`, which knows the tasks of this module."""
    backend = {"BACKEND": "redrive.django.Backend", "QUEUES": queues, "OPTIONS": options}
    with override_settings(TASKS={"default": backend}):
        for value in globals().values():
            if isinstance(value, Task) and (not queues or value.queue_name in queues):
                value.using()  # as the decorator does
        yield


def wait(result: TaskResult) -> TaskResult:
    """Return the result of a task that has ended."""
    app = get_app()
    job = app.ledger.get(int(result.id.partition("-")[0]))
    assert job is not None
    try:
        app.commands.job(job).result(60)
    except Dead:
        pass  # its result says so
    result.refresh()
    return result
