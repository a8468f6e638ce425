"""Schedules of commands and datasets: next, last and missed runs."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App
from redrive.commands.cron import Cron
from redrive.commands.registry import CommandScheduleTask, next_run
from redrive.ops.operator import Operator
from redrive.partitions.work.runner import ScheduleTask
from tests.conformance.ledger.world import pass_time
from tests.conformance.partitions.world import World


@pytest.mark.req("O-4")
def test_schedules_of_commands_are_listed_with_next_and_last_run(url: str) -> None:
    with App(url) as app:

        @app.command("reports.nightly", cron="0 * * * *")
        def nightly() -> None: ...

        @app.command("receipts.send")
        def send(order: str) -> None: ...

        ann = Operator(app, actor="ann")
        send.submit("o-1")
        assert ann.overview.schedules() == []
        ledger, (terms,) = app.ledger, app.commands.scheduled
        now = ledger.now()
        (chore,) = CommandScheduleTask.of(ledger, [terms], app.kinds())
        chore.do(now)
        (one,) = ann.overview.schedules()
        assert (one.kind, one.line, one.next_at) == ("reports.nightly", "0 * * * * UTC", next_run(terms, now).due)
        assert (one.last_at, one.late_since, one.missed) == (None, None, 0)
        pass_time(ledger, 4 * 3600)
        (one,) = ann.overview.schedules()
        assert one.late_since is not None
        assert one.next_at is None
        assert one.missed in (2, 3, 4)
        for lease in ledger.claim({"reports.nightly": 1}, worker="w1"):
            ledger.settle(lease.dead("x", error="KeyError: 'day'"))
        (one,) = ann.overview.schedules()
        assert (one.late_since, one.last_state, one.error) == (None, "dlq", "KeyError: 'day'")


@pytest.mark.req("O-4", "P-10")
def test_schedules_of_datasets_are_listed_with_next_and_last_run(url: str) -> None:
    with App(url, stores={"raw": {"type": "memory"}}) as app:
        told: Any = {"raw": "raw", "customers": ["acme", "zeta"], "checks": []}

        @app.dataset("crm", "orders", cron="0 2 * * *", timezone="Europe/Prague", **told)
        def orders(partition: Any, out: Any) -> None: ...

        @app.dataset("crm", "visits", **told)
        def visits(partition: Any, out: Any) -> None: ...

        ledger, ann = app.ledger, Operator(app, actor="ann")
        bare = Operator(ledger, actor="ann")
        now = ledger.now()
        cron = Cron("0 2 * * *", "Europe/Prague")
        (one,) = ann.overview.schedules()  # known to the app, and seen by no worker so far
        assert (one.kind, one.line, one.of) == ("crm/orders", "0 2 * * * Europe/Prague", "dataset")
        assert (one.next_at, one.last_at, one.late_since, one.missed) == (cron.after(now), None, None, 0)
        assert bare.overview.schedules() == []
        chore = ScheduleTask(ledger, list(app.datasets))
        chore.do(now)
        (one,) = bare.overview.schedules()
        assert (one.source, one.query, one.last_at, one.missed) == ("crm", "orders", None, 0)
        pass_time(ledger, 2 * 86_400)
        (one,) = bare.overview.schedules()
        assert (one.missed in (1, 2, 3), one.late_since is not None) == (True, True)
        chore.do(ledger.now())
        (one,) = bare.overview.schedules()
        assert (one.missed, one.late_since, one.last_state, one.last_job) == (0, None, "running", None)
        assert one.last_at is not None
        assert cron.after(one.last_at) == one.next_at
        world = World(ledger)
        world.reject(*world.claim(), final=True)
        (one,) = bare.overview.schedules()
        assert one.error is not None
        assert one.error.startswith("2 of 2 partitions of ")
        assert world.queries.progress(one.last_sweep or 0) is not None
