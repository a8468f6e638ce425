"""A connection that is cut before the answer arrives: whether a key was begun or settled is found out, and not guessed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from redrive import App
from redrive.errors import LedgerUnavailable
from redrive.idempotency.keys import Keys
from redrive.idempotency.record import Ident
from tests.conformance.idempotency.world import AT, KEY

HASH = b"1" * 32


def cut_after(verb: Callable[..., Any], url: str, times: int = 1) -> Callable[..., Any]:
    """The verb, executed by the server, and then the connection is cut before its answer is used; so many times."""
    left = [times]

    def cut(run: Any, *args: Any, **kwargs: Any) -> Any:
        answer = verb(run, *args, **kwargs)
        if left[0] > 0:
            left[0] -= 1
            with psycopg.connect(url, autocommit=True) as operator:
                operator.execute("SELECT pg_terminate_backend(%s, 10000)", (run.connection.info.backend_pid,))
            run.execute("SELECT 1")
        return answer

    return cut


@pytest.fixture
def keys(postgres_ledger: str) -> Any:
    with App(postgres_ledger) as app:
        yield app.keys()


@pytest.mark.req("I-3")
def test_a_key_whose_beginning_was_cut_is_the_callers(keys: Keys, postgres_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys._on, "open", cut_after(keys._on.open, postgres_ledger))
    begun = keys.begin(AT, HASH, keep=60)
    assert begun.outcome == "fresh"
    keys.complete(AT, begun.fence, b"1", keep=60)
    assert keys.begin(AT, HASH, keep=60).response == b"1"


@pytest.mark.req("I-3")
def test_once_runs_after_its_beginning_was_cut(postgres_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    with App(postgres_ledger) as app:

        @app.once("shop:{user}:{order}:charge:v1")
        def charge(user: str, order: str) -> str:
            ran.append(order)
            return f"paid {order}"

        on = app.keys()._on
        monkeypatch.setattr(on, "open", cut_after(on.open, postgres_ledger))
        monkeypatch.setattr(on, "settle", cut_after(on.settle, postgres_ledger))
        assert charge("ann", "1") == "paid 1"
        assert charge("ann", "1") == "paid 1"
    assert ran == ["1"]


@pytest.mark.req("I-3")
def test_a_key_that_could_not_be_looked_for_is_free_for_the_next_call(
    keys: Keys, postgres_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys._on, "open", cut_after(keys._on.open, postgres_ledger))
    with monkeypatch.context() as away:
        away.setattr(keys, "_adopted", lambda *_: (_ for _ in ()).throw(LedgerUnavailable("away")))
        with pytest.raises(LedgerUnavailable):
            keys.begin(AT, HASH, keep=60)
    held = keys.find(KEY)
    assert held is not None
    assert held.status == "processing"
    begun = keys.begin(AT, b"2" * 32, keep=60)
    assert begun.outcome == "fresh", "no work was done under it, so another request may have it"
    assert keys.begin(AT, b"2" * 32, keep=60).outcome == "busy"


@pytest.mark.req("I-3")
def test_the_keeper_frees_a_key_with_an_unknown_beginning_for_other_processes(
    postgres_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with App(postgres_ledger) as app, App(postgres_ledger) as elsewhere:
        keys = Keys(app.ledger, lease=30.0)
        monkeypatch.setattr(keys.keeper, "_lease", 0.6)  # how often it looks; the key's own lease stays 30 s
        monkeypatch.setattr("redrive.idempotency.keys.UNKNOWN", 1)
        keys._unknown[Ident("shop", "bob", "older")] = "a holder of before"
        monkeypatch.setattr(keys._on, "open", cut_after(keys._on.open, postgres_ledger))
        with monkeypatch.context() as away:
            away.setattr(keys, "_adopted", lambda *_: (_ for _ in ()).throw(LedgerUnavailable("away")))
            with pytest.raises(LedgerUnavailable):
                keys.begin(AT, HASH, keep=60)
        end = time.monotonic() + 20
        while (begun := elsewhere.keys().begin(AT, b"2" * 32, keep=60)).outcome != "fresh" and time.monotonic() < end:
            time.sleep(0.1)
        assert begun.outcome == "fresh"
        while keys._unknown and time.monotonic() < end:
            time.sleep(0.1)
        assert not keys._unknown
        assert elsewhere.keys().begin(AT, b"2" * 32, keep=60).outcome == "busy", "the other's key is left alone"
        keys.close()


@pytest.mark.req("I-3")
@pytest.mark.parametrize("verb", ["settle", "free"])
def test_an_end_whose_answer_was_lost_is_an_end(
    keys: Keys, postgres_ledger: str, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    begun = keys.begin(AT, HASH, keep=60)
    monkeypatch.setattr(keys._on, verb, cut_after(getattr(keys._on, verb), postgres_ledger))
    if verb == "settle":
        keys.complete(AT, begun.fence, b"1", keep=60)
        assert keys.begin(AT, HASH, keep=60).response == b"1"
    else:
        keys.free(AT, begun.fence)
        assert keys.begin(AT, HASH, keep=60).outcome == "fresh"
