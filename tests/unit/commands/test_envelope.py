"""The stored form of calls, and arguments and results that do not fit."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from redrive import App, retry
from redrive.ledger.model import Lease
from redrive.worker.job_type import Undecodable, Unstorable


class Size(enum.Enum):
    SMALL = "s"


@dataclass
class Order:
    id: UUID
    total: Decimal
    day: date
    size: Size


ORDER = Order(UUID(int=5), Decimal("1.10"), date(2026, 1, 31), Size.SMALL)


def lease(app: App, kind: str) -> Lease:
    return app.ledger.claim({kind: 1}, worker="w")[0]


@pytest.mark.req("W-1")
def test_arguments_and_results_keep_their_types() -> None:
    app = App("sqlite://")
    seen: list[object] = []

    @app.command("orders.take")
    def take(order: Order, *, at: datetime, tags: tuple[str, ...] = ()) -> list[Order]:
        seen.append((order, at, tags))
        return [order]

    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    job = take.submit(ORDER, at=moment)
    held = lease(app, "orders.take")
    assert (held.version, held.key.split(":")[0]) == (1, "command")
    app.ledger.settle(held.done(app.kinds()[0].run(held)))
    assert seen == [(ORDER, moment, ())]
    assert job.result() == [ORDER]
    app.close()


@pytest.mark.req("W-1")
def test_a_spilled_call_runs_as_the_command_of_that_name() -> None:
    app = App("sqlite://")
    ran: list[object] = []

    @app.command("crm.sync")
    def sync(contact_id: int, *, user: str) -> None:
        ran.append((contact_id, user))

    @retry(max_attempts=1, spill=app.spill("crm.sync", key="crm:{user}:{contact_id}:sync:v1"))
    def call(contact_id: int, *, user: str) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        call(7, user="ann")
    app.kinds()[0].run(lease(app, "crm.sync"))
    assert ran == [(7, "ann")]
    app.close()


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b'{"oder_id":"x"}', r"no parameter oder_id, .* needs 'order_id', .* it\. Stored: an object of oder_id \(str\); test_"),
        (b'{"oder_id":"x"}', r"send takes \(order_id: str, n: int = …\) -> None"),
        (b'{"order_id":"x","password":"hunter2"}', r"Stored: an object of order_id \(str\), password \(str\)"),
        (b"{}", "send needs 'order_id', but the stored call does not have it"),
        (b'{"order_id":5}', "stored arguments don't fit shop.send"),
        (b'{"order_id":"x","n":"many"}', "stored arguments don't fit shop.send"),
        (b"[1]", "a JSON object of arguments was expected"),
        (b"not json", "stored arguments don't fit shop.send"),
        (b"\xff\xfe", "stored arguments don't fit shop.send"),
        (b"[" * 5000, "stored arguments don't fit shop.send"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_undecodable(payload: bytes, says: str) -> None:
    app = App("sqlite://")

    @app.command("shop.send")
    def send(order_id: str, n: int = 1) -> None: ...

    send.submit("x")
    held = lease(app, "shop.send")._replace(payload=payload)
    with pytest.raises(Undecodable, match=says):
        app.kinds()[0].run(held)
    app.close()


def test_undecodable_does_not_show_defaults() -> None:
    app = App("sqlite://")

    @app.command("shop.send")
    def send(order_id: str, token: str = "s3cret-value") -> None: ...

    send.submit("x")
    held = lease(app, "shop.send")._replace(payload=b"{}")
    with pytest.raises(Undecodable) as caught:
        app.kinds()[0].run(held)
    assert "token: str = …" in str(caught.value)
    assert "s3cret-value" not in str(caught.value)
    app.close()


def test_a_newer_envelope_is_undecodable() -> None:
    app = App("sqlite://")

    @app.command("shop.send")
    def send() -> None: ...

    send.submit()
    with pytest.raises(Undecodable, match=r"envelope version 2 cannot be read; this code of shop.send reads version 1"):
        app.kinds()[0].run(lease(app, "shop.send")._replace(version=2))
    app.close()


def test_a_result_of_another_type_is_unstorable() -> None:
    app = App("sqlite://")

    @app.command("shop.count")
    def count() -> int:
        return "three"  # type: ignore[return-value]

    count.submit()
    with pytest.raises(Unstorable, match="shop.count has run, but its result cannot be stored: "):
        app.kinds()[0].run(lease(app, "shop.count"))
    app.close()


def test_an_awaitable_result_is_unstorable() -> None:
    app = App("sqlite://")

    async def later() -> int:
        return 3

    @app.command("shop.count")
    def count() -> int:
        return later()  # type: ignore[return-value]

    count.submit()
    with pytest.raises(Unstorable, match="shop.count is a sync function and returned an awaitable"):
        app.kinds()[0].run(lease(app, "shop.count"))
    app.close()


def test_undecodable_keeps_the_stored_values_apart_from_the_problem() -> None:
    app = App("sqlite://")

    @app.command("shop.send")
    def send(order_id: str) -> None: ...

    send.submit("x")
    held = lease(app, "shop.send")
    said = []
    for payload in (b'{"order":1}', b'{"order":[22,33]}'):
        with pytest.raises(Undecodable) as caught:
            app.kinds()[0].run(held._replace(payload=payload))
        assert payload.decode() not in str(caught.value)
        assert "Stored: an object of order (" in str(caught.value)
        said.append(caught.value.problem)
    app.close()
    assert said[0] == said[1]  # so that a release that cannot read its jobs has one cause, and its type is parked
