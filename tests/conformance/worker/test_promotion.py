"""A standby is promoted and a virtual address moves to it, while connections to the old primary stay open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest

from redrive.errors import LedgerUnavailable
from redrive.ledger import Lease, NewJob, open_ledger
from redrive.ledger import notify as wake_module
from redrive.worker.worker import Worker
from tests.servers.postgres import postgres_cluster
from tests.servers.process import ServerMissing
from tests.servers.relay import Relay

from .world import kind, submit, until, wait_for_jobs


class Cluster(NamedTuple):
    """A primary, its standby, and the address that leads to one of them."""

    primary: str
    standby: str
    relay: Relay
    address: str

    def fail_over(self) -> None:
        """Make the primary read-only, wait until the standby has everything, promote it and move the address."""
        with (
            psycopg.connect(self.primary, autocommit=True) as old,
            psycopg.connect(self.standby, autocommit=True) as new,
        ):
            old.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            old.execute("SELECT pg_reload_conf()")
            # A transaction that began before may still commit, and the standby must have that too.
            ours = "FROM pg_stat_activity WHERE application_name = 'redrive' AND backend_xid IS NOT NULL"
            until(lambda: old.execute(f"SELECT count(*) {ours}".encode()).fetchone() == (0,))
            written = str(old.execute("SELECT pg_current_wal_flush_lsn()").fetchall()[0][0])
            replayed = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            until(lambda: new.execute(replayed, (written,)).fetchone() == (True,))
            assert new.execute("SELECT pg_promote()").fetchone() == (True,)
        self.relay.lead_to(_port(self.standby))

    def connections_to_the_primary(self) -> int:
        with psycopg.connect(self.primary, autocommit=True) as old:
            row = old.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'redrive'").fetchone()
            assert row is not None
            return int(row[0])


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        try:
            first = stack.enter_context(postgres_cluster())
        except ServerMissing as missing:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no Postgres server: {missing}")
        primary = stack.enter_context(first.running())
        open_ledger(primary, migrate=True).close()
        standby = stack.enter_context(stack.enter_context(postgres_cluster(primary)).running())
        relay = stack.enter_context(Relay(_port(primary)))
        address = urlsplit(primary)._replace(netloc=f"postgres@127.0.0.1:{relay.port}").geturl()
        yield Cluster(primary, standby, relay, address)


def nothing(_lease: Lease) -> None: ...


@pytest.mark.req("L-7")
def test_work_goes_on_at_the_new_primary_without_a_restart(cluster: Cluster) -> None:
    with (
        open_ledger(cluster.address) as ledger,
        open_ledger(cluster.address) as reader,
        open_ledger(cluster.address) as listener,
        Worker(ledger, [kind("mail", nothing)]) as worker,
    ):
        wait_for_jobs(ledger, *submit(ledger, "mail", 10))
        assert reader.counts()["mail"].done == 10
        wake = listener.listen()
        cluster.fail_over()
        assert cluster.connections_to_the_primary() > 0, "the old connections are open"

        again = [ledger.submit(NewJob("mail", f"again {number}")).id for number in range(10)]
        assert [job.state for job in wait_for_jobs(ledger, *again)] == ["done"] * 10
        until(lambda: worker.status.trouble is None and worker.is_healthy, worker.status)
        until(lambda: reader.counts()["mail"].done == 20, "a program that only reads leaves the old primary, too")

        wake._checked_at -= wake_module.CHECK_SECONDS + 1  # type: ignore[attr-defined]  # as if it had listened since then
        with pytest.raises(LedgerUnavailable, match="read-only"):
            wake.wait(60)
        wake.close()
        with psycopg.connect(cluster.standby) as new:
            row = new.execute("SELECT count(*) FROM redrive_job WHERE key LIKE 'again%'").fetchone()
        assert row == (10,)


@pytest.mark.req("L-7")
def test_a_ledger_opened_at_a_standby_keeps_its_connections(cluster: Cluster) -> None:
    with open_ledger(cluster.primary) as writer, Relay(_port(cluster.standby)) as relay:
        writer.submit(NewJob("mail", "a"))
        address = urlsplit(cluster.standby)._replace(netloc=f"postgres@127.0.0.1:{relay.port}").geturl()
        with open_ledger(address) as reader:
            until(lambda: reader.find("mail", "a") is not None)
            made = relay.count
            for _ in range(5):
                assert reader.find("mail", "a") is not None
            assert relay.count == made
