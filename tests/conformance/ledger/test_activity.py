"""Activity in the ledger: written by workers, merged by maintenance, read at constant cost."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy

from redrive.ledger import Ledger
from redrive.ledger.db.tables import activity as activity_table
from redrive.ledger.stats import activity
from redrive.ledger.stats.activity import ALL_KINDS, ActivityRow, minute_of
from tests.conformance.ledger.world import session

HOUR = 60


def row(kind: str, slot: int, done: int = 1, span: int = 1, **counts: Any) -> ActivityRow:
    fields = {"failed": 0, "dead": 0, "cancelled": 0, "wait": {10: done}, "run": {20: done}, **counts}
    return ActivityRow(kind, slot, span, done, **fields)


def write(ledger: Ledger, worker: str, *rows: ActivityRow) -> None:
    with session(ledger) as held:
        activity.write(held, worker, rows)


def read(ledger: Ledger, kind: str = "mail", since: int = 0, until: int = 2**40) -> list[ActivityRow]:
    column = activity_table.c
    query = activity._ROWS.where(column.kind == kind, column.slot >= since, column.slot < until).order_by(column.slot)
    with ledger.reading() as connection:
        return [activity._from_row(each) for each in connection.execute(query)]


def sum_up(ledger: Ledger, limit: int = 1000) -> int:
    with session(ledger) as held:
        return activity.sum_up(held, limit=limit)


def minutes_ago(ledger: Ledger, **ago: float) -> int:
    """A minute at the start of an hour."""
    return minute_of(ledger.now() - timedelta(**ago)) // HOUR * HOUR


@pytest.mark.req("Q-12")
def test_a_repeated_write_changes_nothing(ledger: Ledger) -> None:
    for _ in range(2):
        write(ledger, "w1", row("mail", 100, 3))
    write(ledger, "w1", row("mail", 100, 5, failed=2))
    write(ledger, "w2", row("mail", 100, 7))
    assert sorted(each.done for each in read(ledger)) == [5, 7]
    assert sum(each.failed for each in read(ledger)) == 2


@pytest.mark.req("Q-12")
def test_minutes_become_ten_minutes_and_hours_without_loss(ledger: Ledger) -> None:
    recent, old, older = (minutes_ago(ledger, hours=hours) for hours in (1, 10, 100))
    for start in (recent, old, older):
        for minute in range(0, HOUR, 5):
            write(ledger, "w1", row("mail", start + minute, 2), row("sms", start + minute, 1))
            write(ledger, "w2", row("mail", start + minute, 3, dead=1))
    while sum_up(ledger):
        pass
    rows = read(ledger)
    assert [(each.span, each.done, each.dead) for each in rows if each.slot < old] == [(60, 60, 12)]
    assert {(each.span, each.done) for each in rows if old <= each.slot < recent} == {(10, 10)}
    assert {each.span for each in rows if each.slot >= recent} == {1}
    assert sum(each.done for each in rows) == 3 * 60
    assert sum(sum(each.run.values()) for each in rows) == sum(sum(each.wait.values()) for each in rows) == 3 * 60
    assert sum(each.done for each in read(ledger, "sms")) == 3 * 12


@pytest.mark.req("Q-12")
def test_rows_that_come_late_are_added_to_the_sum(ledger: Ledger) -> None:
    old = minutes_ago(ledger, hours=10)
    write(ledger, "w1", row("mail", old, 2))
    sum_up(ledger)
    write(ledger, "w2", row("mail", old + 1, 3))
    sum_up(ledger)
    (stored,) = read(ledger)
    assert (stored.slot, stored.span, stored.done, stored.wait) == (old, 10, 5, {10: 5})


@pytest.mark.req("Q-12")
def test_one_call_reads_a_bounded_number_of_rows(ledger: Ledger) -> None:
    old = minutes_ago(ledger, hours=10)
    write(ledger, "w1", *(row("mail", old + minute) for minute in range(50)))
    assert sum_up(ledger, limit=20) == 20
    assert len([each for each in read(ledger) if each.span == 1]) == 30
    while sum_up(ledger, limit=20):
        pass
    assert sum(each.done for each in read(ledger)) == 50


@pytest.mark.req("Q-12")
def test_hours_are_deleted_after_ninety_days(ledger: Ledger) -> None:
    write(ledger, "", row("mail", minutes_ago(ledger, days=91), span=60), row("mail", minutes_ago(ledger, days=89), span=60))
    sum_up(ledger)
    assert len(read(ledger)) == 1


@pytest.mark.req("Q-12")
def test_counts_by_job_type(ledger: Ledger) -> None:
    write(ledger, "w1", row("mail", 100, 3), row("sms", 100, 1, dead=2), row(ALL_KINDS, 100, 4), row("old", 5, 1))
    write(ledger, "w2", row("mail", 101, 4))
    with ledger.reading() as connection:
        assert activity.sums_by_kind(connection, 100, 102) == {"mail": (7, 0, 0, 0), "sms": (1, 0, 2, 0)}
        assert activity.sums_by_kind(connection, 500, 502) == {}


@pytest.mark.req("Q-12")
def test_a_chart_reads_its_own_slots_only(ledger: Ledger) -> None:
    """The plan is a range of the primary key for any number of rows and job types."""
    write(ledger, "", *(row(kind, slot) for kind in ("", "a", "b", "c", "d") for slot in range(2000)))
    with session(ledger) as held:
        held.raw.execute("ANALYZE redrive_activity")
        query = activity._STEPS.params(of_kind="b", since=100, until=160, step=10)
        compiled = query.compile(held.core, compile_kwargs={"literal_binds": True})
        explain = "EXPLAIN QUERY PLAN" if held.sqlite else "EXPLAIN"
        plan = "\n".join(str(each[-1]) for each in held.core.execute(sqlalchemy.text(f"{explain} {compiled}")))
    assert re.search("PRIMARY KEY|redrive_activity_pkey", plan), plan
    assert not re.search("SCAN redrive_activity|Seq Scan", plan), plan


@pytest.mark.req("Q-12")
def test_a_chart_gets_one_sum_for_each_step(ledger: Ledger) -> None:
    for worker in ("w1", "w2", "w3"):
        write(ledger, worker, *(row("mail", slot, 2, failed=1) for slot in range(100, 130)))
    write(ledger, "w1", row("mail", 145, 0)._replace(wait={}, run={}))
    with ledger.reading() as connection:
        result = connection.execute(activity._STEPS, {"of_kind": "mail", "since": 100, "until": 160, "step": 20})
        assert len(result.all()) == 3
        steps = activity.read_steps(connection, "mail", 100, 20, 3)
    stored = read(ledger, "mail", 100, 160)
    assert steps == {
        place: activity.total("mail", 100 + 20 * place, 20, [each for each in stored if (each.slot - 100) // 20 == place])
        for place in (0, 1, 2)
    }
    assert [steps[place].done for place in (0, 1, 2)] == [120, 60, 0]
