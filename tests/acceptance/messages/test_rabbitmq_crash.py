"""RabbitMQ: killed consumers, and connections that the server closes. Nothing is lost, and each event is handled once."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Event
from redrive.messages import RabbitQueue
from tests.acceptance.engines.outcome import until
from tests.ledgers import sqlite_ledger
from tests.servers.rabbit_admin import RabbitAdmin
from tests.servers.rabbitmq import close_connections_of, evaluate
from tests.zygote import Zygote

from .market import Market
from .stalls import RabbitStall

IDS = tuple(f"p-{n:03}" for n in range(30))


@pytest.fixture
def market(zygote: Zygote, rabbitmq: dict[str, Any], tmp_path: Path) -> Iterator[Market]:
    stall = RabbitStall(json.dumps(rabbitmq), f"shop-{secrets.token_hex(4)}")
    stall.admin.declare(stall.stream)
    yield Market(zygote, f"sqlite:///{tmp_path}/ledger.db", stall, tmp_path)
    stall.admin.delete(stall.stream, f"{stall.stream}.dead")
    stall.admin.close()


@pytest.mark.req("E-4", "M-1")
@pytest.mark.parametrize("point", ["read.after", "ack.before"])
def test_a_consumer_is_killed_between_read_and_acknowledgement(market: Market, point: str) -> None:
    market.check_crash(*IDS, at=f"{point}:1")


@pytest.mark.req("E-4", "M-7")
def test_the_server_closes_the_connection_under_load(rabbitmq: dict[str, Any], tmp_path: Path) -> None:
    """`make engine-drills` kills the server itself."""
    queue, handled = f"orders.{secrets.token_hex(4)}", Counter[str]()
    ids = [f"p-{number:03}" for number in range(300)]
    closed = 0
    with (
        RabbitAdmin(rabbitmq["url"]) as admin,
        App(sqlite_ledger(tmp_path), sources=[RabbitQueue(rabbitmq["url"], queue, batch=10)]) as app,
    ):

        @app.on("paid", name="book")
        def book(event: Event[Any]) -> None:
            handled[event.id] += 1

        admin.declare(queue)
        with app.worker(threads=2):
            for start in range(0, 300, 100):
                admin.paid(queue, *ids[start : start + 100])
                until(lambda start=start: len(handled) > start, f"more than {start} are handled")  # type: ignore[misc]
                closed += int(evaluate(rabbitmq["name"], rabbitmq["epmd"], close_connections_of(queue)))
            until(lambda: len(handled) == 300, "all are handled")
        assert app.ledger.counts()["book"].done == 300
        admin.delete(queue, f"{queue}.dead")
    assert closed >= 1
    assert set(handled.values()) == {1}
