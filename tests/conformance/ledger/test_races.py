"""Concurrent sessions, threads and processes."""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from redrive.errors import LeaseLost
from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.jobs.retention import prune_done
from redrive.ledger.model import Lease, Settlement
from tests.conformance.ledger.world import KIND, claim, new, pass_time, session, tally


def at_once(*works: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(60) for future in [pool.submit(work) for work in works]]


@pytest.mark.req("L-2")
def test_done_is_final_even_while_its_settle_is_uncommitted(on_postgres: Ledger, postgres_ledger: str) -> None:
    """§1.1: an index over live jobs alone allows a second job here."""
    on_postgres.submit(*new("a"))
    lease = claim(on_postgres)[0]
    found: list[Any] = []
    with psycopg.connect(postgres_ledger) as first:
        on_postgres.settle(lease.done(), tx=first)
        thread = threading.Thread(target=lambda: found.append(on_postgres.submit(*new("a"))))
        thread.start()
        time.sleep(0.2)
        first.commit()
        thread.join(60)
    assert (found[0].created, found[0].state) == (False, "done")
    assert tally(on_postgres).submitted == 1


@pytest.mark.req("L-2")
def test_done_is_final_even_while_its_job_is_pruned(on_postgres: Ledger) -> None:
    on_postgres.submit(*new("a"))
    on_postgres.settle(claim(on_postgres)[0].done())
    pass_time(on_postgres, 100)
    found: list[Any] = []
    with session(on_postgres) as held, held.transaction("prune"):
        assert prune_done(held, 1, 10) == 1
        thread = threading.Thread(target=lambda: found.append(on_postgres.submit(*new("a"))))
        thread.start()
        time.sleep(0.2)
    thread.join(60)
    assert (found[0].created, found[0].state) == (False, "pruned")


@pytest.mark.req("L-2")
def test_concurrent_submitters_and_workers_never_create_two_jobs_for_a_key(url: str) -> None:
    ledgers = [open_ledger(url) for _ in range(5)]
    stop = time.monotonic() + 2

    def submitting(ledger: Ledger, seed: int) -> int:
        dice, created = random.Random(seed), 0
        while time.monotonic() < stop:
            batch = [str(dice.randrange(100)) for _ in range(dice.randrange(1, 8))]
            created += sum(one.created for one in ledger.submit_many(new(*batch)))
        return created

    def working(ledger: Ledger, name: str) -> int:
        settled: list[Settlement] = []
        done = 0
        while time.monotonic() < stop or settled:
            turn = ledger.turn(settled, {KIND: 5}, worker=name)
            assert turn.late == []
            settled = [lease.done() for lease in turn.leases]
            done += len(settled)
        return done

    created = at_once(
        *(lambda seed=seed: submitting(ledgers[seed], seed) for seed in range(3)),
        lambda: working(ledgers[3], "w3"),
        lambda: working(ledgers[4], "w4"),
    )
    assert sum(created[:3]) == sum(created[3:]) == tally(ledgers[0]).submitted <= 100
    for ledger in ledgers:
        ledger.close()


@pytest.mark.req("L-2", "L-6")
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_each_job_is_claimed_exactly_once(url: str, workers: int) -> None:
    with open_ledger(url) as ledger:
        ledger.submit_many(new(*(str(number) for number in range(400))))

        def working(name: str) -> list[Lease]:
            with open_ledger(url) as own:
                got: list[Lease] = []
                settled: list[Settlement] = []
                while True:
                    turn = own.turn(settled, {KIND: 7}, worker=name)
                    got += turn.leases
                    settled = [lease.done() for lease in turn.leases]
                    if not settled:
                        return got

        got = [lease for leases in at_once(*(lambda at=at: working(f"w{at}") for at in range(workers))) for lease in leases]
        # SKIP LOCKED may find nothing while other sessions hold the remaining rows.
        got += claim(ledger, 1000)
        assert Counter(lease.job_id for lease in got).most_common(1)[0][1] == 1
        assert len(got) == 400


@pytest.mark.req("L-4")
def test_one_of_many_concurrent_settles_wins(url: str) -> None:
    with open_ledger(url) as ledger:
        ledger.submit(*new("a"))
        lease = claim(ledger)[0]

        def settling(at: int) -> bool:
            with open_ledger(url) as own:
                try:
                    own.settle([lease.done(b"%d" % at), lease.dead("x"), lease.again()][at % 3])
                except LeaseLost:
                    return False
                return True

        assert sum(at_once(*(lambda at=at: settling(at) for at in range(6)))) == 1
        assert tally(ledger).late == 5


@pytest.mark.req("L-3")
def test_concurrent_reapers_count_a_crash_once(url: str) -> None:
    with open_ledger(url) as ledger:
        ledger.submit_many(new(*(str(number) for number in range(50))))
        leases = claim(ledger)
        pass_time(ledger, 3600)

        def reaping() -> list[int]:
            with open_ledger(url) as own:
                return own.reap()

        reaped = [job_id for ids in at_once(*[reaping] * 4) for job_id in ids]
        reaped += ledger.reap()
        assert sorted(reaped) == sorted(lease.job_id for lease in leases)
        assert {job.crashes for job in ledger.jobs("ready")} == {1}


