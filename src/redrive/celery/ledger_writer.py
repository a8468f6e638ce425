"""LedgerWriter: writes the ends of Celery tasks to the ledger, from a worker of Celery.

A failure of the ledger never reaches the task. A write is repeated for a few seconds. Then a log
record says what was lost.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping

from ..commands.signals import signal_payload
from ..core.policy import RetryPolicy
from ..core.text import safe_str
from ..engine.retry import retry
from ..errors import LedgerUnavailable
from ..journal.bus import emit
from ..journal.redaction import redact
from ..ledger import mirrors
from ..ledger.ledger import Ledger
from ..ledger.model import NewJob
from ..ledger.store import signals
from .task_end import TaskEnd

POLICY = RetryPolicy(max_attempts=4, backoff_base=0.2, backoff_max=1, jitter=0.2, timeout=5)
"""How long a write is repeated. A process of Celery waits for it."""
MAX_SHOWN_CHARS = 500
"""Characters of a lost message in its log record."""


def end_signal(job_id: int, /) -> str:
    """Return the name of the signal that reports the end of a replay.

    It has the id of the job: a later replay of the dead letter must not take it for its own.
    """
    return f"celery.ended:{job_id}"


class LedgerWriter:
    """Writes to the ledger of an app. Threads and forked children may share it.

    Args:
        ledger: Returns the ledger, opened at first use.
    """

    def __init__(self, ledger: Callable[[], Ledger], /) -> None:
        self._ledger = ledger
        self._retry = retry(POLICY, on=LedgerUnavailable, operation="celery.record")

    def record(self, job: NewJob, end: TaskEnd, without_arguments: bytes, /) -> int | None:
        """Make a dead letter of a task that failed for good.

        A second failure of the same task is added to the pending dead letter.

        Args:
            job: The task as a job.
            end: How it failed.
            without_arguments: Payload for a task whose own is too large for the ledger.

        Returns:
            The id of its job. None if the ledger has a job that runs the task again.
        """
        # The run makes a repeated write of one failure harmless, if its commit was not known.
        job = job._replace(headers={**(job.headers or {}), mirrors.RUN_HEADER: uuid.uuid4().hex})

        def write() -> int | None:
            ledger = self._ledger()
            is_lost = len(job.payload) > ledger.max_payload or job.payload == without_arguments
            run = mirrors.FailedRun(
                job._replace(payload=without_arguments) if is_lost else job,
                attempts=end.attempts,
                closed_at=None,
                worker=end.worker,
                outcome="dead",
                reason="payload_lost" if is_lost else end.reason,
                error=end.error,
                signature=end.signature,
                joins=True,
            )
            return mirrors.record_failed(ledger.connections, run, ledger.max_payload)

        job_id: int | None = self._retry.call(write)
        if job_id is not None:
            fields = {
                **(job.ids or {}),
                "operation": job.kind,
                "job_id": str(job_id),
                "attempt": end.attempts,
                "max_attempts": end.attempts,
                "error": (end.error or "").partition("\n")[0],
                "idempotency_key": job.key,
                "reason": end.reason,
            }
            emit("giveup", fields)
        return job_id

    def report_end(self, job_id: int, end: TaskEnd, /) -> bool:
        """Tell the job of a replay how its task ended.

        Returns:
            False if the failure belongs to the history of the dead letter: the job has ended.
        """
        name = end_signal(job_id)
        payload = signal_payload(name, end.as_signal())

        def write() -> signals.SentSignal | None:
            ledger = self._ledger()
            connections = ledger.connections
            try:
                with connections.write.use() as session, session.transaction("signal"):
                    on_sqlite = connections.on_sqlite
                    sent = signals.send_to_job(session.run, job_id, name, payload, sqlite=on_sqlite)
            except LookupError:  # it was cancelled, discarded or erased, or its task ended twice
                return None
            ledger.notify()
            return sent

        sent = self._retry.call(write)
        return sent is not None and not sent.is_dead


def report_loss(operation: str, task_id: str, payload: bytes, error: Exception, /) -> None:
    """Log that a failed task is not in the ledger, with the task and its arguments.

    Args:
        operation: Job type.
        task_id: Id of the task.
        payload: Its stored form. Secrets are not shown.
        error: Why it could not be written.
    """
    try:
        message = json.loads(payload)
    except ValueError:
        message = None
    fields: Mapping[str, object] = {
        "operation": operation,
        "task_id": task_id,
        "message": json.dumps(redact(message))[:MAX_SHOWN_CHARS] if message else None,
        "error": safe_str(error),
        "error_class": type(error).__name__,
    }
    emit("unrecorded", fields)
