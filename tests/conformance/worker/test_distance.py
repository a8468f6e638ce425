"""A distant ledger on Postgres: a worker needs few round trips, which are counted, not timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from redrive.ledger import Lease, Ledger, open_ledger
from redrive.ledger.model import NewJob
from redrive.worker.worker import Worker
from tests.servers.relay import Relay

from .world import kind, record_log, submit, wait_for_jobs


@pytest.fixture
def relay(postgres_ledger: str, request: pytest.FixtureRequest) -> Iterator[Relay]:
    """A relay before the server, with the delay that the test sets."""
    server = urlsplit(postgres_ledger)
    assert server.port is not None
    delay = getattr(request, "param", None)
    with Relay(server.port, host=server.hostname or "127.0.0.1", delay=delay) as made:
        yield made


@pytest.fixture
def far(postgres_ledger: str, relay: Relay) -> Iterator[Ledger]:
    """The ledger, through the relay."""
    server = urlsplit(postgres_ledger)
    with open_ledger(server._replace(netloc=f"{server.username}@127.0.0.1:{relay.port}").geturl()) as opened:
        yield opened


def trips(relay: Relay, act: Callable[[], object]) -> int:
    """Return the round trips of an operation that has already run on the same connection."""
    act()
    before = relay.flights
    act()
    return relay.flights - before


@pytest.mark.req("L-6")
def test_a_turn_settles_and_claims_in_one_round_trip(relay: Relay, far: Ledger) -> None:
    far.submit_many([NewJob("mail", f"k{number}", max_attempts=3) for number in range(40)])
    leases = far.claim({"mail": 10}, worker="w")

    def turn() -> None:
        nonlocal leases
        leases = far.turn([lease.done() for lease in leases], {"mail": 10}, worker="w").leases
        assert len(leases) == 10

    assert trips(relay, turn) == 1
    assert trips(relay, lambda: far.renew(leases)) == 1


@pytest.mark.req("L-6")
@pytest.mark.parametrize("verb", ["beat", "reap", "unblock"])
def test_upkeep_with_nothing_to_do_is_one_round_trip(relay: Relay, far: Ledger, verb: str) -> None:
    acts: dict[str, Callable[[], object]] = {
        "beat": lambda: far.maintenance.heartbeat("w", {}),
        "reap": far.reap,
        "unblock": far.maintenance.unblock,
    }
    assert trips(relay, acts[verb]) == 1


@pytest.mark.req("L-6", "L-8")
def test_counts_are_folded_in_one_round_trip(relay: Relay, far: Ledger) -> None:
    def fold() -> None:
        far.submit_many([NewJob(name, f"k{time.monotonic_ns()}") for name in ("mail", "post", "wire")])
        assert far.maintenance.fold_counters() == 3

    assert trips(relay, fold) == 3  # submit, counts, failures
    assert far.imbalance() == []
    assert far.maintenance.fold_counters() == 0


@pytest.mark.req("L-6")
@pytest.mark.parametrize("relay", [0.05], indirect=True)
def test_a_worker_far_away_takes_less_than_a_round_trip_for_a_job(relay: Relay, far: Ledger, postgres_ledger: str) -> None:
    with open_ledger(postgres_ledger) as direct:
        ids = submit(direct, "mail", 400, max_attempts=3)
        with Worker(far, [kind("mail", lambda lease: time.sleep(0.002))]):
            wait_for_jobs(direct, *ids[:100])  # by then it knows their duration, and the distance of the ledger
            before = relay.flights
            wait_for_jobs(direct, *ids)
            taken = relay.flights - before
    assert taken < 150


@pytest.mark.req("L-3")
@pytest.mark.parametrize("relay", [0.0], indirect=True)
def test_no_lease_is_lost_at_a_distance(relay: Relay, far: Ledger, postgres_ledger: str) -> None:
    def slow(lease: Lease) -> None:
        time.sleep(2.5)

    relay.delay = 0.2  # not before, because opening a ledger takes many round trips
    with open_ledger(postgres_ledger) as direct, record_log() as records:
        ids = submit(direct, "mail", 4, max_attempts=3)
        with Worker(far, [kind("mail", slow)], lease=2):
            jobs = wait_for_jobs(direct, *ids)
            relay.delay = 0.0
        assert [(job.attempts, job.fence) for job in jobs] == [(1, 1)] * 4
        assert not {"lost_lease", "late"} & {record.kind for record in records}
        assert direct.imbalance() == []