@pytest.mark.req("L-2")
def test_concurrent_replays_create_one_job(url: str) -> None:
    with open_ledger(url) as ledger:
        ledger.submit_many(new("a", "b"))
        ledger.settle([lease.dead("x") for lease in claim(ledger)])
        ids = [letter.id for letter in ledger.dead_letters()]

        def replaying(at: int) -> int:
            with open_ledger(url) as own:
                return len(own.replay(ids if at % 2 else ids[::-1], actor=f"a{at}", because="x").done)

        assert sum(at_once(*(lambda at=at: replaying(at) for at in range(4)))) == 2
        assert ledger.audit_broken() is None
        assert tally(ledger).ready == 2


@pytest.mark.req("O-5")
def test_concurrent_audit_entries_form_one_chain(url: str) -> None:
    def recording(at: int) -> None:
        with open_ledger(url) as own:
            for number in range(10):
                own.record(actor=f"a{at}", action="act", because="so", what={"n": number})

    at_once(*(lambda at=at: recording(at) for at in range(4)))
    with open_ledger(url) as ledger:
        assert [entry.number for entry in ledger.audit()] == list(range(1, 41))
        assert ledger.audit_broken() is None


def test_folding_during_writes_loses_no_counts(on_postgres: Ledger, postgres_ledger: str) -> None:
    def writing(at: int) -> None:
        with open_ledger(postgres_ledger) as own:
            for number in range(40):
                own.submit(*new(f"{at}-{number}", kind=f"k{number % 3}"))

    def folding() -> None:
        with open_ledger(postgres_ledger) as own:
            for _ in range(40):
                own.maintenance.fold_counters()

    at_once(lambda: writing(1), lambda: writing(2), folding, folding)
    assert sum(tally.submitted for tally in on_postgres.counts().values()) == 80


def test_keys_in_opposite_order_do_not_deadlock(on_postgres: Ledger, postgres_ledger: str) -> None:
    """Trap 7: unsorted, this is a deadlock every time."""

    def submitting(names: list[str]) -> None:
        with open_ledger(postgres_ledger) as own:
            for round_ in range(30):
                own.submit_many(new(*(f"{name}-{round_}" for name in names)))

    names = [f"k{number}" for number in range(20)]
    at_once(lambda: submitting(names), lambda: submitting(names[::-1]))
    assert tally(on_postgres).submitted == 600


def test_settlements_in_opposite_order_do_not_deadlock(on_postgres: Ledger, postgres_ledger: str) -> None:
    on_postgres.submit_many(new(*(str(number) for number in range(30))))
    leases = claim(on_postgres)

    def settling(ordered: list[Lease]) -> int:
        with open_ledger(postgres_ledger) as own:
            try:
                own.settle([lease.again(error="x") for lease in ordered])
            except LeaseLost as lost:
                return str(lost).count("fence")
        return 0

    assert sum(at_once(lambda: settling(leases), lambda: settling(leases[::-1]))) == 30


def test_sqlite_waits_for_other_writers(on_sqlite: Ledger) -> None:
    """Trap 9: with a deferred BEGIN this is `database is locked` immediately, despite any timeout."""
    file = on_sqlite.url.removeprefix("sqlite:///")
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.3, lambda: other.execute("COMMIT")).start()
    start = time.perf_counter()
    on_sqlite.submit(*new("a"))
    assert time.perf_counter() - start > 0.2
    time.sleep(0.05)
    other.close()


def _in_child(ledger: Ledger, at: int, out: Any) -> None:
    try:
        ledger.submit_many(new(*(f"{at}-{number}" for number in range(20))))
        out.put(len(ledger.claim({KIND: 5}, worker=f"child{at}")))
    except Exception as problem:
        out.put(repr(problem))


@pytest.mark.req("L-11")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_children_get_their_own_connections(shared: Ledger) -> None:
    shared.submit(NewJob(KIND, "parent"))
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    children = [context.Process(target=_in_child, args=(shared, at, out)) for at in range(3)]
    for child in children:
        child.start()
    assert [out.get(timeout=30) for _ in children] == [5, 5, 5]
    for child in children:
        child.join(60)
    shared.submit(NewJob(KIND, "parent again"))
    assert tally(shared)[:3] == (62, 47, 15)


@pytest.mark.req("L-11")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_cannot_use_a_ledger_in_memory() -> None:
    with open_ledger("sqlite://") as ledger:
        context = multiprocessing.get_context("fork")
        out = context.Queue()
        child = context.Process(target=_in_child, args=(ledger, 1, out))
        child.start()
        assert "belongs to the process that opened it" in out.get(timeout=30)
        child.join(60)
