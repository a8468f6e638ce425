"""The timeline of a job: its steps, sleeps and waits, its progress, and signals for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection

from ..errors import NotAllowed
from ..ledger import audit
from ..ledger.store import signals, steps
from ..ledger.store.signals import SentSignal
from ..ledger.store.steps import TIMED_OUT, Step
from .context import OperatorContext, check_reason
from .dead_letters.model import readable

SignalResult: TypeAlias = SentSignal
StepState: TypeAlias = Literal["done", "failed", "sleeping", "waiting", "timeout", "unread"]


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step, sleep or wait of a job, without secrets."""

    act: str
    """`"step"`, `"sleep"`, `"wait"`, or `"signal"` if the job has not waited for it yet."""
    name: str
    state: StepState
    attempts: int
    started_at: datetime | None
    ended_at: datetime | None
    wake_at: datetime | None
    """When a sleep or a wait ends."""
    seconds: float | None
    """How long it took. None: it has not ended."""
    result: Any
    """Result of a step, or payload of a signal."""
    error: str | None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """What a job reported, without secrets."""

    part: float | None
    """From 0 to 1."""
    note: str | None
    updated_at: datetime | None
    checkpoint: Any
    checkpoint_at: datetime | None

    @property
    def percent(self) -> str | None:
        """The part in percent, such as `40 %`."""
        return None if self.part is None else f"{self.part * 100:.0f} %"


def timeline(connection: Connection, job_id: int, now: datetime, /) -> tuple[StepLine, ...]:
    """Return the steps, sleeps, waits and signals of a job, in the order of their start."""
    sent = {signal.name: signal for signal in signals.signals_of(connection, job_id)}
    lines = []
    for step in steps.steps_of(connection, job_id):
        signal = sent.pop(step.name, None) if step.act == "wait" else None
        lines.append(_line(step, signal, now))
    lines += [
        StepLine(
            *("signal", signal.name, "unread", 0, signal.created_at, None, None, None),
            _shown(signal.payload),
            None,
        )
        for signal in sent.values()
    ]
    return tuple(lines)


def _line(step: Step, signal: signals.Signal | None, now: datetime) -> StepLine:
    ended_at, state = step.ended_at, _state(step, now)
    if step.act == "sleep" and state == "done":
        ended_at = step.wake_at
    result = step.result
    if signal is not None and step.error != TIMED_OUT:
        state, ended_at, result = "done", signal.created_at, signal.payload
    seconds = None
    if ended_at is not None and step.started_at is not None:
        seconds = max(0.0, (ended_at - step.started_at).total_seconds())
    shown = _shown(result)
    if result is None and step.result_bytes is not None:
        shown = f"({step.result_bytes:,} bytes)"
    return StepLine(
        act=step.act,
        name=step.name,
        state=state,
        attempts=step.attempts,
        started_at=step.started_at,
        ended_at=ended_at,
        wake_at=step.wake_at,
        seconds=seconds,
        result=shown,
        error=None if step.error == TIMED_OUT else step.error,
    )


def _state(step: Step, now: datetime) -> StepState:
    if step.act == "step":
        return "failed" if step.ended_at is None else "done"
    if step.act == "wait":
        return "timeout" if step.error == TIMED_OUT else "waiting"
    return "sleeping" if step.wake_at is not None and step.wake_at > now else "done"


def _shown(stored: bytes | None) -> Any:
    return None if stored is None else readable(stored)


def progress_report(connection: Connection, job_id: int, /) -> JobProgress | None:
    """Return the progress and the checkpoint of a job, or None."""
    row = steps.progress_of(connection, job_id)
    if row is None:
        return None
    return JobProgress(
        row.part, row.note, row.updated_at, _shown(row.checkpoint), row.checkpoint_at
    )


def send_signal(
    context: OperatorContext, job_id: int, name: str, payload: bytes | None, because: str, /
) -> SentSignal:
    """Send a signal to a job, with an entry in the audit log.

    Raises:
        NotAllowed: There is no such job, or it has ended. Nothing was changed.
    """
    check_reason(because)
    ledger = context.ledger
    signals.check_signal(name, payload, ledger.max_payload)
    with ledger.connections.write.use() as session, session.transaction("signal"):
        try:
            sent = signals.send_to_job(
                session.run, job_id, name, payload, sqlite=ledger.connections.on_sqlite
            )
        except LookupError as error:
            raise NotAllowed(str(error)) from None
        if sent.stored:
            what = {"job": job_id, "signal": name}
            audit.write(
                session, actor=context.actor, action="job.signal", because=because, what=what
            )
    ledger.notify()
    return sent
