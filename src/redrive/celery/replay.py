"""Replayer: the jobs that send Celery tasks again, and wait for their ends.

A replay of such a dead letter is a job of the type `celery:<task>`. A worker of Redrive sends the
message, and the job waits for a signal of the Celery worker that ran the task. It holds no worker
meanwhile. If the message or the report is lost, the job ends by its timeout, as a dead letter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from kombu.exceptions import OperationalError
from kombu.serialization import prepare_accept_content

from ..backoff import steps
from ..core.policy import RetryPolicy
from ..core.text import format_duration
from ..engine.attempt import current
from ..engine.settings import RetrySettings
from ..errors import SignalTimeout
from ..ledger import mirrors
from ..ledger.failpoint import crash_point
from ..ledger.jobs.dead_letters import EDITED_HEADER
from ..ledger.ledger import Ledger
from ..ledger.model import Lease
from ..worker.job_type import EndedElsewhere, JobType, Undecodable
from .ledger_writer import end_signal
from .message import OPAQUE, TaskMessage
from .task_end import TaskEnd

if TYPE_CHECKING:
    from celery import Celery

PREFIX = "celery:"
"""Of the job types of Celery tasks."""
INTERNAL = "celery."
"""Prefix of Celery's own tasks, which do its housekeeping."""
USED_BY_CALLERS = frozenset(("celery.map", "celery.starmap", "celery.chunks"))
"""Tasks of Celery that do the work of a caller."""
SETTINGS = RetrySettings().using(
    RetryPolicy(25, 1, 600, 0.1), {"attempt_timeout": 60, "backoff": steps(1, 5, 30, 120, 600)}
)
"""For sending. An outage of the broker does not count as an attempt."""
RECONNECT_ONCE = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
"""Celery replaces a broken connection, and leaves other retries to Redrive."""


def is_recorded(task: str, /) -> bool:
    """Return whether the failures of a task become dead letters."""
    return not task.startswith(INTERNAL) or task in USED_BY_CALLERS


class Replayer:
    """Runs the replays of Celery tasks in a worker of Redrive. Threads may share it.

    Args:
        celery: The Celery app.
        ledger: Returns the ledger.
        timeout: How long a replay waits for the end of its task.
    """

    def __init__(self, celery: Celery, ledger: Callable[[], Ledger], timeout: timedelta, /) -> None:
        self._celery = celery
        self._ledger = ledger
        self._timeout = timeout

    @property
    def job_types(self) -> list[JobType]:
        """The job types of the registered tasks. Imports the modules of the Celery app."""
        self._celery.loader.import_default_modules()
        return [
            JobType(name=PREFIX + name, run=self.run, execution="thread", settings=SETTINGS)
            for name in sorted(self._celery.tasks)
            if is_recorded(name)
        ]

    def run(self, lease: Lease, /) -> None:
        """Send a task once, and return when it has succeeded.

        Raises:
            EndedElsewhere: It failed, was revoked, or its end was not reported in time.
            Undecodable: The payload is not the message of a task.
            ConnectionError: The broker cannot be reached.
        """
        is_edited = EDITED_HEADER in lease.headers
        message = TaskMessage.decode(lease.payload, self._content_types, is_edited=is_edited)
        attempt, job_id = current(), lease.job_id
        # The names have the job, because the next replay takes over steps and signals.
        attempt.step(f"send:{job_id}", partial(self._send, lease.kind, message, job_id))
        try:
            payload = attempt.wait_for(end_signal(job_id), timeout=self._timeout)
        except SignalTimeout:
            raise self._timeout_error(message) from None
        end = TaskEnd.of_signal(payload)
        mirrors.set_attempts(self._ledger().connections, lease, end.attempts)
        error = end.as_error()
        if error is not None:
            raise error

    def _send(self, kind: str, message: TaskMessage, job_id: int) -> None:
        name = kind.removeprefix(PREFIX)
        options = {**message.send_options(job_id), "retry": True, "retry_policy": RECONNECT_ONCE}
        try:
            self._celery.send_task(name, args=message.args, kwargs=message.kwargs, **options)
        except OperationalError as error:
            raise ConnectionError(f"the broker of Celery cannot be reached: {error}") from error
        crash_point("celery.sent")

    def _timeout_error(self, message: TaskMessage) -> EndedElsewhere:
        waited = format_duration(self._timeout.total_seconds())
        text = (
            f"task {message.task_id} was sent to {message.queue_name!r}, and its end was not "
            f"reported within {waited}; check that a Celery worker reads the queue, and whether "
            "the task has run"
        )
        return EndedElsewhere("dead", "deadline", text, "deadline")

    @property
    def _content_types(self) -> set[str]:
        accepted: set[str] = prepare_accept_content(self._celery.conf.accept_content)
        return accepted

    def payload_problem(self, kind: str, payload: bytes, /) -> str | None:
        """Return why a payload does not fit a task. None if it fits, or cannot be checked."""
        task = self._celery.tasks.get(kind.removeprefix(PREFIX))
        if not kind.startswith(PREFIX) or task is None or payload.startswith(OPAQUE):
            return None
        try:
            message = TaskMessage.decode(payload, self._content_types)
            inspect.signature(task.run).bind(*message.args, **message.kwargs)
        except (Undecodable, TypeError) as error:
            return str(error)
        except ValueError:  # no signature
            return None
        return None


def serializers_of(celery: Any, task: Any, /) -> list[str]:
    """Return the serializers for arguments that JSON does not keep, by preference."""
    accepted = prepare_accept_content(celery.conf.accept_content)
    names = [getattr(task, "serializer", None) or celery.conf.task_serializer]
    if "application/x-python-serialize" in accepted:
        names.append("pickle")
    return names
