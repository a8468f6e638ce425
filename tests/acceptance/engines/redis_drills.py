"""Drills of Redis: a slot of a cluster that moves, a master that is killed, a replica that is promoted, Sentinels."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redrive.messages import RedisStream
from redrive.messages.redis.address import RedisAddress
from redrive.messages.redis.client import close, disconnect, open_client, run_pipeline
from tests.acceptance.engines import outcome
from tests.acceptance.engines.outcome import Outcome
from tests.servers.redis_cluster import redis_cluster, redis_sentinels, until

STREAM, GROUP = "orders", "shop"
CHUNK = 20


def move_slot(folder: Path, *, times: int = 5, messages: int = 3000) -> Outcome:
    """Move the slot of the stream to another master under load, again and again."""
    with redis_cluster() as cluster:

        def move() -> None:
            end = cluster.begin_move(STREAM)
            time.sleep(0.1)  # under load: the old master redirects by ASK
            end()

        return disturb(folder, cluster.url, move, times, messages)


def kill_master(folder: Path, *, times: int = 5, messages: int = 3000) -> Outcome:
    """Kill the master of the stream under load, and start it with its files."""
    with redis_cluster() as cluster:

        def kill() -> None:
            master = cluster.owner(STREAM)
            master.kill()
            time.sleep(0.3)
            master.start()

        return disturb(folder, cluster.url, kill, times, messages)


def promote_replica(folder: Path, *, times: int = 3, messages: int = 2000) -> Outcome:
    """Kill the master of the stream until its replica is promoted, and start it as a replica."""
    with redis_cluster(replicas=1) as cluster:
        stream = next(f"{STREAM}{number}" for number in range(1000) if cluster.owner(f"{STREAM}{number}") is cluster.masters[0])

        def kill() -> None:
            until(lambda: cluster.is_synchronised(stream), "the replica is synchronised")
            master = cluster.owner(stream)
            master.kill()
            until(lambda: cluster.owner(stream) is not master, "the replica is promoted")
            master.start()

        return disturb(folder, cluster.url, kill, times, messages, stream=stream, replicas=1)


def fail_over(folder: Path, *, times: int = 3, messages: int = 2000) -> Outcome:
    """Kill the master until the Sentinels have promoted its replica, and start it as a replica."""
    with redis_sentinels() as sentinels:

        def kill() -> None:
            until(sentinels.is_ready, "the replica is synchronised")
            master = sentinels.master()
            assert master is not None
            master.kill()
            until(lambda: sentinels.master() not in (None, master), "the replica is promoted")
            master.start()

        return disturb(folder, sentinels.url, kill, times, messages, replicas=1)


def disturb(
    folder: Path, url: str, fault: Callable[[], None], times: int, messages: int, *, stream: str = STREAM, replicas: int = 0
) -> Outcome:
    return outcome.disturb(
        folder,
        RedisStream(url, stream, group=GROUP, idle=2),
        lambda ids: send_surely(url, stream, ids, replicas),
        fault,
        lambda: pending(url, stream),
        times=times,
        messages=messages,
    )


def send_surely(url: str, stream: str, ids: list[str], replicas: int) -> None:
    """Send until the server, and its replica, have each message. Some may be sent twice."""
    client = open_client(RedisAddress.parse(url))
    for start in range(0, len(ids), CHUNK):

        def add(pipeline: Any, start: int = start) -> None:
            for each in ids[start : start + CHUNK]:
                pipeline.xadd(stream, {"type": "paid", "id": each, "payload": "{}"})
            if replicas:
                pipeline.execute_command("WAIT", replicas, 1000)

        while True:
            try:
                replies = run_pipeline(client, stream, add)
            except Exception:
                disconnect(client)
            else:
                if not replicas or replies[-1] >= replicas:
                    break
            time.sleep(0.05)
        time.sleep(0.005)  # so that the faults come while messages are sent
    close(client)


def pending(url: str, stream: str) -> int:
    """Number of entries that were delivered and not acknowledged. -1 while the server does not respond."""
    client: Any = open_client(RedisAddress.parse(url))
    try:
        return int(client.xpending(stream, GROUP)["pending"])
    except Exception:
        return -1
    finally:
        close(client)
