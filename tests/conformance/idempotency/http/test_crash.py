"""A server that is killed in the middle of a request, in each framework: a retry gets the stored response, or runs again."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.idempotency.served import Client
from tests.conformance.idempotency.world import age_keys
from tests.zygote import Zygote

from .shop import FRAMEWORKS, Shops, World
from .test_requests import record_of, until

HOST = {"host": "shop.example"}
"""Both servers have this name, and another port."""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote("tests.conformance.idempotency.http.program") as loaded:
        yield loaded


@pytest.mark.req("I-3", "X-3")
@pytest.mark.parametrize("point", ["begin.after_commit", "complete.before_commit", "complete.after_commit"])
def test_a_retry_after_a_crash(
    shops: Shops, client: Client, world: World, zygote: Zygote, tmp_path: Path, key: str, point: str
) -> None:
    (name,) = [name for name, framework in FRAMEWORKS.items() if framework is shops.framework]
    output = tmp_path / "port"
    pid = zygote.fork(
        "tests.conformance.idempotency.http.program", [name, shops.app.url], output=output, crash_at=f"key.{point}:1:kill"
    )
    until(lambda: output.exists() and output.read_text().endswith("\n"))
    with pytest.raises((http.client.HTTPException, OSError)):
        Client(int(output.read_text())).send("/charge", key=key, headers=HOST)
    assert zygote.wait(pid) == -9
    record = record_of(shops.app, key)
    assert record is not None
    if point == "complete.after_commit":
        assert client.send("/charge", key=key, headers=HOST).replayed
        assert world.calls == []
        return
    assert client.send("/charge", key=key, headers=HOST).status == 409, "the other process may still run"
    age_keys(shops.app, lease=60)
    answers = [client.send("/charge", key=key, headers=HOST) for _ in range(2)]
    assert [(answer.status, answer.replayed) for answer in answers] == [(201, False), (201, True)]
    assert len(world.calls) == 1
