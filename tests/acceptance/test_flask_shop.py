"""examples/flask_shop, killed by SIGKILL before and after each commit: each request places one order, with one job."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive import App
from tests.acceptance.idempotency.served import Answer, Client
from tests.conformance.idempotency.world import age_keys
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made  # noqa: F401  # the same database
from tests.ledgers import sqlite_ledger
from tests.zygote import Zygote

ROOT = Path(__file__).parents[2]
KEY = '"order 1"'
CASES = [
    ("sqlite", "key.begin.after_commit"),
    ("sqlite", "submit.in_caller"),
    ("sqlite", "key.complete.before_commit"),
    ("postgres", "key.complete.before_commit"),
]


class Customer:
    """A user who has signed in."""

    def __init__(self, port: int, name: str) -> None:
        self._client = Client(port)
        answer = self._client.send(f"/login/{name}", b"")
        self._headers = {"cookie": answer.headers["set-cookie"].partition(";")[0], "host": "shop.example"}

    def order(self, item: str = "tea") -> Answer:
        return self._client.send("/orders", json.dumps({"item": item}).encode(), KEY, headers=self._headers)

    def orders(self) -> Any:
        return self._client.send("/orders", b"", method="GET", headers=self._headers).json


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote("flask_sqlalchemy", "flask_login", "redrive.flask.idempotency", "redrive.worker.worker") as loaded:
        yield loaded


class Programs:
    """Processes of the example, on one database."""

    def __init__(self, zygote: Zygote, url: str, folder: Path) -> None:
        self._zygote = zygote
        database = url.replace("postgresql://", "postgresql+psycopg://")
        self._environment = {**os.environ, "SHOP_DATABASE": database, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self._output = folder / "output"
        self._running: set[int] = set()

    def start(self, *arguments: str, crash_at: str = "") -> int:
        pid = self._zygote.fork(
            "examples.flask_shop.__main__",
            arguments,
            output=self._output,
            environment=self._environment,
            crash_at=crash_at and f"{crash_at}:1:kill",
        )
        self._running.add(pid)
        return pid

    def serve(self, crash_at: str = "") -> tuple[int, int]:
        """Start a server, and return its process id and its port."""
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        pid = self.start("serve", str(port), crash_at=crash_at)
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return pid, port
            except OSError:
                assert time.monotonic() < end, self._output.read_text()
                time.sleep(0.05)

    def wait(self, pid: int) -> int:
        self._running.remove(pid)
        return self._zygote.wait(pid)

    def close(self) -> None:
        for pid in list(self._running):
            os.kill(pid, signal.SIGKILL)
            self.wait(pid)


@pytest.mark.req("X-3")
@pytest.mark.parametrize(("database", "point"), CASES)
def test_a_killed_request_places_one_order(
    request: pytest.FixtureRequest, zygote: Zygote, tmp_path: Path, database: str, point: str
) -> None:
    url = sqlite_ledger(tmp_path) if database == "sqlite" else request.getfixturevalue("postgres_ledger")
    with App(url) as app, closing(Programs(zygote, url, tmp_path)) as programs:
        pid, port = programs.serve(point)
        ann = Customer(port, "ann")
        with pytest.raises((http.client.HTTPException, OSError)):
            ann.order()
        assert programs.wait(pid) == -9

        _, port = programs.serve()
        ann, bob = Customer(port, "ann"), Customer(port, "bob")
        busy = ann.order()
        assert (busy.status, "retry-after" in busy.headers) == (409, True)
        age_keys(app, lease=60)
        placed = [ann.order() for _ in range(2)]
        assert [answer.status for answer in placed] == [201, 201]
        assert placed[0].json == placed[1].json
        assert ann.orders() == ["tea"]
        assert bob.orders() == []
        assert bob.order("coffee").json["order"] != placed[0].json["order"], "the same key of another user"
        assert ann.order("coffee").status == 422
        assert len(app.ledger.jobs("ready")) == 2

        programs.start("work")
        end = time.monotonic() + 60
        while len(app.ledger.jobs("done", kind="receipts.send")) < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
    if database == "postgres":
        with psycopg.connect(url) as connection:
            connection.execute("DROP TABLE shop_order")
