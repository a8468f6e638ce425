"""SQLite with a long-running writer or a full disk: at most a clear error, and no lost or partial data."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redrive.errors import LeaseLost, LedgerUnavailable
from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ledger.db import sqlite

from .oracle import connection, rows


@contextmanager
def written_by_another(url: str) -> Iterator[None]:
    """Hold the write lock of the file. Another connection has the same effect as another process."""
    with connection(url) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_busy_writer_is_waited_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with open_ledger(url, migrate=True) as ledger:
        ledger.submit(NewJob("plain", "before"))
        (lease,) = ledger.claim({"plain": 1}, worker="w")
        through: list[object] = []
        verbs = (
            lambda: ledger.submit(NewJob("plain", "meanwhile")),
            lambda: ledger.settle(lease.done()),
        )
        threads = [threading.Thread(target=lambda verb=verb: through.append(verb())) for verb in verbs]
        with written_by_another(url):
            for thread in threads:
                thread.start()
            assert ledger.find("plain", "before") is not None  # readers do not wait
            assert through == []
        for thread in threads:
            thread.join()
        assert len(through) == 2
        assert ledger.counts()["plain"] == (2, 1, 0, 1, 0, 0, 0, 0, 0)
        assert ledger.imbalance() == []


def test_a_writer_that_never_ends_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    url = f"sqlite:///{tmp_path}/ledger.db"
    with open_ledger(url, migrate=True) as ledger:
        ledger.submit(NewJob("plain", "before"))
        (lease,) = ledger.claim({"plain": 1}, worker="w")
        with written_by_another(url):
            for verb in (
                lambda: ledger.submit(NewJob("plain", "refused")),
                lambda: ledger.submit_many([NewJob("plain", "refused"), NewJob("plain", "too")]),
                lambda: ledger.settle(lease.done()),
                lambda: ledger.turn([lease.done()], {"plain": 1}, worker="w"),
                lambda: ledger.renew([lease]),
                ledger.reap,
                lambda: ledger.maintenance.heartbeat("w"),
                lambda: ledger.prune(0),
            ):
                with pytest.raises(LedgerUnavailable, match="locked"):
                    verb()
        assert ledger.find("plain", "refused") is None
        ledger.settle(lease.done())
        assert ledger.counts()["plain"][:4] == (1, 0, 0, 1)
        assert ledger.imbalance() == []


def no_more_pages(ledger: Ledger, pages: int) -> None:
    """Limit the file to this number of additional pages, like a full disk for this ledger only."""
    with ledger.connections.write.use() as session:
        now = session.raw.execute("PRAGMA page_count").fetchone()[0]
        session.raw.execute(f"PRAGMA max_page_count = {now + pages if pages >= 0 else 2**30}")


@pytest.mark.req("L-8")
def test_a_full_disk_loses_no_job(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with open_ledger(url, migrate=True) as ledger:
        ledger.submit_many([NewJob("plain", f"k{n}", b"x" * 3000) for n in range(20)])
        leases = ledger.claim({"plain": 5}, worker="w")
        no_more_pages(ledger, 0)
        accepted = 0
        with pytest.raises(LedgerUnavailable, match="full"):
            for n in range(1000):
                ledger.submit(NewJob("plain", f"more{n}", b"x" * 3000))
                accepted += 1
        with pytest.raises(LedgerUnavailable, match="full"):
            ledger.submit_many([NewJob("plain", f"many{n}", b"x" * 3000) for n in range(50)])
        for lease in leases[:2]:  # operations without new pages still work
            ledger.settle(lease.done())
        with pytest.raises(LedgerUnavailable, match="full"):
            ledger.turn([lease.done(b"y" * 100_000) for lease in leases[2:]], {"plain": 1}, worker="w")
        assert ledger.imbalance() == []
        assert ledger.counts()["plain"].submitted == 20 + accepted
        assert rows(url, "SELECT count(*) FROM redrive_job WHERE key LIKE 'many%'") == [(0,)]
        assert rows(url, "PRAGMA integrity_check") == [("ok",)]

        no_more_pages(ledger, -1)  # there is space again
        turn = ledger.turn([lease.done(b"y" * 100_000) for lease in leases[2:]], {"plain": 100}, worker="w")
        assert turn.late == []
        assert len(turn.leases) == 15 + accepted
        ledger.settle([lease.done() for lease in turn.leases])
        with pytest.raises(LeaseLost):
            ledger.settle(leases[0].done())
        assert ledger.counts()["plain"].done == 20 + accepted
        assert ledger.imbalance() == []
