"""WorkerSetup: the background tasks of a worker follow from the registered functions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Event
from redrive.app.worker_setup import WorkerSetup
from redrive.core.seconds import Seconds


def task_names(app: App, keep: Seconds | None = None) -> set[str]:
    setup = WorkerSetup(app.registrations, app.ledger, parking=None, keep=keep)
    return {task.name for task in setup.background_tasks(app.kinds())}


def test_a_scheduled_command_adds_a_schedule_task() -> None:
    with App("sqlite://") as app:

        @app.command("reports.send")
        def send() -> None: ...

        assert "schedule" not in task_names(app)

        @app.command("reports.nightly", cron="0 2 * * *")
        def nightly() -> None: ...

        assert "schedule" in task_names(app)


def test_events_are_removed_unless_they_are_kept_for_ever() -> None:
    with App("sqlite://") as app:

        @app.on("paid")
        def book(event: Event[Any]) -> None: ...

        assert "forget events" in task_names(app)
        assert "forget events" not in task_names(app, keep=math.inf)


def test_an_unknown_job_type_is_rejected_before_the_ledger_is_opened(tmp_path: Path) -> None:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}") as app:

        @app.command("reports.send")
        def send() -> None: ...

        with pytest.raises(ValueError, match="'report' is not registered; registered: reports.send"):
            app.worker(only=["report"])
        assert not app.opener.is_open
