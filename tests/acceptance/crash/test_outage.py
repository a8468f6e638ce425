"""Postgres closes all connections, or restarts: workers continue."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from redrive.ledger import NewJob, open_ledger
from tests.servers.postgres import Cluster, postgres_cluster
from tests.servers.process import ServerMissing
from tests.zygote import Zygote

from .crew import Crew
from .diary import read
from .oracle import connection, prepare

KEYS = {"plain": 100, "own": 100, "paid": 100}
CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A server for this test only."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(postgres_cluster())
        except ServerMissing as missing:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no Postgres server: {missing}")
        yield cluster


@pytest.mark.req("L-8")
def test_repeated_connection_losses_lose_no_job(postgres_once: str, zygote: Zygote, tmp_path: Path) -> None:
    crew = Crew(zygote, postgres_once, tmp_path, lease=2)
    crew.submit(**KEYS)
    workers = [crew.hire() for _ in range(3)]
    crew.until("effect")
    with connection(postgres_once) as operator:
        for _ in range(8):
            operator.execute(CUT)
            time.sleep(0.05)
    crew.finish(*workers)
    assert any(line[0] == "fault" for line in read(crew.diary)), "nobody noticed"
    crew.check(**KEYS)
    with open_ledger(postgres_once) as ledger:
        assert ledger.imbalance() == []


@pytest.mark.req("L-8")
def test_a_server_restart_under_load_loses_no_job(own_cluster: Cluster, zygote: Zygote, tmp_path: Path) -> None:
    with own_cluster.running() as url:
        crew = Crew(zygote, url, tmp_path, lease=2)
        crew.submit(**KEYS)
        workers = [crew.hire() for _ in range(2)]
        crew.until("effect")
    for _ in range(2):
        time.sleep(0.2)  # no server is running
        with own_cluster.running():
            done = len(crew.effects("own"))
            while len(crew.effects("own")) < min(done + 10, KEYS["own"]):
                time.sleep(0.005)
    with own_cluster.running():
        crew.finish(*workers)
        assert any(line[0] == "fault" for line in read(crew.diary)), "nobody noticed"
        crew.check(**KEYS)
        with open_ledger(url) as ledger:
            assert ledger.imbalance() == []


@pytest.mark.req("L-11")
def test_a_ledger_works_normally_after_its_connections_were_cut(postgres_once: str, caplog: pytest.LogCaptureFixture) -> None:
    prepare(postgres_once)
    with open_ledger(postgres_once, migrate=True) as ledger, connection(postgres_once) as operator:
        ledger.submit(NewJob("plain", "first"))  # all connections are open now
        wake = ledger.listen()
        for round_ in range(2):
            operator.execute(CUT)
            assert ledger.submit(NewJob("plain", f"kept{round_}")).created, "on a new connection"
        with pytest.raises(psycopg.OperationalError):
            wake.wait(60)
        wake.close()
        again = ledger.listen()
        ledger.submit(NewJob("plain", "heard"))
        assert again.wait(60)
        again.close()
        assert ledger.counts()["plain"].submitted == 4
    assert not [record for record in caplog.records if record.name.startswith("sqlalchemy")], "no traceback of its pool's"
