"""A process crashes between any two durable effects of a call, and later processes continue."""

from __future__ import annotations

import pytest
import sqlalchemy
from sqlalchemy import Connection, text

from redrive import App
from redrive.ledger.failpoint import KEY_POINTS, STATUS
from tests.conformance.idempotency.world import age_keys, dies, effect_table, effects, here

INSIDE = ["inside.before_effect", "inside.after_effect"]
IN_CALLER = [f"key.{verb}.in_caller:1:kill" for verb in ("begin", "complete")]
COMMIT = ["caller.before_commit:1:kill", "caller.after_commit:1:kill"]
LEASED = [f"key.{verb}.{step}:1:kill" for verb in ("begin", "complete") for step in ("before_commit", "after_commit")]


def effect(tx: Connection) -> None:
    here("inside.before_effect")
    tx.execute(text("INSERT INTO effect VALUES ('x')"))
    here("inside.after_effect")


def in_transaction(url: str) -> int:
    with App(url) as app:

        @app.once("crash:u:{n}:tx:v1", in_transaction=True)
        def work(tx: Connection, n: int) -> int:
            effect(tx)
            return n

        return work(1)


def in_the_callers(url: str) -> int:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with App(url) as app, engine.begin() as tx, app.claim("crash:u:1:claim:v1", tx=tx) as claim:
        if claim.fresh:
            effect(tx)
            claim.response = 1
        answer: int = claim.response
    engine.dispose()
    return answer


def run_leased(url: str) -> int:
    with App(url) as app:

        @app.once("crash:u:{n}:leased:v1")
        def work(n: int) -> int:
            with app.ledger.begin() as tx:
                effect(tx)
            return n

        return work(1)


def test_every_crash_point_of_a_call_is_reached() -> None:
    reached = {point.partition(":")[0] for point in (*IN_CALLER, *LEASED)}
    assert reached == {point for point in KEY_POINTS if point.split(".")[1] in ("begin", "complete")}


@pytest.mark.req("I-5")
@pytest.mark.parametrize(
    ("work", "at"),
    [(in_transaction, at) for at in (*IN_CALLER, *COMMIT, *INSIDE)] + [(in_the_callers, at) for at in (*IN_CALLER, *INSIDE)],
)
def test_in_a_transaction_the_effect_happens_exactly_once(app: App, url: str, work: object, at: str) -> None:
    assert callable(work)
    effect_table(app)
    assert dies(work, url, at=at) == -9
    assert effects(app) == (at == "caller.after_commit:1:kill")
    # No lease must expire first, because the transaction ended with its process.
    for _ in range(2):
        assert work(url) == 1
        assert effects(app) == 1


@pytest.mark.req("I-3", "I-5")
@pytest.mark.parametrize("at", [*LEASED, *INSIDE, *COMMIT])
def test_under_a_lease_a_crash_repeats_the_effect_at_most_once(app: App, url: str, at: str) -> None:
    """An effect outside of the transaction is repeated for a crash between effect and response."""
    effect_table(app)
    assert dies(run_leased, url, at=at) == -9
    held = app.keys().page(status="processing")
    assert len(held) == (at not in ("key.begin.before_commit:1:kill", "key.complete.after_commit:1:kill"))
    age_keys(app, lease=3600)
    assert run_leased(url) == 1
    assert effects(app) == (2 if at in ("caller.after_commit:1:kill", "key.complete.before_commit:1:kill") else 1)
    assert [record.status for record in app.keys().page()] == ["completed"]


def test_an_exit_is_a_crash(app: App, url: str) -> None:
    effect_table(app)
    assert dies(in_transaction, url, at="key.complete.in_caller:1:exit") == STATUS
    assert in_transaction(url) == 1
    assert effects(app) == 1
