"""Failure groups: counted with each failure, and equal to the rows after any operation."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy

from redrive.ledger import Ledger, NewJob
from redrive.ledger.db.tables import dead, failure, failure_slot
from redrive.ledger.stats.failure_groups import MAX_SIGNATURE_CHARS
from redrive.ledger.stats.failures import RETENTION, delete_old, imbalance
from redrive.ops import DeadLetterFilter
from redrive.ops.operator import Operator
from tests.conformance.ledger.world import pass_time, session
from tests.conformance.ops.world import SECRET, TIMEOUT, die

SLOTS_A_DAY = 144


def groups(ann: Operator) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return (pending, dead, attempts) by job type and signature."""
    return {(one.kind, one.signature): (one.pending, one.died, one.tries) for one in ann.overview.failures()}


def assert_balanced(ledger: Ledger) -> None:
    """Compare the groups with the rows, before and after folding."""
    assert ledger.imbalance() == []
    ledger.maintenance.fold_counters()
    assert ledger.imbalance() == []


@pytest.mark.req("O-4", "L-8")
def test_failures_are_grouped_by_job_type_and_signature(ledger: Ledger, ann: Operator) -> None:
    die(ledger, "a", "b", "c")
    die(ledger, "d", kind="mail", signature="TimeoutError")
    die(ledger, "e", error="ValueError: no address of 7", signature="ValueError: no address of #")
    die(ledger, "f", signature=None)
    first, *_ = ann.overview.failures()
    assert groups(ann) == {
        ("crm.sync", "TimeoutError"): (3, 3, 3), ("mail", "TimeoutError"): (1, 1, 1),
        ("crm.sync", "ValueError: no address of #"): (1, 1, 1), ("crm.sync", ""): (1, 1, 0),
    }  # fmt: skip
    assert (first.kind, first.signature, first.trend.hour, first.trend.day, first.trend.is_growing) == (
        "crm.sync",
        "TimeoutError",
        3,
        3,
        False,
    )
    assert first.error is not None
    assert SECRET not in first.error
    assert ann.jobs.get(first.job_id or 0) is not None
    assert {one.kind for one in ann.overview.failures(kind="mail")} == {"mail"}
    assert_balanced(ledger)


@pytest.mark.req("O-4", "L-8")
def test_decisions_about_dead_letters_are_counted(ledger: Ledger, ann: Operator) -> None:
    one, two, three = die(ledger, "a", "b", "c")
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(one,))), because="old")
    ann.apply(
        ann.dead_letters.replay(
            DeadLetterFilter(
                ids=(
                    two,
                    three,
                )
            )
        ),
        because="mended",
    )
    assert groups(ann) == {("crm.sync", "TimeoutError"): (0, 3, 3)}
    again, done = ledger.claim({"crm.sync": 2}, worker="w1")
    ledger.settle([again.dead("permanent", error="KeyError: 'x'", signature="KeyError: …"), done.done()])
    assert groups(ann) == {("crm.sync", "TimeoutError"): (0, 3, 3), ("crm.sync", "KeyError: …"): (1, 1, 1)}
    assert_balanced(ledger)


@pytest.mark.req("O-4")
def test_failed_attempts_are_shown_before_the_first_dead_letter(ledger: Ledger, ann: Operator) -> None:
    ledger.submit_many([NewJob("mail", str(each)) for each in range(12)])
    leases = ledger.claim({"mail": 12}, worker="w1")
    ledger.settle([lease.again(60, error=TIMEOUT)._replace(signature="TimeoutError") for lease in leases[:11]])
    ledger.settle(leases[11].again(60))  # it asked for a retry, which is not a failure
    (found,) = ann.overview.failures()
    assert (found.pending, found.died, found.tries, found.trend.hour, found.trend.is_growing) == (0, 0, 11, 11, True)
    assert [(one.name, one.kind) for one in ann.overview.summary().findings] == [("failing", "mail")]
    assert_balanced(ledger)


@pytest.mark.req("O-4", "L-8")
def test_blocked_and_lost_jobs_are_counted(ledger: Ledger, ann: Operator) -> None:
    ledger.submit_many([NewJob("mail", each, max_attempts=1) for each in "abc"])
    blocked, lost, freed = ledger.claim({"mail": 3}, worker="w1", lease=30)
    ledger.settle([blocked.blocked("credentials"), freed.blocked("credentials", until=ledger.now() - timedelta(seconds=1))])
    assert groups(ann)["mail", ""] == (2, 2, 0)
    assert [one.blocked for one in ann.overview.failures()] == [2]
    pass_time(ledger, 60)
    assert ledger.reap() == [lost.job_id]
    ledger.maintenance.unblock()
    found = {one.signature: (one.pending, one.blocked, one.died) for one in ann.overview.failures()}
    assert found == {"": (1, 1, 2), "attempts": (1, 0, 1)}
    (kind,) = ann.overview.summary().kinds
    assert (kind.dead, kind.blocked) == (2, 1)
    assert_balanced(ledger)


