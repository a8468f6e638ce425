"""A source of messages that is paused by hand: its entries stay in the stream, unacknowledged."""

from __future__ import annotations

import time

import pytest
import redis

from redrive.ledger import Ledger
from redrive.ops import Operator

from .test_redis_stream import Shop, paid, pending


@pytest.mark.req("Q-4")
@pytest.mark.parametrize("scope", ["source", "app"])
def test_a_paused_source_is_not_read_until_it_is_resumed(
    ledger: Ledger, redis_url: str, client: redis.Redis, stream: str, scope: str
) -> None:
    shop = Shop(ledger, redis_url, stream)
    ann = Operator(shop.app, actor="ann")
    name = stream if scope == "source" else ""
    with shop.app.worker(threads=2):
        paid(client, stream, "p-1")
        _until(lambda: len(shop.seen) == 1)
        ann.pauses.pause(scope, name, because="INC-42")  # type: ignore[arg-type]
        time.sleep(2.0)
        paid(client, stream, "p-2", "p-3")
        time.sleep(1.0)
        assert len(shop.seen) == 1
        assert ledger.counts()["book"].submitted == 1, "nothing was stored"
        groups = client.xinfo_groups(stream)
        assert groups[0]["lag"] + pending(client, stream) == 2, "the stream keeps them"
        ann.pauses.resume(scope, name, because="done")  # type: ignore[arg-type]
        resumed_at = time.monotonic()
        _until(lambda: len(shop.seen) == 3)
        assert time.monotonic() - resumed_at < 3
        _until(lambda: pending(client, stream) == 0)
    assert ledger.imbalance() == []


def _until(met: object) -> None:
    assert callable(met)
    end = time.monotonic() + 30
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)
