"""Operations on limits at run time: concurrency and rate of a job type, over all workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ...errors import NotAllowed
from ...journal.redaction import redact_text
from ...ledger.jobs import limits as stored
from ...ledger.jobs.workers import WorkerRecord
from ..context import QUIET, OperatorContext, check_reason
from ..project.target import job_types
from ..workers import registered_job_types
from .pauses import check_known_name


@dataclass(frozen=True, slots=True)
class LimitLine:
    """The limits of a job type: in the code, at run time, and the ones that workers apply."""

    kind: str
    concurrency: int | None
    """Maximum number of running jobs that workers apply. None: no limit."""
    rate: float | None
    """Maximum number of starts in a second that workers apply. None: no limit."""
    code_concurrency: int | None
    """In the code of the app, or of an online worker. None: no limit, or not known."""
    code_rate: float | None
    set_concurrency: int | None
    """Set at run time. None: as in the code."""
    set_rate: float | None
    actor: str | None = None
    """Who set the limit at run time. None: no limit is set."""
    because: str | None = None
    updated_at: datetime | None = None

    @property
    def is_set(self) -> bool:
        """Whether a limit is set at run time."""
        return self.actor is not None


@dataclass(frozen=True, slots=True)
class LimitOperations:
    """Operations on limits at run time, as `Operator.limits`. Threads may share one.

    Workers apply a new limit within a second, without a restart.
    """

    _context: OperatorContext

    def find(self) -> list[LimitLine]:
        """Return the limits of all job types that have one, in the code or at run time.

        Returns:
            The limits, by job type.
        """
        code, own = self._limits_in_code(), self._read()
        return [_line(kind, code.get(kind, {}), own.get(kind)) for kind in sorted({*code, *own})]

    def get(self, kind: str, /) -> LimitLine:
        """Return the limits of one job type.

        Args:
            kind: The job type.

        Returns:
            The limits.
        """
        return _line(kind, self._limits_in_code().get(kind, {}), self._read().get(kind))

    def set(
        self,
        kind: str,
        /,
        *,
        because: str,
        concurrency: int | None = None,
        rate: float | None = None,
        force: bool = False,
    ) -> LimitLine:
        """Set the limit of a job type over all workers. It replaces the value in the code.

        Args:
            kind: The job type.
            because: Why, for the audit log.
            concurrency: Maximum number of running jobs, from 1. None: unchanged.
            rate: Maximum number of starts in a second, above 0. None: unchanged.
            force: Also accept a job type that neither the ledger nor a worker knows.

        Returns:
            The limits.

        Raises:
            NotAllowed: The job type is unknown. Nothing was changed.
            ValueError: A value is not valid. Nothing was changed.
        """
        check_reason(because)
        self._context.require("limit", kind)
        stored.check_limit(concurrency, rate)
        ledger = self._context.ledger
        if not force:
            names = {*ledger.counts(), *registered_job_types(ledger), *self._limits_in_code()}
            names.update(each.name for each in job_types(self._context.app))
            check_known_name("job type", kind, sorted(names))
        with ledger.connections.write.use() as session:
            stored.set_limit(
                session,
                kind,
                concurrency=concurrency,
                rate=rate,
                actor=self._context.actor,
                because=because,
            )
        return self.get(kind)

    def reset(self, kind: str, /, *, because: str) -> LimitLine:
        """Return to the values in the code.

        Args:
            kind: The job type.
            because: Why, for the audit log.

        Returns:
            The limits.

        Raises:
            NotAllowed: No limit is set at run time. Nothing was changed.
        """
        check_reason(because)
        self._context.require("limit", kind)
        actor = self._context.actor
        with self._context.ledger.connections.write.use() as session:
            was_set = stored.reset_limit(session, kind, actor=actor, because=because)
        if not was_set:
            raise NotAllowed(f"job type {kind}: no limit is set at run time; nothing was changed")
        return self.get(kind)

    def _read(self) -> dict[str, stored.RunTimeLimit]:
        with self._context.ledger.reading() as connection:
            return stored.read_limits(connection)

    def _limits_in_code(self) -> dict[str, Mapping[str, Any]]:
        """Return the limits in the code: of the app if it is loaded, else of online workers."""
        ledger = self._context.ledger
        limits = code_limits(ledger.workers(), ledger.now() - timedelta(seconds=QUIET))
        for each in job_types(self._context.app):
            limits[each.name] = {"concurrency": each.concurrency, "rate": each.rate}
        return {name: own for name, own in limits.items() if any(own.values())}


def code_limits(
    workers: list[WorkerRecord], silent_before: datetime, /
) -> dict[str, Mapping[str, Any]]:
    """Return the limits that online workers have in their code, by job type."""
    limits: dict[str, Mapping[str, Any]] = {}
    for worker in sorted(workers, key=lambda each: each.seen_at):
        if worker.ended_at is None and worker.seen_at >= silent_before:
            limits |= worker.info.get("limits", {})
    return limits


def _line(kind: str, code: Mapping[str, Any], own: stored.RunTimeLimit | None, /) -> LimitLine:
    in_code = code.get("concurrency"), code.get("rate")
    at_run_time = (None, None) if own is None else (own.concurrency, own.rate)
    return LimitLine(
        kind=kind,
        concurrency=in_code[0] if at_run_time[0] is None else at_run_time[0],
        rate=in_code[1] if at_run_time[1] is None else at_run_time[1],
        code_concurrency=in_code[0],
        code_rate=in_code[1],
        set_concurrency=at_run_time[0],
        set_rate=at_run_time[1],
        actor=None if own is None else redact_text(own.actor),
        because=None if own is None else redact_text(own.because),
        updated_at=None if own is None else own.updated_at,
    )
