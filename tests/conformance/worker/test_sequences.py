"""Sequences under load: several submitters and workers, in order, one at a time, none stuck (Q-7)."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict

import pytest

from redrive.ledger import Lease, Ledger, NewJob, open_ledger
from redrive.ledger.store import sequences
from redrive.ledger.store.postgres import sequences as on_postgres
from redrive.worker.worker import Worker

from .world import kind, wait_for_jobs

pytestmark = pytest.mark.req("Q-7")
SEQUENCES = 5


class Watch:
    """Records the order of the jobs of each sequence, and whether two of them overlap."""

    def __init__(self, *, fails: float = 0.0) -> None:
        self.order: dict[str, list[int]] = defaultdict(list)
        self.overlaps: list[str] = []
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self._random = random.Random(7)
        self._fails = fails

    def __call__(self, lease: Lease) -> None:
        sequence = lease.key.split("/")[0]
        with self._lock:
            if sequence in self._running:
                self.overlaps.append(lease.key)
            self._running.add(sequence)
            fails = self._random.random() < self._fails
        time.sleep(0.001)
        with self._lock:
            self._running.discard(sequence)
            if not fails:
                self.order[sequence].append(lease.job_id)
        if fails:
            raise ConnectionError("down")


def submit_some(url: str, name: str, count: int, ids: list[int]) -> None:
    """Submit jobs of all sequences: alone, together, and in a transaction."""
    with open_ledger(url) as ledger:
        for n in range(count):
            jobs = [NewJob("apply", f"s{s}/{name}-{n}", sequence=f"s{s}", max_attempts=3) for s in range(SEQUENCES)]
            if n % 3 == 0:
                ids += [ledger.submit(job).id for job in jobs]
            elif n % 3 == 1:
                ids += [job.id for job in ledger.submit_many(jobs)]
            else:
                with ledger.begin() as tx:
                    ids += [job.id for job in ledger.submit_many(jobs, tx=tx)]


@pytest.mark.parametrize("fails", [0.0, 0.1])
def test_concurrent_submitters_and_workers_keep_each_sequence_in_order(shared: Ledger, url: str, fails: float) -> None:
    watch, ids = Watch(fails=fails), list[int]()
    sequenced = kind("apply", watch, is_sequenced=True, parks_on_outage=False)
    submitters = [threading.Thread(target=submit_some, args=(url, f"t{n}", 9, ids)) for n in range(3)]
    with open_ledger(url) as theirs, Worker(shared, [sequenced]), Worker(theirs, [sequenced]):
        for thread in submitters:
            thread.start()
        for thread in submitters:
            thread.join()
        wait_for_jobs(shared, *ids)
    assert watch.overlaps == []
    assert not shared.jobs("held")
    if not fails and shared.connections.on_sqlite:
        assert all(order == sorted(order) for order in watch.order.values())
    assert sum(map(len, watch.order.values())) == sum(shared.counts()["apply"][3:4])


def test_one_submitter_gets_its_order(shared: Ledger, url: str) -> None:
    watch = Watch()
    ids = [job.id for job in shared.submit_many([NewJob("apply", f"s/{n}", sequence="s") for n in range(40, 0, -1)])]
    sequenced = kind("apply", watch, is_sequenced=True)
    with open_ledger(url) as theirs, Worker(shared, [sequenced]), Worker(theirs, [sequenced]):
        wait_for_jobs(shared, *ids)
    assert watch.overlaps == []
    assert watch.order["s"] == ids


def test_an_open_transaction_does_not_keep_other_sequences_from_repair(shared: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    if shared.connections.on_sqlite:
        pytest.skip("SQLite has one writer at a time, and needs no marks")
    monkeypatch.setattr(on_postgres, "MAX_MARKS", 2)
    first, second = shared.submit_many([NewJob("apply", f"x/{n}", sequence="x") for n in range(2)])
    with shared.connections.write.use() as session:
        session.core.exec_driver_sql(f"UPDATE redrive_job SET state = 7 WHERE id = {first.id}")
        for sequence in ("s", "s", "s", "x"):
            session.core.exec_driver_sql(f"INSERT INTO redrive_sequence_mark (kind, sequence) VALUES ('apply', '{sequence}')")
        with shared.begin() as tx:
            shared.submit(NewJob("apply", "s/1", sequence="s"), tx=tx)  # locks the sequence until the transaction ends
            released = [sequences.repair(session) for _ in range(3)]
            query = "SELECT sequence FROM redrive_sequence_mark"
            assert set(session.core.exec_driver_sql(query).scalars()) == {"s"}, "it is looked at again later"
        assert sum(released) == 1
        while sequences.repair(session) or session.core.exec_driver_sql(query).first():
            pass
    states = [job.state for id_ in (first.id, second.id) if (job := shared.get(id_)) is not None]
    assert states == ["ready", "held"]


def test_a_mark_is_repaired_by_the_workers(shared: Ledger) -> None:
    if shared.connections.on_sqlite:
        pytest.skip("SQLite has one writer at a time, and needs no marks")
    with shared.connections.write.use() as session:
        first, second = shared.submit_many([NewJob("apply", f"s/{n}", sequence="s") for n in range(2)])
        # As a submitter with an old snapshot leaves it: held behind a job that has ended.
        session.core.exec_driver_sql(f"UPDATE redrive_job SET state = 7 WHERE id = {first.id}")
        session.core.exec_driver_sql("INSERT INTO redrive_sequence_mark (kind, sequence) VALUES ('apply', 's')")
    watch = Watch()
    with Worker(shared, [kind("apply", watch, is_sequenced=True)]):
        wait_for_jobs(shared, first.id, second.id)
    assert watch.order["s"] == [first.id, second.id]
