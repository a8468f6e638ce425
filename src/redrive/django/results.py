"""The result of a task, made from its job in the ledger."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from secrets import token_hex
from typing import Any, Protocol

from django.conf import settings
from django.tasks import Task, TaskResult, TaskResultStatus
from django.tasks.base import TaskError
from django.tasks.exceptions import InvalidTask
from django.utils import timezone
from django.utils.module_loading import import_string

from .. import errors
from ..core.codec.codec import to_bytes
from ..core.key import Key
from ..ledger.model import Attempt, State
from .database import JobRow

STATUSES: dict[State, TaskResultStatus] = {
    "ready": TaskResultStatus.READY,
    "held": TaskResultStatus.READY,
    "leased": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "dropped": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
"""A pruned job has no result any more."""
TOKEN_BYTES = 8
QUEUE_SIGN = "@"
"""Between the path of a task and a queue, in the name of a job type."""
RESULT_ID = re.compile(r"(\d{1,19})-([0-9a-f]{16})")
CLASS_PATH = re.compile(r"[A-Za-z_][\w.]*(?=:|\n|$)")
"""Begin of a stored error."""
CLASSES_BY_REASON = {
    "cancelled": "redrive.errors.Cancelled",
    "deadline": "builtins.TimeoutError",
    "lost_lease": "redrive.errors.LeaseLost",
    "lost_worker": "redrive.errors.LeaseLost",
    "result": "builtins.TypeError",  # it is not JSON
}
"""Classes of errors that no task has raised, by the reason of the attempt or the dead letter."""
PRIORITY_LIMITS = ((50, -2), (0, -1), (-1, 0), (-51, 1))
"""Django's priorities above these have this priority of a job, and lower ones the last, 2."""


class JobReader(Protocol):
    """Reads jobs: a Django database, or the ledger of an app."""

    def find(self, job_id: int, /) -> JobRow | None:
        """Return a job by its id."""

    def find_current(self, kind: str, key: str, /) -> JobRow | None:
        """Return the current job of a key."""

    def attempts(self, job_id: int, /) -> Sequence[Attempt]:
        """Return the attempts of a job that failed, were lost or do not count."""


def job_priority(priority: int, /) -> int:
    """Return the priority of a job, from -2 (first) to 2, for one of Django, from 100 to -100."""
    return next((own for limit, own in PRIORITY_LIMITS if priority > limit), 2)


def task_path(kind: str, /) -> str:
    """Return the path of the task of a job type."""
    return kind.partition(QUEUE_SIGN)[0]


def new_token() -> str:
    """Return the random part of a result's id."""
    return token_hex(TOKEN_BYTES)


def job_key(kind: str, token: str, /) -> str:
    """Return the key of a task's job."""
    return str(Key("task", "", token, kind))


@dataclass(frozen=True, slots=True)
class TaskCall:
    """A call of a task, as its job stores it. Immutable.

    Attributes:
        args: Positional arguments.
        kwargs: Keyword arguments.
        queue: Name of the queue.
        priority: Priority of Django.
        enqueued_at: When it was enqueued.
        run_after: When it is due, if that was set.
    """

    args: list[Any]
    kwargs: dict[str, Any]
    queue: str
    priority: int
    enqueued_at: datetime
    run_after: datetime | None = None

    def to_payload(self) -> bytes:
        """Return the payload of the job. `task_function` takes its members as arguments.

        Raises:
            ValueError: An argument has no form in JSON, such as NaN.
        """
        return to_bytes({"args": self.args, "kwargs": self.kwargs, "task": self._details()})

    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = {
            "queue": self.queue,
            "priority": self.priority,
            "enqueued_at": to_aware(self.enqueued_at).isoformat(),
        }
        if self.run_after is not None:
            details["run_after"] = to_aware(self.run_after).isoformat()
        return details

    @classmethod
    def of(cls, args: list[Any], kwargs: dict[str, Any], details: dict[str, Any], /) -> TaskCall:
        """Return the call that a payload has."""
        run_after = details.get("run_after")
        return cls(
            args,
            kwargs,
            details["queue"],
            details["priority"],
            _from_text(details["enqueued_at"]),
            None if run_after is None else _from_text(run_after),
        )

    def apply_to(self, task: Task, /) -> Task:
        """Return a task with the queue, priority and due time of this call."""
        changes = {"queue_name": self.queue, "priority": self.priority, "run_after": self.run_after}
        try:
            return replace(task, **changes)
        except InvalidTask:  # the settings have changed since
            return task

    def result(self, task: Task, result_id: str, /, **fields: Any) -> TaskResult:
        """Return the result of the call. By default, the task has not run."""
        nothing = dict.fromkeys(("started_at", "finished_at", "last_attempted_at"))
        defaults: dict[str, Any] = {**nothing, "errors": [], "worker_ids": []}
        return TaskResult(
            task=task,
            id=result_id,
            args=self.args,
            kwargs=self.kwargs,
            backend=task.backend,
            enqueued_at=self.enqueued_at,
            **{"status": TaskResultStatus.READY, **defaults, **fields},
        )


