"""Code and schema of different versions: rejected with the fix, and running workers finish."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from redrive.errors import SchemaMismatch
from redrive.ledger import NewJob, open_ledger
from redrive.ledger.db import schema, secret_names
from redrive.ledger.db.tables import HEAD, VERSION_TABLE

from .oracle import connection, prepare, rows


@pytest.mark.req("L-1")
def test_an_old_worker_rejects_a_newer_schema_and_changes_nothing(url: str) -> None:
    prepare(url)
    with open_ledger(url, migrate=True) as ledger:
        ledger.submit(NewJob("plain", "k"))
    with connection(url) as other:
        other.execute("UPDATE redrive_version SET version_num = '9000'")
    for migrate in (False, True):
        with pytest.raises(SchemaMismatch, match=rf"newer \(revision 9000\) than this code \({HEAD}\); install a newer redrive"):
            open_ledger(url, migrate=migrate)
    assert rows(url, "SELECT version_num FROM redrive_version") == [("9000",)]
    assert rows(url, "SELECT key, state FROM redrive_job") == [("k", 0)]


@pytest.mark.req("L-1")
def test_a_new_worker_rejects_an_older_schema_until_it_is_migrated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(url)
    with monkeypatch.context() as then:
        then.setattr(schema, "HEAD", "0001")
        then.setattr(schema.migrate, "__defaults__", ("0001",))
        then.setattr(secret_names, "learn", lambda _: None)  # a column of a later table
        open_ledger(url, migrate=True).close()
    with pytest.raises(SchemaMismatch, match=r"older \(revision 0001\) than this code .* upgrade it with"):
        open_ledger(url)
    with open_ledger(url, migrate=True) as new:
        new.submit(NewJob("plain", "first"))
        (lease,) = new.claim({"plain": 1}, worker="new")
        new.settle(lease.done())
        assert new.counts()["plain"][:4] == (1, 0, 0, 1)


def test_a_running_worker_continues_while_a_newer_version_migrates(url: str) -> None:
    prepare(url)
    with open_ledger(url, migrate=True) as old:
        old.submit_many([NewJob("plain", "first"), NewJob("plain", "second")])
        (held,) = old.claim({"plain": 1}, worker="old")
        with old.begin() as tx:  # a migration only adds
            tx.execute(text("ALTER TABLE redrive_job ADD COLUMN of_a_later_version integer"))
            tx.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        old.settle(held.done())
        (other,) = old.claim({"plain": 1}, worker="old")
        old.settle(other.done())
        assert old.counts()["plain"][:4] == (2, 0, 0, 2)
        assert old.imbalance() == []
    with pytest.raises(SchemaMismatch, match="newer"):
        open_ledger(url)
