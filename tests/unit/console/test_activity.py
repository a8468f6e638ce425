"""The page of the activity, and the counts of the overview."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.ledger import NewJob
from redrive.ledger.stats import activity
from redrive.ledger.stats.activity import ALL_KINDS, ActivityRow, minute_of
from tests.conformance.partitions.world import World

from .browser import client


@pytest.mark.req("Q-12")
@pytest.mark.parametrize("cancelled", [0, 3])
def test_cancelled_attempts_are_shown_if_there_are_any(app: App, cancelled: int) -> None:
    slot = minute_of(app.ledger.now()) - 5
    rows = [ActivityRow(kind, slot, 1, 7, 1, 0, cancelled, {}, {}) for kind in ("crm.sync", ALL_KINDS)]
    with app.ledger.connections.write.use() as session:
        activity.write(session, "w1", rows)
    page = client(app).get("/activity").text
    assert ("<b>3</b><span>Cancelled</span>" in page) is bool(cancelled)
    assert page.count('<th class="num">Cancelled</th>') == (2 if cancelled else 0)
    assert ("7 done, 1 failed, 0 dead, 3 cancelled" in page) is bool(cancelled)


@pytest.mark.req("O-4")
def test_the_overview_counts_jobs_and_partitions_apart(app: App) -> None:
    app.ledger.submit(NewJob("mail.send", "m1"))
    assert "<b>1</b><span>Queued</span>" in client(app).get("/").text
    world = World(app.ledger)
    world.backfill(1, 3)
    world.reject(world.claim(3)[0])  # it is queued again
    page = client(app).get("/").text
    assert "<b>2</b><span>Queued: 1 job, 1 partition</span>" in page
    assert "<b>2</b><span>Running: 0 jobs, 2 partitions</span>" in page
