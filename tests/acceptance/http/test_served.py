"""A real application (FastAPI on uvicorn), behind a fault server that loses its responses."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from redrive import App, Key
from redrive.testing import Answer, FaultServer
from tests.acceptance.http.both import Mode, client
from tests.acceptance.idempotency.served import serve_app


class Order(BaseModel):
    cents: int


class Charge(BaseModel):
    id: int
    cents: int


def shop(ledger: Path) -> tuple[FastAPI, list[int], App]:
    app, charged = App(f"sqlite:///{ledger}"), []
    api = FastAPI()
    api.add_middleware(app.idempotency)

    @api.post("/charges")
    def charge(order: Order) -> Charge:
        charged.append(order.cents)
        return Charge(id=len(charged), cents=order.cents)

    return api, charged, app


@pytest.mark.req("H-2", "H-3", "H-4")
def test_a_keyed_request_with_a_lost_response_runs_once(mode: Mode, tmp_path: Path) -> None:
    api, charged, app = shop(tmp_path / "shop.db")
    cut = Answer(passed=True, trouble="cut")
    with (
        serve_app(api) as real,
        FaultServer("lost", cut, "pass", upstream=f"http://127.0.0.1:{real.port}") as between,
        client(mode, between.url, alone=False) as shopping,
    ):
        key = Key("shop", "ann", "o-1", "charge")
        first = shopping.post("/charges", json={"cents": 5}, idempotency_key=key, into=Charge)
        assert first == Charge(id=1, cents=5)
        assert shopping.post("/charges", json={"cents": 5}, idempotency_key=key, into=Charge) == first
        assert between.count == 4
    assert charged == [5]
    app.close()


@pytest.mark.req("H-4")
def test_a_request_without_a_key_is_sent_once(mode: Mode, tmp_path: Path) -> None:
    api, charged, app = shop(tmp_path / "shop.db")
    with (
        serve_app(api) as real,
        FaultServer("lost", "pass", upstream=f"http://127.0.0.1:{real.port}") as between,
        client(mode, between.url, alone=False) as shopping,
        pytest.raises(httpx2.ReadError),
    ):
        shopping.post("/charges", json={"cents": 5})
    assert charged == [5]
    app.close()
