"""Redis (or Valkey) servers of one test: a cluster of masters and replicas, and a master with Sentinels."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis
import redis.crc

from tests.servers.process import START_SECONDS, ServerMissing, die_with_parent, free_port, short_folder
from tests.servers.redis import HOW, is_answering, program

SLOTS = 16384
DURABLE = "appendonly yes\nappendfsync always\nsave ''\nrepl-diskless-sync-delay 0"
"""Each command is on disk before its reply. A replica does not wait for others to join it."""
NODE_TIMEOUT = 1000
"""Milliseconds after which a node is suspected to be down."""


class RedisNode:
    """A server that can be killed and started again with its files at the same port."""

    def __init__(self, folder: Path, *options: str, config: str | None = None) -> None:
        found = program()
        if found is None:
            raise ServerMissing(HOW)
        self.port = free_port_for_bus()
        self.folder = folder
        path = folder / "server.conf"
        path.write_text(f"bind 127.0.0.1\nport {self.port}\ndir {folder}\n{config or ''}\n")
        self._command: list[str | Path] = [found, path, *options]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self) -> redis.Redis:
        return redis.Redis("127.0.0.1", self.port, decode_responses=True)

    def start(self) -> None:
        with (self.folder / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call
            )
        end = time.monotonic() + START_SECONDS
        while not is_answering(self.port):
            is_starting = self._process.poll() is None and time.monotonic() < end
            assert is_starting, (self.folder / "output.log").read_text()[-2000:]
            time.sleep(0.01)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def free_port_for_bus() -> int:
    """A free port below 55536: the bus of a cluster uses the port and 10,000."""
    while (port := free_port()) >= 55_536:
        pass
    return port


@contextmanager
def own_redis_node(*options: str, config: str | None = None) -> Iterator[RedisNode]:
    """A server for one test, until the end of the block. It writes each command to disk."""
    with short_folder() as folder:
        node = RedisNode(folder, *options, config=config)
        try:
            yield node
        finally:
            node.kill()


class ClusterOfNodes:
    """Masters that share the slots evenly, the first of them with or without a replica."""

    def __init__(self, masters: list[RedisNode], replicas: list[RedisNode]) -> None:
        self.masters = masters
        self.replicas = replicas
        self.nodes = [*masters, *replicas]
        self._ids = [str(self._run(node, "CLUSTER", "MYID")) for node in self.nodes]
        share = SLOTS // len(masters) + 1
        for number, node in enumerate(masters):
            self._run(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            self._run(node, "CLUSTER", "ADDSLOTSRANGE", number * share, min((number + 1) * share, SLOTS) - 1)
        for node in self.nodes[1:]:
            self._run(self.nodes[0], "CLUSTER", "MEET", "127.0.0.1", node.port)
        for node in replicas:
            until(partial(self._knows, node, self._ids[0]), "nodes know each other")
            self._run(node, "CLUSTER", "REPLICATE", self._ids[0])
        until(self.is_ready, "the cluster is ready")

    def _knows(self, node: RedisNode, other: str) -> bool:
        return other in str(self._run(node, "CLUSTER", "NODES"))

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(node.place for node in self.nodes)

    def is_ready(self) -> bool:
        """Whether all nodes serve all slots, and replicas follow their master."""
        return self.is_serving() and all("master_link_status:up" in self._replication(node) for node in self.replicas)

    def is_serving(self) -> bool:
        """Whether all nodes serve all slots."""
        for node in self.nodes:
            info = str(self._run(node, "CLUSTER", "INFO", raw=True))
            if "cluster_state:ok" not in info or f"cluster_known_nodes:{len(self.nodes)}" not in info:
                return False
        return True

    def _replication(self, node: RedisNode) -> str:
        return str(self._run(node, "INFO", "replication", raw=True))

    def is_synchronised(self, key: str) -> bool:
        """Whether the master of a key has a replica that follows it."""
        return "state=online" in self._replication(self.owner(key)) and self.is_serving()

    def owner(self, key: str) -> RedisNode:
        """The master that has the slot of a key."""
        slot = redis.crc.key_slot(key.encode())
        running = next(node for node in reversed(self.masters) if node.is_running)
        for first, last, master, *_ in self._run(running, "CLUSTER", "SLOTS", raw=True):
            if first <= slot <= last:
                return next(each for each in self.nodes if each.port == master[1])
        raise LookupError(key)

    def begin_move(self, key: str) -> Callable[[], None]:
        """Move the keys of a slot to another master, and return the function that ends the move."""
        source = self.owner(key)
        target = next(node for node in self.masters if node is not source)
        slot = self._run(source, "CLUSTER", "KEYSLOT", key)
        source_id, target_id = (self._ids[self.nodes.index(node)] for node in (source, target))
        self._run(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        self._run(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        while keys := self._run(source, "CLUSTER", "GETKEYSINSLOT", slot, 100):
            self._run(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)

        def end() -> None:
            for node in (target, source, *self.masters):
                self._run(node, "CLUSTER", "SETSLOT", slot, "NODE", target_id)

        return end

    @staticmethod
    def _run(node: RedisNode, *command: Any, raw: bool = False) -> Any:
        with node.client() as client:
            if raw:
                client.response_callbacks.clear()
            return client.execute_command(*command)


@contextmanager
def redis_cluster(masters: int = 3, replicas: int = 0) -> Iterator[ClusterOfNodes]:
    """A cluster, until the end of the block."""
    config = f"cluster-enabled yes\ncluster-node-timeout {NODE_TIMEOUT}\n{DURABLE}"
    with ExitStack() as stack:
        nodes = [stack.enter_context(own_redis_node(config=config)) for _ in range(masters + replicas)]
        yield ClusterOfNodes(nodes[:masters], nodes[masters:])


@contextmanager
def redis_cluster_server() -> Iterator[str]:
    """The URL of a cluster of three masters, until the end of the block."""
    with redis_cluster() as cluster:
        yield cluster.url


class RedisSentinels:
    """A master with a replica, and Sentinels that watch it under the name `mymaster`."""

    def __init__(self, nodes: list[RedisNode], sentinels: list[RedisNode]) -> None:
        self.nodes = nodes
        self.sentinels = sentinels
        until(self.is_ready, "the Sentinels know the replica and each other")

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(each.place for each in self.sentinels) + "/mymaster"

    def master(self) -> RedisNode | None:
        """Return the master according to the first Sentinel."""
        with self.sentinels[0].client() as client:
            address: Any = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
        return next((node for node in self.nodes if address and int(address[1]) == node.port), None)

    def is_ready(self) -> bool:
        for each in self.sentinels:
            with each.client() as client:
                state: Any = client.sentinel_master("mymaster")
            if (state["num-slaves"], state["num-other-sentinels"]) != (len(self.nodes) - 1, len(self.sentinels) - 1):
                return False
        master = self.master()
        if master is None:
            return False
        with master.client() as client:
            state = client.info("replication")
        return bool(state["role"] == "master" and state["connected_slaves"] and state["slave0"]["state"] == "online")


@contextmanager
def redis_sentinels(sentinels: int = 3) -> Iterator[RedisSentinels]:
    """A master, a replica and Sentinels, until the end of the block."""
    with ExitStack() as stack:
        master = stack.enter_context(own_redis_node(config=DURABLE))
        replica = stack.enter_context(own_redis_node(config=f"{DURABLE}\nreplicaof 127.0.0.1 {master.port}"))
        watch = (
            f"sentinel monitor mymaster 127.0.0.1 {master.port} {sentinels // 2 + 1}\n"
            "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000"
        )
        watchers = [stack.enter_context(own_redis_node("--sentinel", config=watch)) for _ in range(sentinels)]
        yield RedisSentinels([master, replica], watchers)


def until(met: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + START_SECONDS
    while not met():
        assert time.monotonic() < end, f"not within {START_SECONDS} s: {what}"
        time.sleep(0.02)