def test_a_lost_replay_gets_its_new_cause(ledger: Ledger, ann: Operator) -> None:
    (letter,) = die(ledger, "a", max_attempts=1)
    ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(letter,))), because="mended")
    ledger.claim({"crm.sync": 1}, worker="w1", lease=30)
    pass_time(ledger, 60)
    ledger.reap()
    assert groups(ann) == {("crm.sync", "TimeoutError"): (0, 1, 1), ("crm.sync", "attempts"): (1, 1, 1)}
    assert_balanced(ledger)


def test_late_settlements_are_not_counted(ledger: Ledger, ann: Operator) -> None:
    ledger.submit(NewJob("mail", "a"))
    (lease,) = ledger.claim({"mail": 1}, worker="w1")
    end = lease.dead("x", error="e", signature="s")
    turn = ledger.turn([end, end._replace(error="another")], {}, worker="w1")
    assert [one.error for one in turn.late] == ["another"]
    assert groups(ann) == {("mail", "s"): (1, 1, 1)}
    assert_balanced(ledger)


def test_long_and_hostile_signatures_are_stored(ledger: Ledger, ann: Operator) -> None:
    long = "Ä🦆" * 3000
    die(ledger, "a", signature=long)
    die(ledger, "b", signature="\x00'; DROP TABLE redrive_dead; --")
    assert {len(one.signature) for one in ann.overview.failures()} >= {MAX_SIGNATURE_CHARS}
    for one in ann.overview.failures():
        report = ann.overview.failure(one.kind, one.signature)
        assert report is not None
        assert [letter.signature for letter in report.letters] == [one.signature]
    assert_balanced(ledger)


@pytest.mark.req("O-4")
def test_a_group_has_its_dead_letters(ledger: Ledger, ann: Operator) -> None:
    letters = die(ledger, "a", "b")
    die(ledger, "c", signature=None)
    report = ann.overview.failure("crm.sync", "TimeoutError")
    assert report is not None
    assert [letter.id for letter in report.letters] == letters[::-1]
    without = ann.overview.failure("crm.sync", "")
    assert without is not None
    assert [letter.key for letter in without.letters] == ["c"]
    assert ann.overview.failure("crm.sync", "nothing") is None


@pytest.mark.req("O-4")
def test_failures_have_hourly_counts_and_recent_ones_first(ledger: Ledger, ann: Operator) -> None:
    die(ledger, *map(str, range(5)), signature="old")
    ledger.maintenance.fold_counters()
    pass_time(ledger, 3 * 3600)
    with session(ledger) as held:
        held.core.execute(sqlalchemy.update(failure_slot).values(slot=failure_slot.c.slot - 18))
    die(ledger, "new", signature="new")
    ledger.maintenance.fold_counters()
    fresh, old = ann.overview.failures()
    assert (fresh.signature, fresh.trend.hour, old.signature, old.trend.hour, old.trend.day) == ("new", 1, "old", 0, 5)
    assert old.trend.hours[-4:] in ((5, 0, 0, 0), (0, 5, 0, 0))  # its own hour, or the hour before
    now = ledger.now()
    assert [one.signature for one in ann.overview.failures(since=now - timedelta(hours=1))] == ["new"]
    assert [one.signature for one in ann.overview.failures(until=now - timedelta(hours=1))] == ["old"]
    assert [one.signature for one in ann.overview.failures(since=now - timedelta(hours=4), until=now - timedelta(hours=2))] == [
        "old"
    ]
    die(ledger, "again", signature="old")
    ledger.maintenance.fold_counters()  # seen before and after the next window, and not in it
    assert ann.overview.failures(since=now - timedelta(hours=2), until=now - timedelta(hours=1)) == []


def test_resolved_groups_are_deleted_after_a_month(ledger: Ledger, ann: Operator) -> None:
    one, two = die(ledger, "a")[0], die(ledger, "b", signature="other")[0]
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(one,))), because="old")
    ledger.maintenance.fold_counters()
    pass_time(ledger, RETENTION.total_seconds() + 60)
    with session(ledger) as held:
        held.core.execute(sqlalchemy.update(failure_slot).values(slot=failure_slot.c.slot - 32 * SLOTS_A_DAY))
        assert delete_old(held) == 1
        assert held.core.scalar(sqlalchemy.select(sqlalchemy.func.count()).select_from(failure_slot)) == 0
    assert [letter.id for letter in ann.dead_letters.find()] == [two]
    assert groups(ann) == {("crm.sync", "other"): (1, 1, 1)}
    assert_balanced(ledger)


@pytest.mark.req("L-8")
def test_the_doctor_finds_unbalanced_counts_and_a_recount_fixes_them(ledger: Ledger, ann: Operator) -> None:
    die(ledger, "a", "b")
    ledger.maintenance.fold_counters()
    with ledger.begin() as tx:
        tx.execute(sqlalchemy.update(failure).values(pending=7))
    (wrong,) = [one for one in ann.health.check().findings if one.name == "balance"]
    assert "7 pending are counted" in wrong.says
    assert "there are 2" in wrong.says
    assert ann.health.recount(because="somebody played with it") == {"crm.sync": {"pending": -5}}
    assert_balanced(ledger)
    with ledger.reading() as connection:
        assert imbalance(connection) == []
        assert connection.scalar(sqlalchemy.select(sqlalchemy.func.count()).select_from(dead)) == 2
