"""Fair claims: the tenants of a job type take turns (Q-6)."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.store.postgres import claim as on_postgres
from redrive.ledger.store.postgres import fair
from tests.conformance.ledger.world import session
from tests.ledgers import sqlite_ledger

pytestmark = pytest.mark.req("Q-6")
KIND = "mail.send"


def submit(ledger: Ledger, tenant: str | None, count: int, *, priority: int = 0, delay: float = 0.0) -> None:
    """Submit jobs of a tenant."""
    ledger.submit_many(
        [NewJob(KIND, f"{tenant}-{priority}-{delay}-{n}", tenant=tenant, priority=priority, delay=delay) for n in range(count)]
    )


def claim(ledger: Ledger, most: int) -> list[str]:
    """Claim fairly, and return the tenants of the leased jobs, sorted."""
    leases = ledger.claim({KIND: most}, worker="w", fair=True)
    return sorted(lease.key.split("-")[0] for lease in leases)


def test_a_claim_shares_out_between_tenants(ledger: Ledger) -> None:
    submit(ledger, "big", 50)
    submit(ledger, "mid", 50)
    submit(ledger, "small", 1)
    assert Counter(claim(ledger, 9))["small"] == 1
    assert Counter(claim(ledger, 10)) == {"big": 5, "mid": 5}


def test_one_job_at_a_time_goes_round_the_tenants(ledger: Ledger) -> None:
    submit(ledger, "a", 20)
    submit(ledger, "b", 20)
    submit(ledger, "c", 20)
    taken = [claim(ledger, 1)[0] for _ in range(7)]
    assert taken == ["a", "b", "c", "a", "b", "c", "a"]


FILL = """
INSERT INTO redrive_job (kind, key, tenant, payload, due_at, created_at)
SELECT 'mail.send', 'big-' || n, 'big', '', {past}, {past} FROM {numbers}
"""
COUNT = "INSERT INTO redrive_tally (kind, submitted, ready) VALUES ('mail.send', {count}, {count})"


def fill(ledger: Ledger, count: int) -> None:
    """Insert queued jobs of the tenant `big`, without the ledger: many at once."""
    with session(ledger) as held:
        if held.sqlite:
            numbers = f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s)"
            held.raw.execute(FILL.format(numbers=numbers, past=1_000_000))
        else:
            held.raw.execute(FILL.format(numbers=f"generate_series(1, {count}) n", past="now() - interval '1 h'"))
        held.raw.execute(COUNT.format(count=count))
        held.raw.execute("ANALYZE redrive_job")


def test_a_tenant_with_100_000_jobs_delays_a_single_job_by_a_few(ledger: Ledger) -> None:
    fill(ledger, 100_000)
    assert claim(ledger, 5) == ["big"] * 5
    submit(ledger, "small", 1)
    taken = [claim(ledger, 1)[0] for _ in range(3)]
    assert "small" in taken
    submit(ledger, "late", 1)
    assert "late" in claim(ledger, 3), "in one claim, too"
    assert ledger.counts()[KIND].leased == 5 + 3 + 3


def test_a_claim_that_comes_back_short_is_filled_up(ledger: Ledger) -> None:
    submit(ledger, "a", 30)
    submit(ledger, "b", 1)
    assert Counter(claim(ledger, 10)) == {"a": 9, "b": 1}


def test_jobs_without_a_tenant_get_turns(ledger: Ledger) -> None:
    submit(ledger, None, 1)
    submit(ledger, "big", 100)
    taken = [claim(ledger, 1)[0] for _ in range(8)]
    assert "None" in taken


class Counted:
    """Notes the statements of a connection."""

    def __init__(self, run: Any, statements: list[str]) -> None:
        self._run, self._statements = run, statements

    def execute(self, statement: str, parameters: Any) -> Any:
        self._statements.append(statement)
        return self._run.execute(statement, parameters)


def test_a_fair_claim_is_one_statement(postgres_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    for module in (on_postgres, fair):
        turn: Any = module.turn
        monkeypatch.setattr(module, "turn", lambda run, *rest, turn=turn: turn(Counted(run, statements), *rest))
    with open_ledger(postgres_ledger, migrate=True) as ledger:
        submit(ledger, "a", 10)
        submit(ledger, "b", 10)
        for claims in range(1, 9):
            assert claim(ledger, 2)
            assert len(statements) == claims


@pytest.mark.parametrize("kinds", [2, 8])
def test_job_types_with_tenants_do_not_take_turns_from_each_other(ledger: Ledger, kinds: int) -> None:
    names = [f"mail.{n}" for n in range(kinds)]
    for name in names:
        for tenant, count in ((None, 1), ("big", 30), ("small", 4)):
            ledger.submit_many([NewJob(name, f"{tenant}/{n}", tenant=tenant) for n in range(count)])
    taken: dict[str, list[str]] = {name: [] for name in names}
    for _ in range(20):
        for name in names:
            taken[name] += [lease.key.split("/")[0] for lease in ledger.claim({name: 1}, worker="w", fair=True)]
    for name in names:
        assert taken[name][:8].count("small") >= 3, "its tenants take turns"
        assert "None" in taken[name], "jobs without a tenant get a turn"


def test_urgent_jobs_come_first(ledger: Ledger) -> None:
    submit(ledger, "a", 5)
    submit(ledger, "b", 2, priority=-1)
    assert claim(ledger, 2) == ["b", "b"]
    assert claim(ledger, 2) == ["a", "a"]


def test_tenants_with_only_future_jobs_are_skipped(ledger: Ledger) -> None:
    for n in range(300):
        submit(ledger, f"{n:03}", 1, delay=3600)
    submit(ledger, "z", 3)
    assert claim(ledger, 1) == ["z"]
    assert claim(ledger, 5) == ["z", "z"]
    assert claim(ledger, 5) == []


def test_a_fair_turn_settles_and_starts(ledger: Ledger) -> None:
    submit(ledger, "a", 2)
    submit(ledger, "b", 2)
    first = ledger.claim({KIND: 2}, worker="w", fair=True, start=False)
    turn = ledger.turn([first[0].done()], {KIND: 2}, worker="w", fair=True, starts=[first[1]])
    assert len(turn.leases) == 2
    assert [lease.job_id for lease in turn.started] == [first[1].job_id]
    assert not turn.late
    assert ledger.counts()[KIND].done == 1


def test_the_job_has_its_tenant(ledger: Ledger) -> None:
    submitted = ledger.submit(NewJob(KIND, "k", tenant="ann"))
    job = ledger.get(submitted.id)
    assert job is not None
    assert job.tenant == "ann"


@pytest.mark.parametrize("tenant", ["", "a\nb", "x" * 300])
def test_an_invalid_tenant_is_rejected(ledger: Ledger, tenant: str) -> None:
    with pytest.raises(ValueError, match="tenant must"):
        ledger.submit(NewJob(KIND, "k", tenant=tenant))


def test_a_turn_settles_jobs_with_scattered_ids(ledger: Ledger) -> None:
    for tenant in range(30):
        submit(ledger, f"t{tenant}", 8)
    leases = ledger.claim({KIND: 100}, worker="w", fair=True)
    # Every third id: more ranges of ids than the settlement has statements for.
    picked = sorted(leases, key=lambda lease: lease.job_id)[::3]
    turn = ledger.turn([lease.done() for lease in picked], {}, worker="w")
    assert not turn.late
    assert ledger.counts()[KIND].done == len(picked)
    again = ledger.turn([lease.done() for lease in leases], {}, worker="w")
    assert sorted(late.job_id for late in again.late) == [lease.job_id for lease in picked]
    assert ledger.counts()[KIND].done == len(leases)


THREAD_IO = Path("/proc/thread-self/io")


@pytest.mark.skipif(not THREAD_IO.exists(), reason="counts written bytes through /proc")
def test_a_fair_turn_on_sqlite_writes_no_temporary_file(tmp_path: Path) -> None:
    url = sqlite_ledger(tmp_path)
    log = tmp_path / "ledger.db-wal"

    def written_bytes() -> int:
        return int(THREAD_IO.read_text().split("wchar: ")[1].split()[0])

    with open_ledger(url) as ledger:
        jobs = [NewJob(KIND, f"{n}", b"x" * 500, tenant=f"t{n % 100}") for n in range(5000)]
        ledger.submit_many(jobs)
        leases = ledger.claim({KIND: 100}, worker="w", fair=True)
        with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = written_bytes()
        ledger.turn([lease.done() for lease in leases], {KIND: 100}, worker="w", fair=True)
        # More than 64 KiB of pages: from there on SQLite would copy them to a temporary file.
        assert log.stat().st_size > 128 * 1024
        assert written_bytes() - before < 1.1 * log.stat().st_size
