"""Drills of NATS JetStream: a cluster of three whose leaders are killed, and a single server that is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from redrive.messages import NatsStream
from tests.acceptance.engines import outcome
from tests.acceptance.engines.outcome import Outcome, until
from tests.servers.nats import NatsServer, nats_cluster, own_nats_server
from tests.servers.nats_admin import NatsAdmin

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
    address = ",".join(server.url for server in servers)
    source = NatsStream(address, STREAM, consumer=CONSUMER, ack_wait=2)

    def send(ids: list[str]) -> None:
        with NatsAdmin(*(server.url for server in servers)) as sender:
            sender.send_surely(f"{STREAM}.paid", ids)

    return outcome.disturb(folder, source, send, kill, lambda: admin.unread(STREAM, CONSUMER), times=kills, messages=messages)


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
