"""Events are stored once, and each handler runs, retries, dead-letters and replays independently."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import httpx
import pydantic
import pytest
from sqlalchemy import Connection, text

from redrive import App, Event, RetryPolicy, Stop, current
from redrive.app.worker_setup import WorkerSetup
from redrive.engine.attempt import correlate
from redrive.ledger import Ledger
from redrive.ops import DeadLetterFilter, Operator
from tests.conformance.ledger.world import pass_time

AT_ONCE = RetryPolicy(max_attempts=2, backoff_base=0, backoff_max=0, jitter=0)
NOON = datetime(2026, 11, 16, 12, tzinfo=timezone.utc)


@dataclass
class Completed:
    session: str
    score: int


@pytest.fixture
def app(ledger: Ledger) -> Iterator[App]:
    with App(ledger) as made:
        yield made


def work(app: App, *, seconds: float = 10.0) -> None:
    """Run a worker until no job is queued."""
    end = time.monotonic() + seconds
    with app.worker(threads=4):
        while any(tally.ready or tally.leased for tally in app.ledger.counts().values()):
            assert time.monotonic() < end, [app.ledger.attempts(job.id) for job in app.ledger.jobs("ready")]
            time.sleep(0.01)


@pytest.mark.req("M-5", "M-8")
def test_each_handler_has_its_own_job(app: App) -> None:
    seen: list[Any] = []

    @app.on("session.completed", name="qscore")
    def qscore(event: Event[Completed]) -> None:
        seen.append(("qscore", event, current().number, str(current().key)))

    @app.on("session.completed", "session.abandoned")
    async def index(event: Event[dict[str, Any]]) -> None:
        seen.append(("index", event.payload))

    @app.on("session.abandoned", name="mail")
    def mail(event: Event[Any]) -> None:
        seen.append(("mail", event))

    event = Event("session.completed", Completed("s-1", 7), id="e-1", source="web", headers={"x-request-id": "r-1"}, at=NOON)
    assert app.receive(event)
    assert not app.receive(event)
    work(app)
    by_name = {name: rest for name, *rest in seen}
    assert by_name.keys() == {"qscore", "index"}
    assert by_name["qscore"] == [event, 1, "event:web:e-1:qscore:v1"]
    assert by_name["index"] == [{"session": "s-1", "score": 7}]
    assert {name: tally.done for name, tally in app.ledger.counts().items()} == {"qscore": 1, "index": 1}


@pytest.mark.req("Q-1")
def test_jobs_of_handlers_are_found_by_the_ids_of_their_event(app: App) -> None:
    @app.on("paid", name="mail")
    def mail(event: Event[Any]) -> None: ...

    @app.on("paid", name="index")
    def index(event: Event[Any]) -> None:
        raise Stop("no such order")

    def found(words: str) -> list[str]:
        return sorted(job.key for job in ann.jobs.search(words).jobs)

    ann = Operator(app, actor="ann")
    plain = [Event("paid", 1, id=f"e-{number}", source="web") for number in range(3)]
    for event in plain:
        assert app.receive(event)
    with correlate(request_id="r-9"):
        assert app.receive(Event("paid", 1, id="e-9", source="web", headers={"user_id": "bob", "traceparent": "00-ab-cd-01"}))
    with app.ledger.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM redrive_tag")).scalar() == 6, "plain events have none"
    both = ["event:web:e-9:index:v1", "event:web:e-9:mail:v1"]
    assert found("user:bob") == found("correlation:r-9") == found("ab") == found("user:bob state:queued") == both
    assert found("event:web:e-9") == both
    work(app)
    (letter,) = ann.jobs.search("user:bob state:dead").letters
    assert letter.key == "event:web:e-9:index:v1"


@pytest.mark.req("M-2")
def test_a_duplicate_event_changes_nothing(app: App) -> None:
    seen: list[str] = []

    @app.on("paid")
    def book(event: Event[dict[str, int]]) -> None:
        seen.append(event.id)

    first = Event("paid", {"cents": 5}, id="p-1", source="shop")
    assert app.receive(first)
    work(app)
    assert not app.receive(Event("paid", {"cents": 99}, id="p-1", source="shop"))
    assert app.receive(Event("paid", {"cents": 5}, id="p-1", source="another shop"))
    work(app)
    assert seen == ["p-1", "p-1"]


@pytest.mark.req("M-5", "W-3")
def test_a_failing_handler_does_not_affect_others(app: App, ledger: Ledger) -> None:
    broken, seen = [True], []

    @app.on("session.completed", name="qscore", retry=AT_ONCE)
    def qscore(event: Event[Completed]) -> None:
        if broken:
            raise ConnectionError("the database of scores is away")
        seen.append(f"qscore {event.payload.score}")

    @app.on("session.completed", name="search")
    def search(event: Event[Completed]) -> None:
        seen.append("search")

    @app.on("session.completed", name="mail")
    def mail(event: Event[Completed]) -> None:
        raise Stop("negative score")

    app.receive(Event("session.completed", Completed("s-1", -7), id="e-1", source="web"))
    work(app)
    assert seen == ["search"]
    letters = {letter.kind: letter for letter in ledger.dead_letters()}
    assert {name: (one.reason, one.attempts, one.source) for name, one in letters.items()} == {
        "qscore": ("attempts", 2, "web"),
        "mail": ("stopped", 1, "web"),
    }
    broken.clear()
    ann = Operator(app, actor="ann")
    ann.apply(ann.dead_letters.replay(DeadLetterFilter(kind="qscore")), because="it is back")
    work(app)
    assert seen == ["search", "qscore -7"]
    assert [letter.status for letter in ledger.dead_letters(kind="qscore")] == ["replayed"]
    assert ledger.imbalance() == []


@pytest.mark.req("M-5")
def test_effects_in_the_jobs_transaction_happen_once(app: App, ledger: Ledger) -> None:
    with ledger.begin() as tx:
        tx.execute(text("CREATE TABLE score (user_id text PRIMARY KEY, total integer)"))
        tx.execute(text("INSERT INTO score VALUES ('ann', 0)"))
    failing = [True]

    @app.on("session.completed", name="qscore", in_transaction=True, retry=AT_ONCE)
    def qscore(tx: Connection, event: Event[Completed]) -> None:
        tx.execute(text("UPDATE score SET total = total + :n WHERE user_id = 'ann'"), {"n": event.payload.score})
        if failing.pop() if failing else False:
            raise ConnectionError("after the write")

    app.receive(Event("session.completed", Completed("s-1", 7), id="e-1"))
    work(app)
    with ledger.reading() as look:
        assert look.execute(text("SELECT total FROM score")).scalar_one() == 7
    with ledger.begin() as tx:
        tx.execute(text("DROP TABLE score"))


@pytest.mark.req("J-2")
def test_ids_of_the_message_reach_the_handler(app: App) -> None:
    from redrive.core.context import IDS

    seen: list[dict[str, str]] = []

    @app.on("paid")
    def book(event: Event[Any]) -> None:
        seen.append(dict(IDS.get()))

    headers = {"X-Request-Id": "r-1", "user_id": "u-1", "traceparent": "00-abc-def-01", "colour": "red"}
    with correlate(org_id="o-1"):
        app.receive(Event("paid", None, id="p-1", source="shop", headers=headers))
    work(app)
    assert seen == [
        {
            "event_id": "p-1",
            "event_type": "paid",
            "source": "shop",
            "request_id": "r-1",
            "user_id": "u-1",
            "trace_id": "abc",
            "traceparent": "00-abc-def-01",
            "org_id": "o-1",
        }
    ]


def test_an_event_without_a_handler_is_stored_and_logged(app: App, ledger: Ledger) -> None:
    from redrive import journal

    heard: list[Any] = []
    hush = journal.subscribe(heard.append, inline=True)
    assert app.receive(Event("weather", "rain", id="w-1"))
    hush()
    assert [(one.kind, one.fields["event_type"]) for one in heard if one.kind == "unhandled"] == [("unhandled", "weather")]
    assert not app.receive(Event("weather", "rain", id="w-1"))


def test_an_event_is_stored_with_the_callers_transaction(app: App, ledger: Ledger) -> None:
    @app.on("paid")
    def book(event: Event[Any]) -> None: ...

    with pytest.raises(ZeroDivisionError), ledger.begin() as tx:
        app.receive(Event("paid", 1, id="p-1"), tx=tx)
        raise ZeroDivisionError
    assert ledger.counts() == {}
    with ledger.begin() as tx:
        assert app.receive(Event("paid", 1, id="p-1"), tx=tx)
    assert ledger.counts()["book"].ready == 1


def test_receive_in_async_code(app: App) -> None:
    @app.on("paid")
    def book(event: Event[Any]) -> None: ...

    async def main() -> list[bool]:
        return [await app.areceive(Event("paid", 1, id="p-1")) for _ in range(2)]

    assert asyncio.run(main()) == [True, False]


@pytest.mark.req("M-6")
def test_a_payload_of_the_wrong_type_is_a_dead_letter(app: App, ledger: Ledger) -> None:
    @app.on("session.completed", name="qscore")
    def qscore(event: Event[Completed]) -> None: ...

    app.receive(Event("session.completed", {"session": "s-1", "score": "many"}, id="e-1"))
    app.receive(Event("session.completed", b"\xff\xfe", id="e-2"))
    work(app)
    first, second = ledger.dead_letters()
    assert {first.reason, second.reason} == {"undecodable"}
    assert "the event's payload doesn't fit qscore" in (first.error or "")
    assert second.payload == b"\xff\xfe"


@pytest.mark.req("M-6")
@pytest.mark.parametrize("payload", [[1, 2], "text", 7, None])
def test_a_payload_of_another_shape_is_not_retried(app: App, ledger: Ledger, payload: Any) -> None:
    @app.on("paid", name="book")
    def book(event: Event[dict[str, Any]]) -> None: ...

    app.receive(Event("paid", payload, id="e-1"))
    work(app)
    (letter,) = ledger.dead_letters()
    assert (letter.reason, letter.attempts) == ("undecodable", 1)
    assert "the event's payload doesn't fit book" in (letter.error or "")
    assert "expected an object, not" in (letter.error or "")


class Missing(pydantic.BaseModel):
    """A model that poison messages do not match."""

    total: int


def poison_not_found() -> None:
    httpx.Response(404, request=httpx.Request("GET", "https://api.example.org/1")).raise_for_status()


def poison_invalid() -> None:
    Missing.model_validate({})


def poison_unavailable() -> None:
    raise ConnectionError("no answer")


@pytest.mark.req("M-6", "L-7")
@pytest.mark.parametrize(("fail", "every"), [(poison_not_found, 1), (poison_invalid, 1), (poison_unavailable, 26)])
def test_poison_messages_do_not_park_a_handler(app: App, ledger: Ledger, fail: Callable[[], None], every: int) -> None:
    """20 of 520 messages: the first 20, or every 26th if the error is transient."""
    handled: list[str] = []

    @app.on("paid", name="book", retry=AT_ONCE)
    def book(event: Event[dict[str, Any]]) -> None:
        if event.payload["bad"]:
            fail()
        handled.append(event.id)

    for number in range(520):
        app.receive(Event("paid", {"bad": number % every == 0 and number < 20 * every}, id=f"e-{number:03}"))
    work(app, seconds=60.0)
    assert len(handled) == 500
    letters = ledger.dead_letters()
    assert len(letters) == 20
    assert max(letter.attempts for letter in letters) <= AT_ONCE.max_attempts
    assert "kind.park" not in {entry.action for entry in ledger.audit()}


def test_a_bytes_payload_is_passed_on_unchanged(app: App) -> None:
    seen: list[bytes] = []

    @app.on("*", name="everything")
    def raw(event: Event[bytes]) -> None:
        seen.append(event.payload)

    app.receive(Event("x", b"\x00\xff", id="1"))
    work(app)
    assert seen == [b"\x00\xff"]


def test_old_events_are_removed_and_their_jobs_are_not(app: App, ledger: Ledger) -> None:
    seen: list[str] = []

    @app.on("paid", name="book")
    def book(event: Event[Any]) -> None:
        seen.append(event.id)

    app.receive(Event("paid", 1, id="old"))
    work(app)
    pass_time(ledger, 40 * 86_400)
    app.receive(Event("paid", 1, id="new"))
    setup = WorkerSetup(app.registrations, ledger, parking=None, keep=None)
    for task in setup.background_tasks(app.kinds()):
        if task.name == "forget events":
            task.do(ledger.now())
    assert [one.id for one in Operator(app, actor="ann").events.find()] == ["new"]
    assert app.receive(Event("paid", 1, id="old")), "the event is stored anew"
    work(app)
    assert seen == ["old", "new"], "and its handler knows that it has done it"


def nothing(event: Event[Any]) -> None: ...


class Misuse:
    """Functions that are rejected at decoration."""

    @staticmethod
    def none() -> None: ...
    @staticmethod
    def two(event: Event[Any], other: int) -> None: ...
    @staticmethod
    def number(event: int) -> None: ...
    @staticmethod
    def unstorable(event: Event[complex]) -> None: ...
    @staticmethod
    def generator(event: Event[Any]) -> Any:
        yield event

    @staticmethod
    async def coroutine(tx: Connection, event: Event[Any]) -> None: ...


@pytest.mark.parametrize(
    ("options", "fn", "says"),
    [
        ({"types": ()}, nothing, "event types must be names"),
        ({"types": ("",)}, nothing, "an event's type must be printable"),
        ({}, Misuse.none, "is called with the event, but takes"),
        ({}, Misuse.two, "is called with the event, but takes"),
        ({}, Misuse.number, "must be an Event, for example"),
        ({}, Misuse.unstorable, "the payload of its events: complex cannot be stored"),
        ({}, Misuse.generator, "is a generator"),
        ({"in_transaction": True}, Misuse.coroutine, "is async, and its transaction would stay open"),
        ({"in_transaction": True}, nothing, "is called with the connection and the event"),
        ({"name": ""}, nothing, "a handler's name must be printable"),
        ({"concurrency": 0}, nothing, "concurrency"),
        ({"retry": 3}, nothing, "retry= must be a RetryPolicy"),
    ],
)
def test_invalid_handlers_are_rejected_at_decoration(options: dict[str, Any], fn: Any, says: str) -> None:
    app = App("sqlite://")
    types = options.pop("types", ("paid",))
    with pytest.raises((TypeError, ValueError), match=says.replace("(", r"\(")):
        app.on(*types, **options)(fn)  # type: ignore[no-untyped-call]


def test_a_bare_decorator_is_rejected() -> None:
    """A bare `@app.on` gets the function as a type, and would register nothing."""
    bare: Any = App("sqlite://").on
    with pytest.raises(TypeError, match="event types must be names"):
        bare(nothing)


def test_a_second_handler_of_one_name_is_rejected() -> None:
    app = App("sqlite://")
    app.on("paid", name="book")(nothing)
    with pytest.raises(ValueError, match="handler name 'book' is already used by .*nothing; name .* with"):
        app.on("refunded", name="book")(nothing)

    @app.command("send")
    def send() -> None: ...

    with pytest.raises(ValueError, match="handler name 'send' is already used by the command"):
        app.on("paid", name="send")(nothing)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"type": ""}, "type must be printable"),
        ({"id": 7}, "id must be text"),
        ({"id": "x" * 501}, "must not be longer than 500 bytes"),
        ({"at": NOON.replace(tzinfo=None)}, "needs a time zone"),
        ({"headers": {"a": 1}}, "headers must be text"),
    ],
)
def test_an_invalid_event_is_rejected(wrong: dict[str, Any], says: str) -> None:
    given = {"type": "paid", "id": "p-1", **wrong}
    with pytest.raises((TypeError, ValueError), match=says):
        Event(given.pop("type"), None, **given)


def test_a_payload_that_cannot_be_stored_is_rejected(app: App, ledger: Ledger) -> None:
    @app.on("paid")
    def book(event: Event[Any]) -> None: ...

    with pytest.raises(TypeError, match="an event's payload cannot be stored"):
        app.receive(Event("paid", object(), id="1"))
    with pytest.raises(ValueError, match="payload has .* the ledger takes at most"):
        app.receive(Event("paid", b"x" * (ledger.max_payload + 1), id="1"))
    with pytest.raises(ValueError, match="headers have .* the ledger takes at most 65536; put large values into the payload"):
        app.receive(Event("paid", {}, id="1", headers={"x-large": "x" * 50_000_000}))
    with pytest.raises(TypeError, match="receive takes an Event"):
        app.receive({"type": "paid"})  # type: ignore[arg-type]
    assert ledger.counts() == {}
    app.receive(Event("paid", {}, id="2", headers={"x-request-id": "r" * 60_000}))
    (lease,) = ledger.claim(dict.fromkeys(ledger.counts(), 1), worker="w", lease=60)
    assert len(lease.ids["request_id"]) == 256