def to_aware(time: datetime, /) -> datetime:
    """Return a time with a time zone. With USE_TZ=False, Django's times are local and have none."""
    return time if timezone.is_aware(time) else timezone.make_aware(time)


def of_django(time: datetime | None, /) -> datetime | None:
    """Return a time as Django's settings want it."""
    return time if time is None or settings.USE_TZ else timezone.make_naive(time)


def _from_text(text: str) -> datetime:
    time = of_django(datetime.fromisoformat(text))
    assert time is not None
    return time


def read_result(
    reader: JobReader, result_id: object, find_task: Callable[[str], Task | None], /
) -> TaskResult | None:
    """Return the result of a task from the ledger. None: it does not exist.

    Args:
        reader: Reads the ledger.
        result_id: Id of the result: the job, and the random part of its key.
        find_task: Returns the task of a path, or None.
    """
    parts = RESULT_ID.fullmatch(str(result_id))
    row = None if parts is None else reader.find(int(parts[1]))
    if parts is None or row is None or row.key != job_key(row.kind, parts[2]):
        return None
    if not row.current and row.state != "cancelled":  # a replay took its place
        row = reader.find_current(row.kind, row.key) or row
    task = find_task(task_path(row.kind))
    if task is None or row.state == "pruned":
        return None
    try:
        stored = json.loads(row.payload)
        call = TaskCall.of(stored["args"], stored["kwargs"], stored["task"])
    except (KeyError, TypeError, ValueError):  # an operator has erased or changed it
        return None
    return make_result(call, call.apply_to(task), str(result_id), row, reader.attempts)


def original_id(reader: JobReader, result_id: str, /) -> str:
    """Return the id that a task got when it was enqueued. A replay is another job."""
    job_id, _, token = result_id.partition("-")
    row = reader.find(int(job_id))
    while row is not None and row.replay_of is not None:
        job_id = str(row.replay_of)
        row = reader.find(row.replay_of)
    return f"{job_id}-{token}"


def make_result(
    call: TaskCall,
    task: Task,
    result_id: str,
    row: JobRow,
    read_attempts: Callable[[int], Sequence[Attempt]],
    /,
) -> TaskResult:
    """Return the result of a call, whose job has this row."""
    status = STATUSES[row.state]
    if status == TaskResultStatus.RUNNING and row.started_at is None:
        status = TaskResultStatus.READY  # a worker has claimed it, and not started
    is_first_lease = row.fence <= 1 and row.state in ("ready", "leased", "done")
    attempts = () if is_first_lease else read_attempts(row.id)
    runs: list[tuple[str | None, datetime | None]] = [
        (attempt.worker, attempt.started_at) for attempt in attempts if attempt.started_at
    ]
    if status in (TaskResultStatus.RUNNING, TaskResultStatus.SUCCESSFUL):
        runs.append((row.worker, row.started_at))  # a success has no row of its own
    result = call.result(
        task,
        result_id,
        status=status,
        started_at=of_django(runs[0][1]) if runs else None,
        last_attempted_at=of_django(runs[-1][1]) if runs else None,
        finished_at=of_django(row.ended_at) if status.value in ("SUCCESSFUL", "FAILED") else None,
        errors=_errors(row, status, attempts),
        worker_ids=[worker or "" for worker, _ in runs],
    )
    if status == TaskResultStatus.SUCCESSFUL and row.result is not None:
        object.__setattr__(result, "_return_value", json.loads(row.result))
    return result


def _errors(row: JobRow, status: TaskResultStatus, attempts: Sequence[Attempt]) -> list[TaskError]:
    texts = [(attempt.error, attempt.reason) for attempt in attempts if attempt.error]
    if not texts and status == TaskResultStatus.FAILED:
        texts = [(row.error or f"the task is {row.state}", row.reason or row.state)]
    return [
        TaskError(exception_class_path=error_path(text or "", reason), traceback=text or "")
        for text, reason in texts
    ]


def error_path(text: str, reason: str | None, /) -> str:
    """Return the path of the class of a stored error, which begins with its name."""
    match = CLASS_PATH.match(text)
    if match is None:
        return CLASSES_BY_REASON.get(reason or "", "redrive.errors.Dead")
    name = match[0]
    if "." in name:
        return name
    for module in (builtins, errors):
        if hasattr(module, name):
            return f"{module.__name__}.{name}"
    return f"__main__.{name}"


def find_declared(path: str, /) -> Task | None:
    """Return the task at a path. None: there is none, or it cannot be imported yet."""
    try:
        task = import_string(path)
    except (ImportError, ValueError):
        return None
    return task if isinstance(task, Task) else None
