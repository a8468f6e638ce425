"""Background tasks of a worker for its datasets: schedules, and the control plane's maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from ...commands.cron import Cron
from ...ledger.jobs.pauses import read_pauses
from ...ledger.ledger import Ledger
from ...worker.clocks import Jumps
from ..control.plane import ControlPlane
from ..datasets.dataset import Extraction

MAX_CATCH_UP = 366
"""Missed times of a schedule that are handled at once."""


class ScheduleTask:
    """Enqueues fresh partitions when the schedule of a dataset is due. Used by one thread.

    A time of the schedule is for the day before it, in the schedule's time zone. Each time is
    handled once, by any of the workers. Missed times are caught up.
    """

    name = "datasets"
    every = 2.0

    def __init__(self, ledger: Ledger, extractions: Sequence[Extraction], /) -> None:
        self._ledger = ledger
        self._scheduled = [each for each in extractions if each.cron is not None]
        self._control = ControlPlane(ledger, [each.limits for each in extractions])

    def do(self, now: datetime, /) -> None:
        """Enqueue due partitions. A dataset that fails does not delay the others."""
        first_error: Exception | None = None
        for extraction in self._scheduled:
            try:
                self._enqueue_due(extraction, now)
            except Exception as error:
                error.add_note(f"the schedule of {extraction.name}")
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def _enqueue_due(self, extraction: Extraction, now: datetime) -> None:
        cron = extraction.cron
        assert cron is not None
        dataset = extraction.limits.dataset
        last = self._control.last_fired_at(*dataset)
        if last is None:
            last = self._control.start_schedule_at(*dataset, now, cron=str(cron))
        times = due_times(cron, last, now)
        if times and not self._is_paused(extraction.name, now):
            customers = extraction.current_customers()
            for run_at in times:
                days = [day_before(cron, run_at)]
                self._control.enqueue_scheduled(*dataset, run_at, customers, days, cron=str(cron))

    def _is_paused(self, name: str, now: datetime) -> bool:
        """Return whether an operator has paused the schedule, or the app.

        The times that are missed meanwhile are caught up when it is resumed.
        """
        with self._ledger.reading() as connection:
            return read_pauses(connection, now).get("schedule", name) is not None


def due_times(
    cron: Cron, last: datetime | None, now: datetime, /, *, most: int = MAX_CATCH_UP
) -> list[datetime]:
    """Return the times of a schedule after the last handled one, up to now. A new one has none."""
    times: list[datetime] = []
    if last is not None:
        run_at = cron.after(last)
        while run_at <= now and len(times) < most:
            times.append(run_at)
            run_at = cron.after(run_at)
    return times


def day_before(cron: Cron, run_at: datetime, /) -> date:
    """Return the day that a time of a schedule is for, in the schedule's time zone."""
    return run_at.astimezone(cron.zone).date() - timedelta(days=1)


class ControlPlaneTask:
    """Recovers expired leases and advances sweeps. Any number of workers may do it at once."""

    name = "partitions"
    every = 1.0

    def __init__(self, ledger: Ledger, extractions: Sequence[Extraction], /) -> None:
        self._control = ControlPlane(ledger, [each.limits for each in extractions])
        self._jumps = Jumps()

    def do(self, _now: datetime, /) -> None:
        """Run one round of maintenance."""
        self._control.maintain(self._jumps)
