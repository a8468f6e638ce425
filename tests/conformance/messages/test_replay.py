"""Replay of events: by id and handler, and in bulk by workers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import delete
from typer.testing import CliRunner

from redrive import App, Event, RetryPolicy
from redrive.cli.root import app as cli
from redrive.errors import NotAllowed
from redrive.ledger import Ledger
from redrive.ledger.db.tables import event as events
from redrive.ops import DeadLetterFilter, Operator

ONCE = RetryPolicy.disabled()


class Shop:
    def __init__(self, ledger: Ledger) -> None:
        self.app = App(ledger)
        self.seen: list[str] = []
        self.broken = True
        self.app.on("paid", name="book", retry=ONCE)(self.book)
        self.app.on("paid", name="mail", retry=ONCE)(self.mail)
        self.ann = Operator(self.app, actor="ann")

    def book(self, event: Event[Any]) -> None:
        self.seen.append(f"book {event.id}")

    def mail(self, event: Event[Any]) -> None:
        if self.broken:
            raise ConnectionError("the mail server is away")
        self.seen.append(f"mail {event.id}")

    def work(self, *, sweeps: bool = False) -> None:
        end = time.monotonic() + 60
        with self.app.worker(threads=2):
            # Sweeps first, because their jobs are counted then.
            while (sweeps and self.app.ledger.sweeps.list(state="running")) or any(
                tally.ready or tally.leased for tally in self.app.ledger.counts().values()
            ):
                assert time.monotonic() < end, self.app.ledger.counts()
                time.sleep(0.01)


@pytest.fixture
def shop(ledger: Ledger) -> Iterator[Shop]:
    made = Shop(ledger)
    for n in range(3):
        made.app.receive(Event("paid", {"cents": n, "token": "s3cret"}, id=f"p-{n}", source="web"))
    made.work()
    yield made
    assert ledger.imbalance() == []


@pytest.mark.req("Q-2")
def test_replay_brings_back_a_cancelled_job_and_a_redelivery_does_not(shop: Shop, ledger: Ledger) -> None:
    event = Event("paid", {"cents": 9}, id="p-9", source="web")
    shop.app.receive(event)
    jobs = {job.kind: job for job in ledger.jobs("ready")}
    ledger.control.cancel([job.id for job in jobs.values()], actor="ann", because="sent by mistake")
    shop.app.receive(event)
    assert ledger.jobs("ready") == []
    assert shop.ann.events.replay("p-9", handlers=["book"], because="it was right").keys() == {"book"}
    (again,) = ledger.jobs("ready")
    assert (again.kind, again.replay_of) == ("book", jobs["book"].id)
    shop.seen = []
    shop.work()
    assert shop.seen == ["book p-9"]


@pytest.mark.req("Q-2")
def test_replay_of_a_cancelled_replay_is_that_of_its_dead_letter(shop: Shop, ledger: Ledger) -> None:
    letter = ledger.dead_letters()[0]
    event_id = letter.key.split(":")[2]
    for _ in range(2):
        shop.ann.events.replay(event_id, handlers=["mail"], because="the mail server is back")
        (replay,) = ledger.jobs("ready")
        ledger.control.cancel([replay.id], actor="ann", because="not yet")
    shop.broken, shop.seen = False, []
    shop.ann.events.replay(event_id, handlers=["mail"], because="now")
    shop.work()
    assert shop.seen == [f"mail {event_id}"]
    (kept,) = ledger.dead_letters(ids=[letter.id], status=None)
    assert (kept.status, kept.replay_count) == ("replayed", 3)


@pytest.mark.req("M-4", "M-5")
def test_replay_by_chosen_handlers(shop: Shop, ledger: Ledger) -> None:
    report = shop.ann.events.get("p-1")
    assert report is not None
    assert {one.handler: one.state for one in report.handlers} == {"book": "done", "mail": "dlq"}
    assert report.payload == {"cents": 1, "token": "[redacted]"}
    shop.broken, shop.seen = False, []
    said = shop.ann.events.replay("p-1", handlers=["mail"], because="the mail server is back")
    assert said.keys() == {"mail"}
    shop.work()
    assert shop.seen == ["mail p-1"]
    assert shop.ann.events.replay("p-1", handlers=["book"], because="booked on the wrong account").keys() == {"book"}
    shop.work()
    assert shop.seen == ["mail p-1", "book p-1"]
    assert not shop.app.receive(Event("paid", 1, id="p-1", source="web")), "its dedupe key is as it was"
    assert [entry.action for entry in ledger.audit()] == ["dead.replay", "event.replay"]


def test_replay_by_a_new_handler(shop: Shop) -> None:
    late: list[str] = []

    @shop.app.on("paid", name="stats")
    def stats(event: Event[Any]) -> None:
        late.append(event.id)

    shop.ann.events.replay("p-0", handlers=["stats"], because="a new handler")
    shop.work()
    assert late == ["p-0"]


@pytest.mark.req("M-4")
@pytest.mark.parametrize("bare", [False, True], ids=["app", "ledger"])
def test_replay_rejects_unknown_handlers(shop: Shop, ledger: Ledger, bare: bool) -> None:
    @shop.app.command("invoices.send")
    def send(order: int) -> None: ...

    @shop.app.on("refunded", name="refund")
    def refund(event: Event[Any]) -> None: ...

    send.submit(1)
    shop.app.receive(Event("refunded", {}, id="r-1", source="web"))
    shop.work()
    ann = Operator(ledger, actor="ann") if bare else shop.ann
    before = ledger.counts()
    unknown = "the ledger knows no handler" if bare else "is not a handler of events of type 'paid'"
    for name, problem in (
        ("maill", r"\(did you mean 'mail'\?\); handlers: book, mail"),
        ("invoices.send", unknown if bare else "but a command"),
        ("refund", unknown if bare else "but of 'refunded'"),
        ("a name: with colons", unknown),
    ):
        with pytest.raises(ValueError, match=problem) as refused:
            ann.events.replay("p-0", handlers=["book", name], because="a typo")
        assert "Nothing was changed" in str(refused.value)
    assert ledger.counts() == before, "not even the names that were right"
    assert [entry.action for entry in ledger.audit()] == []


@pytest.mark.req("M-4")
def test_replay_from_a_bare_ledger_knows_handlers_by_their_jobs(shop: Shop, ledger: Ledger) -> None:
    late: list[str] = []

    @shop.app.on("paid", name="stats")
    def stats(event: Event[Any]) -> None:
        late.append(event.id)

    shop.app.receive(Event("paid", {}, id="p-9", source="web"))
    assert Operator(ledger, actor="ann").events.replay("p-0", handlers=["stats"], because="backfill").keys() == {"stats"}
    shop.work()
    assert sorted(late) == ["p-0", "p-9"]


@pytest.mark.req("M-4")
def test_failed_events_are_replayed_with_a_canary(shop: Shop, ledger: Ledger) -> None:
    shop.broken = False
    plan = shop.ann.dead_letters.replay(DeadLetterFilter(source="*"))
    assert (plan.count, plan.kinds) == (3, {"mail": 3})
    begun = shop.ann.begin(plan, because="the mail server is back", canary=1)
    shop.work(sweeps=True)
    report = shop.ann.sweeps.get(begun.id)
    assert report is not None
    assert (report.sweep.state, report.sweep.made, report.jobs) == ("done", 3, {"done": 3})
    assert sorted(one for one in shop.seen if one.startswith("mail")) == ["mail p-0", "mail p-1", "mail p-2"]


@pytest.mark.req("M-4")
def test_a_replay_stores_a_removed_event_again(shop: Shop, ledger: Ledger) -> None:
    shop.broken = False
    with ledger.begin() as tx:
        tx.execute(delete(events))
    assert shop.ann.events.find() == []
    shop.ann.apply(shop.ann.dead_letters.replay(DeadLetterFilter(kind="mail")), because="it is back")
    shop.work()
    assert sorted(one.id for one in shop.ann.events.find()) == ["p-0", "p-1", "p-2"]
    assert not shop.app.receive(Event("paid", 1, id="p-1", source="web"))


def test_an_ambiguous_id_needs_a_source(shop: Shop) -> None:
    shop.app.receive(Event("paid", 1, id="p-1", source="another"))
    with pytest.raises(NotAllowed, match=r"several events have the id 'p-1'; pass the source \(another, web\)"):
        shop.ann.events.get("p-1")
    assert shop.ann.events.get("p-1", source="web") is not None
    assert shop.ann.events.get("none") is None
    with pytest.raises(NotAllowed, match="event 'none' not found"):
        shop.ann.events.replay("none", because="x")
    shop.work()


def test_replay_on_the_command_line(shop: Shop, url: str) -> None:
    def call(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, [*arguments, "--ledger", url], env={"COLUMNS": "100", "NO_COLOR": "1"})
        return done.exit_code, done.output

    status, printed = call("events", "list")
    assert (status, [line.split()[-4:] for line in printed.splitlines()[1:2]]) == (0, [["paid", "p-2", "web", "2"]])
    status, printed = call("events", "show", "p-1")
    assert (status, "mail     dead" in printed, "s3cret" in printed) == (0, True, False)
    assert json.loads(call("events", "show", "p-1", "--json")[1])["event"]["id"] == "p-1"
    assert call("events", "show", "nope")[0] == 1
    status, printed = call("events", "replay", "--status", "failed", "--limit", "2", "--dry-run", "--because", "x")
    assert (status, printed.splitlines()[0]) == (0, "To replay: 2 dead letters (mail ×2; attempts ×2)")
    assert call("events", "replay", "--handlers", "a", "--because", "x")[0] == 2
    status, printed = call("events", "replay", "--event-id", "p-1", "--handlers", "book,maill", "--because", "x")
    assert (status, "did you mean 'mail'?" in printed) == (2, True)
    assert call("events", "replay", "--event-id", "p-1", "--handlers", ",", "--because", "x")[0] == 2
    shop.broken = False
    status, printed = call("events", "replay", "--event-id", "p-1", "--handlers", "book,mail", "--because", "again")
    assert (status, [line.split(":")[0] for line in printed.splitlines()]) == (0, ["book", "mail"])
    assert call("events", "replay", "--event-id", "p-1", "--because", "again")[0] == 1, "both wait"
    shop.work()
    assert call("events", "replay", "--because", "back", "--yes", "--max", "9")[0] == 0
    shop.work()
    assert sorted(set(shop.seen)) == [f"{name} p-{n}" for name in ("book", "mail") for n in range(3)]
