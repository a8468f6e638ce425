"""A connection is lost before the result arrives: the caller finds out whether the statement ran."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from redrive import App
from redrive.errors import LedgerUnavailable
from redrive.idempotency.keys import Keys
from redrive.idempotency.record import KeyId
from tests.conformance.idempotency.world import AT, KEY

HASH = b"1" * 32


def cut_after(method: Callable[..., Any], url: str, times: int = 1) -> Callable[..., Any]:
    """Return a method that runs on the server and then loses its connection, this number of times."""
    remaining = [times]

    def cut(run: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(run, *args, **kwargs)
        if remaining[0] > 0:
            remaining[0] -= 1
            with psycopg.connect(url, autocommit=True) as operator:
                operator.execute("SELECT pg_terminate_backend(%s, 10000)", (run.connection.info.backend_pid,))
            run.execute("SELECT 1")
        return result

    return cut


@pytest.fixture
def keys(postgres_ledger: str) -> Any:
    with App(postgres_ledger) as app:
        yield app.keys()


@pytest.mark.req("I-3")
def test_a_key_begun_on_a_lost_connection_belongs_to_the_caller(
    keys: Keys, postgres_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys._store, "insert", cut_after(keys._store.insert, postgres_ledger))
    begun = keys.begin(AT, HASH, keep=60)
    assert begun.outcome == "fresh"
    keys.complete(AT, begun.fence, b"1", keep=60)
    assert keys.begin(AT, HASH, keep=60).response == b"1"


@pytest.mark.req("I-3")
def test_once_runs_once_if_connections_are_lost(postgres_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    with App(postgres_ledger) as app:

        @app.once("shop:{user}:{order}:charge:v1")
        def charge(user: str, order: str) -> str:
            ran.append(order)
            return f"paid {order}"

        store = app.keys()._store
        monkeypatch.setattr(store, "insert", cut_after(store.insert, postgres_ledger))
        monkeypatch.setattr(store, "settle", cut_after(store.settle, postgres_ledger))
        assert charge("ann", "1") == "paid 1"
        assert charge("ann", "1") == "paid 1"
    assert ran == ["1"]


@pytest.mark.req("I-3")
def test_an_unconfirmed_key_is_free_for_the_next_call(keys: Keys, postgres_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys._store, "insert", cut_after(keys._store.insert, postgres_ledger))
    with monkeypatch.context() as away:
        away.setattr(keys, "_read_record", lambda *_: (_ for _ in ()).throw(LedgerUnavailable("away")))
        with pytest.raises(LedgerUnavailable):
            keys.begin(AT, HASH, keep=60)
    held = keys.find(KEY)
    assert held is not None
    assert held.status == "processing"
    begun = keys.begin(AT, b"2" * 32, keep=60)
    assert begun.outcome == "fresh", "no work was done under it, so another request may have it"
    assert keys.begin(AT, b"2" * 32, keep=60).outcome == "busy"


@pytest.mark.req("I-3")
def test_the_renewer_frees_unconfirmed_keys(postgres_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with App(postgres_ledger) as app, App(postgres_ledger) as elsewhere:
        keys = Keys(app.ledger, lease=30.0)
        monkeypatch.setattr(keys.renewer, "_lease", 0.6)  # its interval; the lease of the key stays 30 s
        monkeypatch.setattr("redrive.idempotency.keys.MAX_UNCONFIRMED", 1)
        keys._unconfirmed[KeyId("shop", "bob", "older")] = "a holder of before"
        monkeypatch.setattr(keys._store, "insert", cut_after(keys._store.insert, postgres_ledger))
        with monkeypatch.context() as away:
            away.setattr(keys, "_read_record", lambda *_: (_ for _ in ()).throw(LedgerUnavailable("away")))
            with pytest.raises(LedgerUnavailable):
                keys.begin(AT, HASH, keep=60)
        end = time.monotonic() + 20
        while (begun := elsewhere.keys().begin(AT, b"2" * 32, keep=60)).outcome != "fresh" and time.monotonic() < end:
            time.sleep(0.1)
        assert begun.outcome == "fresh"
        while keys._unconfirmed and time.monotonic() < end:
            time.sleep(0.1)
        assert not keys._unconfirmed
        assert elsewhere.keys().begin(AT, b"2" * 32, keep=60).outcome == "busy", "the key of the other process is unchanged"
        keys.close()


@pytest.mark.req("I-3")
@pytest.mark.parametrize("verb", ["settle", "free"])
def test_settling_on_a_lost_connection_succeeds(
    keys: Keys, postgres_ledger: str, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    begun = keys.begin(AT, HASH, keep=60)
    monkeypatch.setattr(keys._store, verb, cut_after(getattr(keys._store, verb), postgres_ledger))
    if verb == "settle":
        keys.complete(AT, begun.fence, b"1", keep=60)
        assert keys.begin(AT, HASH, keep=60).response == b"1"
    else:
        keys.free(AT, begun.fence)
        assert keys.begin(AT, HASH, keep=60).outcome == "fresh"
