"""Drills of RabbitMQ: a cluster of three whose leaders are killed, and a single server that is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from redrive.messages import RabbitQueue
from tests.acceptance.engines import outcome
from tests.acceptance.engines.outcome import Outcome, until
from tests.servers.rabbit_admin import RabbitAdmin
from tests.servers.rabbitmq import Node, cluster, node, pending_of

QUEUE = "orders"
FIND = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{QUEUE}">>))'
READY = "proplists:get_value(messages_ready, rabbit_amqqueue:info(Q, [messages_ready]))"


def kill_leaders(folder: Path, *, kills: int = 5, messages: int = 3000) -> Outcome:
    """Kill the leader of a queue with three replicas under load, again and again."""
    with cluster() as nodes:
        declare(nodes)
        until(lambda: count_members(nodes[0]) == len(nodes), "the queue has three members")

        def kill() -> None:
            leader = leader_of(nodes)
            leader.kill()
            others = [each for each in nodes if each is not leader]
            until(lambda: name_of_leader(others[0]) not in (None, leader.name), "another leader")
            leader.start()
            until(lambda: count_members(others[0]) == len(nodes), "it is a member again")

        return disturb(folder, nodes, kill, kills, messages)


def kill_server(folder: Path, *, kills: int = 5, messages: int = 3000) -> Outcome:
    """Kill a single server under load, and start it with its files."""
    with node() as server:
        declare([server])

        def kill() -> None:
            server.kill()
            server.start()

        return disturb(folder, [server], kill, kills, messages)


def disturb(folder: Path, nodes: Sequence[Node], kill: Callable[[], None], kills: int, messages: int) -> Outcome:
    source = RabbitQueue(address_of(nodes), QUEUE)
    return outcome.disturb(
        folder,
        source,
        lambda ids: send_surely(nodes, ids),
        kill,
        lambda: count_left(nodes[0]),
        times=kills,
        messages=messages,
    )


def address_of(nodes: Sequence[Node]) -> str:
    servers = ",".join(f"127.0.0.1:{each.port}" for each in nodes)
    return nodes[0].url.replace(f"127.0.0.1:{nodes[0].port}", servers)


def declare(nodes: Sequence[Node]) -> None:
    """Let a consumer create the queue, as it does in production, and make the servers write it to disk.

    They write a new queue after up to three seconds. It does not survive a kill before that.
    """
    consumer = RabbitQueue(address_of(nodes), QUEUE).connect()
    consumer.read(1, 0.0)
    consumer.close()
    for each in nodes:
        each.evaluate("[dets:sync(Table) || Table <- dets:all()], mnesia:sync_log()")


def send_surely(nodes: Sequence[Node], ids: Sequence[str]) -> None:
    """Send each message until a server has confirmed it. A repeated one has the same id."""
    turn = 0
    admin = RabbitAdmin(nodes[0].url)
    for start in range(0, len(ids), 10):
        while True:
            try:
                admin.paid(QUEUE, *ids[start : start + 10])
                break
            except Exception:
                admin.abandon()
                turn += 1
                admin = RabbitAdmin(nodes[turn % len(nodes)].url)
                time.sleep(0.1)
    admin.close()


def leader_of(nodes: Sequence[Node]) -> Node:
    name = name_of_leader(nodes[0])
    return next(each for each in nodes if each.name == name)


def name_of_leader(asked: Node) -> str | None:
    """The node that leads the queue. None while it is not known."""
    try:
        found = asked.evaluate(f"begin {FIND}, rabbit_amqqueue:info(Q, [leader, online]) end")
    except RuntimeError:
        return None
    for part in found.split("{"):
        if part.startswith("leader,"):
            return part.removeprefix("leader,").split("}")[0].strip("'") or None
    return None


def count_members(asked: Node) -> int:
    """The number of members of the queue that are online."""
    try:
        return int(asked.evaluate(f"begin {FIND}, length(proplists:get_value(online, rabbit_amqqueue:info(Q, [online]))) end"))
    except (RuntimeError, ValueError):
        return 0


def count_left(asked: Node) -> int:
    """Messages that are in the queue, delivered or not."""
    try:
        return int(asked.evaluate(f"begin {FIND}, {READY} end")) + int(asked.evaluate(pending_of(QUEUE)))
    except (RuntimeError, ValueError):
        return -1
