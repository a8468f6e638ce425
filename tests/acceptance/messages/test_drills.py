"""Drills: the Redis server is killed and returns, with its data or empty."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.servers.process import short_folder
from tests.servers.redis import HOW, program
from tests.zygote import Zygote

from .market import Market
from .stalls import RedisStall


class Server:
    """A Redis server that can be killed and started again, at the same port."""

    def __init__(self, folder: Path, aof: bool) -> None:
        found = program()
        if found is None:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"there is no Redis server: {HOW}")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.command = [
            str(found),
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--save",
            "",
            "--dir",
            str(folder),
            "--appendonly",
            "yes" if aof else "no",
            "--appendfsync",
            "everysec",
        ]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                with redis.Redis.from_url(self.url) as client:
                    client.ping()
                return
            except redis.RedisError:
                time.sleep(0.02)
        raise AssertionError("it does not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(params=[True, False], ids=["aof", "empty"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with short_folder() as folder:
        made = Server(folder, request.param)
        yield made
        made.kill()


@pytest.mark.req("M-7")
def test_redis_is_killed_and_started_again(zygote: Zygote, url: str, server: Server, tmp_path: Path) -> None:
    market = Market(zygote, url, RedisStall(server.url, "shop"), tmp_path)
    before = [f"a-{n:03}" for n in range(100)]
    after = [f"b-{n:03}" for n in range(20)]
    market.send(*before, takes=0.01)
    consumer = market.hire()
    market.until(lambda: market.booked().total() >= 20, "it is at work")
    server.kill()
    market.until(lambda: market.booked().total() > 20, "what is stored goes on without Redis")
    server.start()
    kept = "--appendonly yes" in " ".join(server.command)
    market.send(*after)
    # Messages that the server had accepted and lost before a read cannot be recovered.
    stored = {one for one in market.stored() if one.startswith("a-")}
    wanted = len(before if kept else stored) + len(after)
    market.until(lambda: len(market.booked()) >= wanted and len(market.scored()) >= wanted, "all that there was is handled")
    os.kill(consumer, signal.SIGTERM)
    assert market.wait(consumer) == 0, market.story()
    booked = market.booked()
    assert [one for one in (*(before if kept else ()), *after) if booked[one] != 1] == []
    assert all(many == 1 for many in booked.values())
    assert all(many == 1 for many in market.scored().values())


@pytest.mark.req("M-7", "M-2")
def test_duplicate_messages_are_handled_once(market: Market) -> None:
    ids = [f"p-{n:03}" for n in range(20)]
    for _ in range(5):
        market.send(*ids)
    assert market.wait(market.hire("until=idle")) == 0, market.story()
    assert set(market.booked().values()) == {1}
    market.checked(*ids, crashes=0)
