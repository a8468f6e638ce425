"""Scheduled commands on SQLite, Postgres and Temporal: each run happens once, and none early."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from redrive import App
from redrive.commands.registry import CommandScheduleTask
from redrive.core.key import Key
from tests.conformance.commands.conftest import OpenApp

UTC = timezone.utc


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def schedule(app: App) -> CommandScheduleTask:
    (chore,) = CommandScheduleTask.of(app.ledger, app.commands.scheduled, app.kinds())
    return chore


def due(app: App) -> list[str]:
    return sorted(f"{job.due_at:%m-%d %H:%M}" for job in app.ledger.jobs("ready", limit=1000))


def tell(schedules: Sequence[CommandScheduleTask], moment: datetime) -> None:
    threads = [threading.Thread(target=each.do, args=(moment,)) for each in schedules]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.req("W-6")
def test_each_scheduled_run_happens_once_across_workers(app: App) -> None:
    @app.command("nightly", cron="30 2 * * *", timezone="Europe/Prague", priority=-1)
    def nightly() -> None: ...

    @app.command("quarterly", cron="*/15 * * * *")
    def quarterly() -> None: ...

    workers = [schedule(app) for _ in range(6)]
    moment = at("2026-10-24T12:00")
    for _ in range(3 * 24 * 12):  # every five minutes for three days, including the night with a repeated hour
        tell(workers[: 1 + moment.minute % 6], moment)
        moment += timedelta(minutes=5)
    jobs = app.ledger.jobs("ready", limit=1000)
    nights = [f"{job.due_at:%m-%d %H:%M}" for job in jobs if job.kind == "nightly"]
    assert sorted(nights) == ["10-25 00:30", "10-26 01:30", "10-27 01:30", "10-28 01:30"]
    quarters = sorted(job.due_at for job in jobs if job.kind == "quarterly")
    assert len(quarters) == 3 * 24 * 4
    assert {later - earlier for earlier, later in pairwise(quarters)} == {timedelta(minutes=15)}
    first = next(job for job in jobs if job.kind == "nightly")
    assert (Key.parse(first.key).operation, first.priority) == ("nightly", -1)


@pytest.mark.req("W-6")
def test_missed_runs_happen_once_and_none_early(app: App) -> None:
    ran: list[str] = []

    @app.command("hourly", cron="0 * * * *")
    def hourly() -> None:
        ran.append("hourly")

    schedule(app).do(at("2026-01-01T00:30"))
    assert due(app) == ["01-01 01:00"], "a command that is new does not fire for what was before it"
    # No worker ran since half past twelve. Months later, one run makes up for all of them.
    with app.worker():
        _until(lambda: bool(ran))
        _until(lambda: len(app.ledger.jobs("ready")) == 1)
    assert ran == ["hourly"]
    (coming,) = app.ledger.jobs("ready")
    assert coming.due_at > app.ledger.now()


def test_a_changed_schedule_does_not_run_by_the_old_one(app: App, open_app: OpenApp) -> None:
    with open_app() as before:

        @before.command("report", cron="0 2 * * *")
        def old() -> None: ...

        schedule(before).do(at("2026-01-01T00:30"))
    ran: list[str] = []

    @app.command("report", cron="0 3 * * *")
    def new() -> None:
        ran.append("report")

    with app.worker():
        _until(lambda: len(app.ledger.jobs("done")) == 1)
        by_hand = new.submit()
        by_hand.result(60)
    assert ran == ["report"], "the one by hand"


def test_a_worker_schedules_only_its_own_job_types(app: App) -> None:
    @app.command("a", cron="0 2 * * *")
    def a() -> None: ...

    @app.command("b")
    def b() -> None: ...

    assert CommandScheduleTask.of(app.ledger, app.commands.scheduled, app.kinds(["b"])) == []
    assert len(CommandScheduleTask.of(app.ledger, app.commands.scheduled, app.kinds(["a"]))) == 1


def _until(true: object) -> None:
    import time

    assert callable(true)
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
