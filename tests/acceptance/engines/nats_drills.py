"""Drills of NATS JetStream: a cluster of three whose leaders are killed, and a single server that is killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redrive import App, Event
from redrive.messages import NatsStream
from tests.acceptance.engines.outcome import Outcome, outcome_of
from tests.ledgers import sqlite_ledger
from tests.servers.nats import NatsServer, nats_cluster, own_nats_server
from tests.servers.nats_admin import NatsAdmin

PATIENCE = 90.0
STREAM, CONSUMER = "orders", "shop"


def kill_leaders(folder: Path, *, kills: int = 5, messages: int = 3000) -> Outcome:
    """Kill the leader of a stream with three replicas under load, again and again."""
    with nats_cluster() as servers, NatsAdmin(*(server.url for server in servers), timeout=1) as admin:
        until(lambda: is_made(admin, replicas=3), "the cluster has a leader")

        def kill() -> None:
            until(lambda: all(each["current"] for each in cluster_of(admin)["replicas"]), "all replicas are current")
            leader = servers[int(cluster_of(admin)["leader"].removeprefix("n"))]
            leader.kill()
            until(lambda: cluster_of(admin).get("leader") not in (None, f"n{servers.index(leader)}"), "another leader")
            leader.start()

        return disturb(folder, servers, admin, kill, kills, messages)


def kill_server(folder: Path, *, kills: int = 5, messages: int = 3000) -> Outcome:
    """Kill a single server under load, and start it with its files."""
    with own_nats_server() as server, NatsAdmin(server.url) as admin:
        admin.create_stream(STREAM)

        def kill() -> None:
            server.kill()
            server.start()

        return disturb(folder, [server], admin, kill, kills, messages)


def disturb(
    folder: Path, servers: list[NatsServer], admin: NatsAdmin, kill: Callable[[], None], kills: int, messages: int
) -> Outcome:
    """Send and handle messages, while servers are killed at even distances."""
    handled: Counter[str] = Counter()
    address = ",".join(server.url for server in servers)
    source = NatsStream(address, STREAM, consumer=CONSUMER, ack_wait=2)
    ids = [f"p-{number:05}" for number in range(messages)]
    began = time.monotonic()
    with App(sqlite_ledger(folder), sources=[source]) as app:

        @app.on("paid", name="book")
        def book(event: Event[Any]) -> None:
            handled[event.id] += 1

        sender = threading.Thread(target=admin_sends, args=(servers, ids), daemon=True)
        with app.worker(threads=2):
            sender.start()
            for number in range(kills):
                share = messages * (number + 1) // (kills + 2)
                until(lambda share=share: len(handled) >= share, f"{share} are handled")  # type: ignore[misc]
                kill()
            sender.join(PATIENCE)
            until(lambda: len(handled) == messages, f"{messages} are handled, not {len(handled)}")
            until(lambda: admin.unread(STREAM, CONSUMER) == 0, "all are acknowledged")
        left = admin.unread(STREAM, CONSUMER)
        assert app.ledger.counts()["book"].done == messages
    return outcome_of(ids, handled, left, time.monotonic() - began)


def admin_sends(servers: list[NatsServer], ids: list[str]) -> None:
    """Send from a connection of its own."""
    with NatsAdmin(*(server.url for server in servers)) as admin:
        admin.send_surely(f"{STREAM}.paid", ids)


def is_made(admin: NatsAdmin, *, replicas: int) -> bool:
    try:
        admin.create_stream(STREAM, replicas=replicas)
    except Exception:
        return False  # the servers have not found each other
    return True


def cluster_of(admin: NatsAdmin) -> dict[str, Any]:
    """Leader and replicas of the stream. Empty without a leader."""

    async def ask() -> dict[str, Any]:
        found: Any = await admin.js.stream_info(STREAM)
        cluster = found.cluster
        replicas = [{"name": each.name, "current": each.current} for each in cluster.replicas or ()]
        return {"leader": cluster.leader, "replicas": replicas}

    try:
        return admin.run(ask)
    except Exception:
        return {"leader": None, "replicas": [{"current": False}]}


def until(met: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.05)
