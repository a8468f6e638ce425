"""The data of one user in a ledger, and its erasure."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from redrive import App, Event, Stop, correlate, retry
from redrive.ledger import Ledger
from redrive.ops import Operator

ANN = "ann-4711"


def dpo(ledger: Ledger) -> Operator:
    """The data protection officer."""
    return Operator(ledger, actor="dpo")


@pytest.fixture
def app(ledger: Ledger) -> Iterator[App]:
    made = App(ledger)

    @made.command("mail", key="shop:{user}:{order}:mail:v1", retry=retry(max_attempts=1))
    def mail(order: str, user: str) -> str:
        if order == "bad":
            raise Stop(f"no such address: {user}@example.org")
        return f"to {user}"

    @made.on("order.placed", name="stock")
    def stock(event: Event[dict[str, str]]) -> None: ...

    @made.once("shop:{user}:{order}:charge:v1")
    def charge(order: str, user: str) -> str:
        return f"{user} paid"

    with made:
        for user in (ANN, "bob"):
            with correlate(user_id=user):
                mail.submit("o-1", user=user)
                mail.submit("bad", user=user)
                made.receive(Event("order.placed", {"user": user}, id=f"e-{user[:3]}"))
                charge("o-1", user)
        work_until_ended(made, 6)
        yield made


def work_until_ended(app: App, many: int) -> None:
    """Work until this number of jobs has ended."""
    with app.worker(threads=1) as worker:
        while worker.status.done + worker.status.dead < many:
            time.sleep(0.005)


def everything(app: App) -> str:
    """Return all values of all tables."""
    with app.ledger.reading() as connection:
        tables = [name for name in inspect(connection).get_table_names() if name.startswith("redrive_")]
        return "\n".join(str(row) for name in tables for row in connection.execute(text(f'SELECT * FROM "{name}"')))


def test_an_erasure_removes_all_data_of_the_user_and_none_of_others(app: App) -> None:
    assert ANN in everything(app)
    before = everything(app).count("bob")
    plan = dpo(app.ledger).user_data.plan_erasure(ANN)
    assert (plan.jobs, plan.letters, plan.events, plan.keys, plan.busy) == (3, 1, 1, 1, ())
    assert ANN in everything(app)  # a plan changes nothing
    dpo(app.ledger).user_data.erase(plan, because="request 1")
    left = everything(app)
    assert ANN not in left
    assert left.count("bob") == before
    assert dpo(app.ledger).user_data.plan_erasure(ANN).count == 0
    assert app.ledger.imbalance() == []
    operator = Operator(app, actor="dpo")
    assert operator.audit.verify().holds
    assert {(one.actor, one.action, one.because) for one in operator.audit.find()} == {("dpo", "user.erase", "request 1")}


def test_queued_jobs_are_erased_after_they_end(app: App) -> None:
    with correlate(user_id=ANN):
        app.receive(Event("order.placed", {"user": ANN}, id="e-2"))
    plan = dpo(app.ledger).user_data.plan_erasure(ANN)
    assert len(plan.busy) == 1
    dpo(app.ledger).user_data.erase(plan, because="request 1")
    assert app.ledger.counts()["stock"].ready == 1
    work_until_ended(app, 1)
    again = dpo(app.ledger).user_data.plan_erasure(ANN)
    assert (again.jobs, again.busy) == (1, ())
    dpo(app.ledger).user_data.erase(again, because="request 1")
    assert ANN not in everything(app)
    assert app.ledger.imbalance() == []


def test_a_user_with_the_name_of_a_source_erases_none_of_its_events(app: App) -> None:
    app.receive(Event("order.placed", {"user": "bob"}, id="e-3", source="zoe"))
    work_until_ended(app, 1)
    assert dpo(app.ledger).user_data.plan_erasure("zoe").jobs == 0


def test_a_user_with_a_similar_name_is_not_erased(app: App) -> None:
    assert dpo(app.ledger).user_data.plan_erasure("ann").count == 0
    assert dpo(app.ledger).user_data.plan_erasure("%").count == 0
    with pytest.raises(ValueError, match="whose data"):
        dpo(app.ledger).user_data.plan_erasure(" ")


def mention(app: App, user: str) -> None:
    """The name in every other text column of the ledger."""
    ledger = app.ledger
    (letter,) = [one for one in ledger.dead_letters() if user in one.key]
    ledger.replay([letter.id], actor=user, because=f"asked by {user}")
    work_until_ended(app, 1)
    ledger.record(actor="ben", action="keys.release", because="why", what={"key": f"shop:{user}:o-1:charge:v1"})
    ledger.record(actor="ben", action="dead.export", because=f"for {user}", what={})
    again = [one.id for one in ledger.dead_letters() if one.status == "pending"]
    ledger.sweeps.begin("discard", again, actor=user, because=f"of {user}", selection={"error": f"no such address: {user}"})
    with correlate(user_id=user):
        app.receive(Event("order.placed", {"user": user}, id=f"order-of:{user}"))
    work_until_ended(app, 1)
    with ledger.begin() as connection:
        day = "'2026-01-31'"
        now = "0" if ledger.connections.on_sqlite else "now()"
        connection.exec_driver_sql(
            "INSERT INTO redrive_partition (source, query_name, logical_date, customer_id, error, updated_at) "
            f"VALUES ('crm', 'orders', {day}, '{user}', '{user} has no rows', {now})"
        )
        connection.exec_driver_sql(
            "INSERT INTO redrive_item (batch, item, reason, created_at, updated_at) "
            f"VALUES ('mails', 'to:{user}', 'refused by {user}', {now}, {now})"
        )


def test_no_mention_is_left_in_rows_or_files(app: App) -> None:
    mention(app, ANN)
    operator = Operator(app, actor="dpo")
    anchor = operator.audit.verify().anchor
    dpo(app.ledger).user_data.erase(dpo(app.ledger).user_data.plan_erasure(ANN), because=f"request of {ANN}")
    left = everything(app)
    assert ANN not in left, [line for line in left.splitlines() if ANN in line]
    assert "bob" in left
    assert dpo(app.ledger).user_data.plan_erasure(ANN).count == 0
    assert app.ledger.imbalance() == []
    assert operator.audit.verify(anchor).holds, "anchors that were noted before still hold"
    if app.ledger.connections.on_sqlite:
        file = Path(app.ledger.connections.address.target)
        for path in file.parent.glob(f"{file.name}*"):
            assert ANN.encode() not in path.read_bytes(), path


def test_an_entry_changed_after_an_erasure_is_detected(app: App) -> None:
    mention(app, ANN)
    dpo(app.ledger).user_data.erase(dpo(app.ledger).user_data.plan_erasure(ANN), because="request 1")
    operator = Operator(app, actor="dpo")
    assert operator.audit.verify().holds
    with app.ledger.begin() as connection:
        connection.exec_driver_sql("UPDATE redrive_audit SET actor = 'eve' WHERE actor LIKE 'erased-%%'")
    assert not operator.audit.verify().holds


def test_a_pseudonym_cannot_be_guessed_from_the_name(app: App) -> None:
    dpo(app.ledger).user_data.erase(dpo(app.ledger).user_data.plan_erasure(ANN), because="request 1")
    dpo(app.ledger).user_data.erase(dpo(app.ledger).user_data.plan_erasure("bob"), because="request 2")
    names = {one.what["user_hash"] for one in Operator(app, actor="dpo").audit.find()}
    assert len(names) == 2
    assert not any(hashlib.sha256(user.encode()).hexdigest()[:16] in name for user in (ANN, "bob") for name in names)


def test_an_erasure_plan_lists_data_that_is_kept(app: App) -> None:
    stays = " ".join(dpo(app.ledger).user_data.plan_erasure(ANN).stays)
    assert "backups" in stays
    assert "raw data" in stays
    assert ("VACUUM" in stays) is not app.ledger.connections.on_sqlite
