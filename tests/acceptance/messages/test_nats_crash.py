"""NATS JetStream: consumers and servers that are killed. Nothing is lost, and each event is handled once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.engines.nats_drills import kill_leaders, kill_server
from tests.zygote import Zygote

from .market import Market
from .stalls import NatsStall

IDS = tuple(f"p-{n:03}" for n in range(30))


@pytest.fixture
def market(zygote: Zygote, nats_url: str, tmp_path: Path) -> Iterator[Market]:
    stall = NatsStall(nats_url, f"shop-{secrets.token_hex(4)}")
    stall.admin.create_stream(stall.stream)
    yield Market(zygote, f"sqlite:///{tmp_path}/ledger.db", stall, tmp_path)
    stall.admin.__exit__()


@pytest.mark.req("E-2", "M-1")
@pytest.mark.parametrize("point", ["read.after", "ack.before"])
def test_a_consumer_is_killed_between_read_and_acknowledgement(market: Market, point: str) -> None:
    market.check_crash(*IDS, at=f"{point}:1")


@pytest.mark.req("E-2", "M-7")
def test_a_server_is_killed_and_started_again_under_load(tmp_path: Path) -> None:
    assert kill_server(tmp_path, kills=2, messages=300).is_good


@pytest.mark.req("E-2")
def test_the_leader_of_a_replicated_stream_is_killed_under_load(tmp_path: Path) -> None:
    assert kill_leaders(tmp_path, kills=1, messages=300).is_good
