"""The page of the activity, and the counts of the overview."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import insert

from redrive import App
from redrive.ledger import NewJob
from redrive.ledger.db.tables import failure, failure_slot
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
    assert page.count(">Cancelled</th>") == (2 if cancelled else 0)
    assert ("7 done, 1 failed, 0 dead, 3 cancelled" in page) is bool(cancelled)


MAX_PAGE_BYTES = 150_000


def write_worst_case(app: App) -> None:
    """Write large numbers of every outcome for 60 job types, and ten causes with long names, on each of 90 days."""
    now = app.ledger.now()
    slots = [minute_of(now) // 60 * 60 - 1440 * day for day in range(90)]
    kinds = [f"shop.background.orders.kind-{number}" for number in range(60)]
    counts = dict.fromkeys(range(0, 140, 5), 999999)
    causes = [f"{number} " + "could not connect to the <host> " * 9 for number in range(10)]
    with app.ledger.connections.write.use() as session:
        for slot in slots:
            numbers = (123_456_789, 1_234_567, 123_456, 12_345)
            activity.write(session, "", [ActivityRow(kind, slot, 60, *numbers, counts, counts) for kind in ("", *kinds)])
        with session.transaction("activity") as connection:
            groups = [(kinds[number], cause) for number, cause in enumerate(causes)]
            seen = [
                {"kind": k, "signature": c, "tries": 10**9, "first_at": now - timedelta(days=90), "last_at": now}
                for k, c in groups
            ]
            failures = [{"kind": k, "signature": c, "slot": slot // 10, "tries": 123_456} for k, c in groups for slot in slots]
            connection.execute(insert(failure), seen)
            connection.execute(insert(failure_slot), failures)


@pytest.mark.req("Q-12")
def test_the_largest_page_of_the_activity_is_small(app: App) -> None:
    write_worst_case(app)
    response = client(app).get("/activity?since=89d")
    assert response.text.count("<title>20") > 300  # a step of a chart
    assert "20 more names with fewer attempts not shown." in response.text
    assert "All other causes" in response.text
    assert len(response.content) <= MAX_PAGE_BYTES
    assert len(client(app).get("/activity").content) <= MAX_PAGE_BYTES


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
