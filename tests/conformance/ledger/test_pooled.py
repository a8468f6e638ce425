"""A pooler in transaction mode: the server drops all session state between two transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from redrive import App
from redrive.errors import LedgerError
from redrive.ledger import Ledger, NewJob, open_ledger


@pytest.fixture
def forgetful(postgres_db: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """Reset the session after each statement outside of a transaction and after each transaction, like
    `server_reset_query_always`.
    """
    run: Any = psycopg.Cursor.execute

    def execute(cursor: Any, *given: Any, **more: Any) -> Any:
        found = run(cursor, *given, **more)
        if not cursor.connection.info.transaction_status:
            cursor.connection.pgconn.exec_(b"DISCARD ALL")
        return found

    monkeypatch.setattr(psycopg.Cursor, "execute", execute)
    with open_ledger(f"{postgres_db}?pool_mode=transaction", migrate=True) as ledger:
        yield ledger


def test_the_pooler_of_this_test_resets_sessions(postgres_db: str) -> None:
    with open_ledger(postgres_db, migrate=True) as ledger, ledger.connections.write.use() as session:
        for _ in range(10):
            session.run.execute("SELECT %s::int", (1,)).fetchall()
        session.raw.pgconn.exec_(b"DISCARD ALL")
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            session.run.execute("SELECT %s::int", (1,)).fetchall()


@pytest.mark.req("L-1")
def test_all_jobs_are_done_behind_a_pooler(forgetful: Ledger) -> None:
    done = []
    with App(forgetful) as app:

        @app.command("mail", key="mail:{n}:x:send:v1")
        def mail(n: int) -> int:
            return n

        @app.once("shop:{n}:x:charge:v1")
        def charge(n: int) -> int:
            done.append(n)
            return n

        with app.worker(threads=2):
            jobs = [mail.submit(n) for n in range(20)]
            assert [job.result(timeout=60) for job in jobs] == list(range(20))
        assert [charge(n) for n in (1, 2, 1, 2)] == [1, 2, 1, 2]
    assert done == [1, 2]
    assert forgetful.imbalance() == []


def test_no_session_state_is_left_for_other_clients(forgetful: Ledger) -> None:
    forgetful.submit(NewJob("mail", "mail:ann:1:send:v1"))
    with forgetful.connections.write.use() as session:
        assert session.raw.execute("SHOW enable_seqscan").fetchone() == ("on",)


@pytest.mark.req("L-1")
def test_submissions_of_other_processes_are_polled(forgetful: Ledger, postgres_db: str) -> None:
    def mail(n: int) -> int:
        return n

    wake = forgetful.listen()
    with App(forgetful) as app, open_ledger(f"{postgres_db}?pool_mode=transaction") as other, App(other) as theirs:
        ours = app.command("mail", key="mail:{n}:x:send:v1")(mail)
        with app.worker(threads=1):
            assert ours.submit(1).result(timeout=60) == 1
            assert wake.wait(0), "of this process it is told"
            assert theirs.command("mail", key="mail:{n}:x:send:v1")(mail).submit(2).result(timeout=60) == 2
            assert not wake.wait(0), "of others it is not: the worker has looked"
    wake.close()


def test_operations_that_need_their_own_session_are_rejected(forgetful: Ledger) -> None:
    with pytest.raises(LedgerError, match="counts cannot be corrected through a pooler in transaction mode; pass the address of"):
        forgetful.recount(actor="ann", because="x")
