"""Races of validators, control planes and operators, each with its own connections."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import insert, update

from redrive.ledger import Ledger, open_ledger
from redrive.ledger.db.clock import now_on
from redrive.ledger.db.partition_tables import partition, run
from redrive.partitions.model import Verdict
from tests.conformance.partitions.world import AUDIT, World

FULL = os.environ.get("REDRIVE_FULL") == "1"
MANY = 10_000 if FULL else 400
AT_ONCE = 1 if FULL else 5


def at_once(*works: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(120) for future in [pool.submit(work) for work in works]]


@pytest.mark.req("P-6")
def test_four_validators_with_a_hundred_runs_each_of_one_partition(world: World, url: str) -> None:
    """T1: the original implementation recorded 195 of 400."""
    lease = world.lease_one()
    with world.ledger.connections.write.use() as session, session.transaction("partition.claim") as connection:
        now = now_on(session)
        common = {"partition_id": lease.partition_id, "kind": "retry", "state": "lost", "lane": 1, "leased_at": now}
        rows = [{**common, "attempt_no": 2 + n, "run_id": f"run-{n}", "raw_run_id": f"run-{n}"} for n in range(400)]
        connection.execute(insert(run), rows)
        connection.execute(update(partition).values(dispatch_count=401))

    def validate(mine: int) -> None:
        with open_ledger(url) as ledger:
            here = World(ledger)
            for some in range(mine, 400, 4 * AT_ONCE):
                numbers = range(some, min(400, some + 4 * AT_ONCE), 4)
                here.verdict_writer.apply(
                    [Verdict(f"run-{number}", "rejected" if number % 2 else "accepted") for number in numbers]
                )
                here.verdict_writer.apply([Verdict(f"run-{(number + 1) % 400}", "rejected") for number in numbers])

    at_once(*(lambda mine=mine: validate(mine) for mine in range(4)))
    known = world.facts()
    assert known.attempt_count == 400
    assert known.current_run_id is None  # none of them has the lease
    with world.ledger.connections.write.use() as session:
        session.core.execute(update(partition).values(dispatch_count=401))
    world.accept(lease)
    assert world.facts().attempt_count == 401


@pytest.mark.req("P-7")
def test_two_control_planes_lease_each_partition_once(world: World, url: str) -> None:
    """T2."""
    world.backfill(MANY)
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def work(number: int) -> None:
        with open_ledger(url) as ledger:
            here = World(ledger)
            while leases := here.claim(50, worker=f"w{number}"):
                with lock:
                    seen.update(str(lease.partition) for lease in leases)
                if number == 0:
                    continue  # it is killed before it reports
                here.accept(*leases)

    at_once(lambda: work(0), lambda: work(1))
    assert len(seen) == MANY
    assert set(seen.values()) == {1}
    world.pass_time(1000)
    while world.control.recover_expired():
        pass
    left = MANY - world.queries.counts()["crm", "orders"].get("success", 0)
    again: list[str] = []
    while leases := world.claim(500):
        again += [str(lease.partition) for lease in leases]
        world.accept(*leases)
    assert len(set(again)) == len(again) == left
    world.control.maintain()
    assert world.queries.counts() == {("crm", "orders"): {"success": MANY}}


@pytest.mark.req("P-10")
def test_no_lease_begins_after_a_cancel_has_returned(world: World, url: str) -> None:
    """T7."""
    sweep = world.backfill(5000)
    cancelled = threading.Event()
    begun = threading.Event()
    after: list[int] = []
    taken: list[int] = []

    def work() -> None:
        with open_ledger(url) as ledger:
            here = World(ledger)
            while True:
                late = cancelled.is_set()
                leases = here.claim(20)
                begun.set()
                (after if late else taken).append(len(leases))
                if late:
                    return

    def cancel() -> None:
        begun.wait(30)
        world.control.move(sweep, "cancel", **AUDIT)
        cancelled.set()

    at_once(work, work, cancel)
    assert after == [0, 0]
    done = world.queries.progress(sweep)
    assert done is not None
    assert done.active == sum(taken)
    assert done.state == "cancelled"


def test_verdicts_claims_and_operators_do_not_deadlock(world: World, url: str) -> None:
    world.backfill(200, days=2)

    def work(number: int) -> None:
        with open_ledger(url) as ledger:
            here = World(ledger)
            for turn in range(8):
                leases = here.claim(40, worker=f"w{number}")
                here.reject(*leases[::3])
                here.accept(*leases[1::3])
                for lease in leases[2::3]:
                    here.give_back(lease, "stopped")
                if turn % 4 == number:
                    here.control.maintain()

    def operate() -> None:
        with open_ledger(url) as ledger:
            here = World(ledger)
            for number in range(12):
                known = here.queries.get(here.key(f"c{number}"))
                if known is not None:
                    here.control.pause([known.id], **AUDIT)
                    here.control.unpause([known.id], **AUDIT)

    at_once(lambda: work(0), lambda: work(1), operate)
    assert world.queries.imbalance() == []


def test_two_planes_store_a_scheduled_time_once(world: World, url: str, ledger: Ledger) -> None:
    now = ledger.now()

    def fire() -> bool:
        with open_ledger(url) as other:
            here = World(other)
            return here.control.enqueue_scheduled("crm", "orders", now, ["a"], [here.key().logical_date], cron="x") is not None

    assert sorted(at_once(fire, fire)) == [False, True]
    assert len(world.claim()) == 1
