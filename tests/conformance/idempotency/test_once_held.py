"""`once` while the function runs: its transaction, its lease, and a late holder."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import Connection, text

from redrive import App
from redrive.errors import KeyBusy, KeyFailed, LeaseLost
from redrive.idempotency.keys import Keys
from redrive.journal import Ring
from tests.conformance.idempotency.world import age_keys, effect_table, effects


@pytest.mark.req("I-5")
def test_effect_and_key_are_one_transaction(app: App) -> None:
    effect_table(app)

    @app.once("billing:{user}:{n}:charge:v1", in_transaction=True)
    def charge(tx: Connection, user: str, n: int) -> int:
        tx.execute(text("INSERT INTO effect VALUES ('charged')"))
        if n < 0:
            raise ConnectionResetError
        if n == 0:
            raise ValueError("never")
        return n

    assert charge("ann", 1) == charge("ann", n=1) == 1
    assert effects(app) == 1
    with pytest.raises(ConnectionResetError):
        charge("ann", -1)
    with pytest.raises(ValueError, match="never"):
        charge("ann", 0)
    with pytest.raises(KeyFailed):
        charge("ann", 0)
    assert effects(app) == 1
    assert [record.status for record in app.keys().page()] == ["failed", "completed"]


def test_a_function_that_ends_its_transaction_fails(app: App) -> None:
    @app.once("billing:ann:{n}:charge:v1", in_transaction=True)
    def charge(tx: Connection, n: int) -> int:
        tx.execute(text("SELECT 1"))
        tx.commit()
        return n

    with pytest.raises(RuntimeError, match="committed or rolled back the transaction"):
        charge(1)


def test_a_nested_transaction(app: App, url: str) -> None:
    """SQLite rejects it, because it would wait for itself. Postgres opens a second transaction."""

    @app.once("billing:ann:{n}:inner:v1")
    def inner(n: int) -> int:
        return n

    @app.once("billing:ann:{n}:outer:v1", in_transaction=True)
    def outer(tx: Connection, n: int) -> int:
        return inner(n)

    @app.once("billing:ann:{n}:outermost:v1", in_transaction=True)
    def outermost(tx: Connection, n: int) -> int:
        return outer(n)

    for nested in (outer, outermost):
        if url.startswith("sqlite"):
            with pytest.raises(RuntimeError, match="this thread is in a transaction of its own on this SQLite ledger"):
                nested(1)
        else:
            assert nested(1) == 1


def test_the_lease_is_renewed_while_the_function_runs(app: App) -> None:
    app.opener._keys = Keys(app.ledger, lease=0.6)

    @app.once("billing:ann:{n}:charge:v1")
    def charge(n: int) -> int:
        time.sleep(1.5)
        with pytest.raises(KeyBusy):
            charge(n)
        return n

    assert charge(1) == 1
    assert sum(thread.name == "redrive-keeper" for thread in threading.enumerate()) == 1


@pytest.mark.req("I-2")
def test_a_late_holder_gets_lease_lost(app: App, redrive_journal: Ring) -> None:
    answers: list[int] = []

    @app.once("billing:ann:{n}:charge:v1")
    def charge(n: int) -> int:
        if not answers:
            answers.append(n)
            age_keys(app, lease=3600)  # as after a long SIGSTOP
            assert charge(n) == 2
            return 1
        return 2

    with pytest.raises(LeaseLost):
        charge(1)
    assert charge(1) == 2
    kinds = [record.kind for record in redrive_journal.records]
    assert (kinds.count("key_taken_over"), kinds.count("key_lost"), kinds.count("key_replayed")) == (1, 1, 1)
    assert {record.fields["idempotency_key"] for record in redrive_journal.records} == {"billing:ann:1:charge:v1"}
