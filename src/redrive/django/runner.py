"""Runs tasks in a worker: as the functions of commands, with Django's signals."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, Protocol

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus
from django.tasks.signals import task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json

from ..core.codec.codec import to_bytes
from ..core.context import job_layer_around, scope_around
from ..core.key import Key
from ..engine.attempt import current
from ..errors import Dead
from ..journal.record import Record
from ..ledger.validation import MAX_PAYLOAD_BYTES, check_payload
from ..worker.job_type import Unstorable
from .results import TaskCall, task_path

FINAL_RECORDS = frozenset(("giveup", "blocked", "cancelled"))
"""Log records of a job that has ended without success."""


class TaskOwner(Protocol):
    """The part of a project that its running tasks use. Threads may share it."""

    alias: str
    backend_class: type
    tasks: dict[str, Task]

    def result(self, result_id: str, /) -> TaskResult:
        """Return the result of a task."""

    def original_id(self, result_id: str, /) -> str:
        """Return the id that a task got when it was enqueued."""


class RunningAttempt(NamedTuple):
    """The attempt that runs a task. Immutable."""

    result_id: str
    number: int
    worker: str
    is_replay: bool

    @classmethod
    def now(cls) -> RunningAttempt:
        """Return the attempt of the code around. Call it in the thread of the attempt."""
        attempt = current()
        assert attempt.job_id is not None  # workers run the function, and nothing else
        assert attempt.key is not None
        layer = job_layer_around(scope_around())
        worker, is_replay = getattr(layer, "worker", None), getattr(layer, "is_replay", False)
        result_id = f"{attempt.job_id}-{attempt.key.entity}"
        return cls(result_id, attempt.number, worker or "", is_replay)


def task_function(project: TaskOwner, task: Task, /) -> Callable[..., Any]:
    """Return the function that a worker calls with the payload of a task's job."""
    function, path = task.func, task.module_path

    def start(call: TaskCall, attempt: RunningAttempt) -> tuple[TaskResult, list[Any]]:
        result = _running_result(project, task, call, attempt)
        task_started.send_robust(sender=project.backend_class, task_result=result)
        context = [TaskContext(task_result=result)] if task.takes_context else []
        return result, [*context, *result.args]

    def finish(result: TaskResult, value: Any) -> Any:
        try:
            normalized = normalize_json(value)
            check_payload("the result", to_bytes(normalized), MAX_PAYLOAD_BYTES)
        except (TypeError, ValueError, RecursionError) as error:
            raise Unstorable(f"{path} has run, but its result cannot be stored: {error}") from None
        changes = {"status": TaskResultStatus.SUCCESSFUL, "finished_at": timezone.now()}
        for name, change in {**changes, "_return_value": normalized}.items():
            object.__setattr__(result, name, change)
        task_finished.send_robust(sender=project.backend_class, task_result=result)
        return normalized

    def run(args: list[Any], kwargs: dict[str, Any], task: dict[str, Any]) -> Any:
        close_old_connections()
        try:
            result, arguments = start(TaskCall.of(args, kwargs, task), RunningAttempt.now())
            return finish(result, function(*arguments, **result.kwargs))
        finally:
            close_old_connections()

    async def arun(args: list[Any], kwargs: dict[str, Any], task: dict[str, Any]) -> Any:
        # Async code uses the database in one thread, which all tasks share.
        await sync_to_async(close_old_connections)()
        try:
            attempt = RunningAttempt.now()
            call = TaskCall.of(args, kwargs, task)
            result, arguments = await sync_to_async(start)(call, attempt)
            value = await function(*arguments, **result.kwargs)
            return await sync_to_async(finish)(result, value)
        finally:
            await sync_to_async(close_old_connections)()

    command: Callable[..., Any] = arun if iscoroutinefunction(function) else run
    command.__module__ = function.__module__  # for messages
    command.__name__, command.__qualname__ = function.__name__, function.__qualname__
    return command


def _running_result(
    project: TaskOwner, task: Task, call: TaskCall, attempt: RunningAttempt
) -> TaskResult:
    """Return the result of the task while it runs. A retry has the errors of earlier attempts."""
    now = timezone.now()
    fields: dict[str, Any] = {"started_at": now, "worker_ids": [attempt.worker], "errors": []}
    if attempt.number > 1:
        earlier = project.result(attempt.result_id)
        fields = {name: getattr(earlier, name) for name in fields}
    result_id = attempt.result_id
    return call.result(
        call.apply_to(task.using(backend=project.alias)),
        project.original_id(result_id) if attempt.is_replay else result_id,
        status=TaskResultStatus.RUNNING,
        last_attempted_at=now,
        **fields,
    )


class FinishedTasks:
    """A journal sink that sends `task_finished` for tasks that ended without success.

    It runs in a thread of its own, after the ledger has the end of the job.
    """

    def __init__(self, project: TaskOwner) -> None:
        self._project = project

    def __call__(self, record: Record, /) -> None:
        """Send the signal, if the record is about the end of a task."""
        fields, tasks = record.fields, self._project.tasks
        is_end = record.kind in FINAL_RECORDS and "job_id" in fields
        if not is_end or task_path(fields.get("operation", "")) not in tasks:
            return
        try:
            token = Key.parse(fields["idempotency_key"]).entity
            result_id = self._project.original_id(f"{fields['job_id']}-{token}")
            self._send(self._project.result(result_id), fields.get("dlq_id", ""))
        finally:
            close_old_connections()

    def _send(self, result: TaskResult, dead_id: str) -> None:
        error = result.errors[-1].traceback if result.errors else str(result.status)
        try:  # Django logs the signal with the exception that is being handled
            raise Dead(error, dead_id=dead_id, reason=str(result.status))
        except Dead:
            task_finished.send_robust(sender=self._project.backend_class, task_result=result)
