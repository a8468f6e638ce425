"""Asynchronous failover: the new primary lost the last commits and assigns their ids and fences again."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest

from redrive.errors import LeaseLost
from redrive.idempotency.keys import Keys
from redrive.idempotency.record import KeyId
from redrive.ledger import Ledger, open_ledger
from redrive.ledger.model import Lease
from redrive.worker.capacity import InFlight
from tests.ledgers import sqlite_ledger

from .world import KIND, claim, new, session, tally

OLD, FRESH = "the-old-one", "fresh"


class Pair(NamedTuple):
    """The old primary, and the standby that was promoted without its last commits."""

    old: Ledger
    promoted: Ledger


@pytest.fixture(params=["sqlite", "postgres"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """A ledger with a history, and an earlier copy of it."""
    copied = _sqlite_copy if request.param == "sqlite" else _postgres_copy
    for url, copy in copied(request, tmp_path):
        with open_ledger(url) as old, open_ledger(copy) as promoted:
            yield Pair(old, promoted)
            assert promoted.imbalance() == []


def _with_history(url: str) -> None:
    with open_ledger(url, migrate=True) as ledger:
        ledger.submit_many(new("before-1", "before-2"))
        for lease in claim(ledger):
            ledger.settle(lease.done())


def _sqlite_copy(_request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    url = sqlite_ledger(tmp_path)
    _with_history(url)
    copy = tmp_path / "promoted.db"
    with sqlite3.connect(tmp_path / "ledger.db") as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    yield url, f"sqlite:///{copy}"


def _postgres_copy(request: pytest.FixtureRequest, _tmp_path: Path) -> Iterator[tuple[str, str]]:
    url = request.getfixturevalue("postgres_db")
    _with_history(url)
    server, name = request.getfixturevalue("postgres"), f"promoted_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{urlsplit(url).path[1:]}"'.encode())
        try:
            yield url, urlsplit(server)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def _same_number(pair: Pair) -> tuple[Lease, Lease]:
    """The lease of a job that the new primary has lost, and the lease of another job with the same id and fence."""
    pair.old.submit_many(new(OLD))
    (lost,) = claim(pair.old, worker="late")
    pair.promoted.submit_many(new(FRESH))
    (held,) = claim(pair.promoted, worker="new")
    assert lost[:2] == held[:2]
    assert (lost.key, held.key) == (OLD, FRESH)
    return lost, held


def _settle_fails(promoted: Ledger, lost: Lease) -> None:
    with pytest.raises(LeaseLost):
        promoted.settle(lost.done(b"another job's result"))


def _given_back(promoted: Ledger, lost: Lease) -> None:
    with pytest.raises(LeaseLost):
        promoted.settle([lost.release()])


def _settled_in_a_turn(promoted: Ledger, lost: Lease) -> None:
    assert promoted.turn([lost.done()], {}, worker="late").late == [lost.done()]


@pytest.mark.req("L-4")
@pytest.mark.parametrize("settle", [_settle_fails, _given_back, _settled_in_a_turn])
def test_a_lease_of_the_old_primary_settles_no_other_keys_job(pair: Pair, settle: Callable[[Ledger, Lease], None]) -> None:
    lost, held = _same_number(pair)
    settle(pair.promoted, lost)
    assert tally(pair.promoted).late == 1
    job = pair.promoted.find(KIND, FRESH)
    assert job is not None
    assert (job.state, job.worker, job.result) == ("leased", "new", None)
    pair.promoted.settle(held.done(b"its own result"))
    job = pair.promoted.find(KIND, FRESH)
    assert job is not None
    assert (job.state, job.result) == ("done", b"its own result")


@pytest.mark.req("L-4")
def test_a_lease_of_the_old_primary_settles_nothing_in_a_callers_transaction(pair: Pair) -> None:
    lost, held = _same_number(pair)
    with pytest.raises(LeaseLost), pair.promoted.begin() as transaction:
        pair.promoted.settle(lost.done(), tx=transaction)
    pair.promoted.settle(held.done())


@pytest.mark.req("L-4")
def test_many_leases_of_the_old_primary_are_late(pair: Pair) -> None:
    """Leases whose claim was copied are valid. The others are late in any settlement."""
    keys = [f"{number:03}" for number in range(30)]
    pair.old.submit_many(new(*keys))
    lost = claim(pair.old, worker="late")
    pair.promoted.submit_many(new(*(f"fresh-{key}" for key in keys)))
    held = claim(pair.promoted, worker="new")
    assert [lease[:2] for lease in lost] == [lease[:2] for lease in held]
    mixed = [one for both in zip((lease.done() for lease in lost), (lease.done() for lease in held), strict=True) for one in both]
    assert pair.promoted.turn(mixed, {}, worker="late").late == mixed[::2]
    assert (tally(pair.promoted).done, tally(pair.promoted).late) == (32, 30)


@pytest.mark.req("L-4")
def test_a_lease_of_the_old_primary_is_neither_renewed_nor_started(pair: Pair) -> None:
    pair.old.submit_many(new(OLD))
    (lost,) = claim(pair.old, worker="late", start=False)
    pair.promoted.submit_many(new(FRESH))
    (held,) = claim(pair.promoted, worker="new", start=False)
    assert pair.promoted.renew([lost, held]) == [lost]
    assert [lease.key for lease in pair.promoted.start([lost, held])] == [FRESH]


@pytest.mark.req("L-4")
def test_a_worker_distinguishes_leases_with_the_same_id_and_fence(pair: Pair) -> None:
    """After the failover one worker may hold both. The end of the first must not drop the second."""
    lost, held = _same_number(pair)
    in_flight = InFlight()
    kind: object = None
    in_flight.add([(kind, lost), (kind, held)])  # type: ignore[list-item]  # a job type is only passed on
    assert in_flight.remove([lost]) == [lost]
    assert [one.lease.key for one in in_flight.all()] == [FRESH]


@pytest.mark.req("I-2")
def test_two_holders_of_one_idempotency_record_never_share_a_fence(pair: Pair) -> None:
    """Both primaries take over from the same holder, with clocks that are behind."""
    ident = KeyId("billing", "ann", "billing:ann:o-1:charge:v1")
    fences = set()
    for ledger in pair:
        with session(ledger) as held:
            moment = "0" if held.sqlite else "'2020-01-01Z'"
            held.raw.execute(
                "INSERT INTO redrive_key (domain, user_id, key, status, fence, lease_until, expires_at, created_at, updated_at) "
                f"VALUES ('billing', 'ann', '{ident.key}', 'processing', {2**60}, {moment}, {moment}, {moment}, {moment})"
            )
        keys = Keys(ledger)
        begun = keys.begin(ident, keep=60)
        assert begun.outcome == "fresh"
        keys.free(ident, begun.fence)
        keys.renewer.close()
        fences.add(begun.fence)
    assert len(fences) == 2
