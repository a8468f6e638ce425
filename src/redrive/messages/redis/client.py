"""Clients of redis-py for a server, a cluster and a master behind Sentinels, without retries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.lazy import deferred
from .address import RedisAddress

if TYPE_CHECKING:
    import redis
    from redis import backoff, cluster, connection, exceptions, retry, sentinel
    from redis.client import Pipeline
else:  # the extra may be missing
    backoff, cluster, connection, exceptions, retry, sentinel = deferred(
        "redis", "backoff", "cluster", "connection", "exceptions", "retry", "sentinel"
    )

SOCKET_SECONDS = 10
CONNECT_SECONDS = 5
SENTINEL_PREFIX = "sentinel_"
"""Options of the URL that begin so are for the Sentinels: `sentinel_password` and others."""


class ClusterClient:
    """A client of a cluster. It connects with its first command, and anew after `disconnect`.

    It has the commands of redis-py's `RedisCluster`. Belongs to one thread.
    """

    def __init__(self, address: RedisAddress, options: dict[str, Any]) -> None:
        self._given = address.nodes
        self._options = options
        self._known: tuple[tuple[str, int], ...] = ()
        """All nodes of the last connection. One of them may be the only node that is left."""
        self._cluster: redis.RedisCluster | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open_cluster(), name)

    def run_pipeline(self, key: str, add: Callable[[Pipeline], object], /) -> list[Any]:
        """Send commands for one key in one round trip, and return their replies.

        A pipeline of `RedisCluster` would retry each command by itself after a lost connection.
        """
        connected: Any = self._open_cluster()
        node = connected.get_node_from_key(key)
        if node is None:
            raise exceptions.ClusterDownError(f"no node has the slot of {key!r}")
        pipeline = connected.get_redis_connection(node).pipeline(transaction=False)
        add(pipeline)
        commands = list(pipeline.command_stack)
        replies: list[Any] = pipeline.execute(raise_on_error=False)
        for place, (args, options) in enumerate(commands):
            if isinstance(replies[place], exceptions.AskError):  # MOVED too: the slot moves
                replies[place] = connected.execute_command(*args, **options)
            elif isinstance(replies[place], Exception):
                raise replies[place]
        return replies

    def disconnect(self) -> None:
        """Close all connections. The next command asks the nodes which of them has which slot."""
        connected: Any = self._cluster
        self._cluster = None
        if connected is not None:
            nodes = tuple((node.host, node.port) for node in connected.get_nodes())
            self._known = nodes or self._known
            connected.close()

    def close(self) -> None:
        """Close all connections."""
        self.disconnect()

    def _open_cluster(self) -> redis.RedisCluster:
        if self._cluster is None:
            to_node: Callable[[str, int], Any] = cluster.ClusterNode
            addresses = dict.fromkeys((*self._given, *self._known))
            nodes = [to_node(host, port) for host, port in addresses]
            self._cluster = cluster.RedisCluster(
                startup_nodes=nodes,
                require_full_coverage=False,  # the slots of other streams do not matter
                **self._options,
            )
        return self._cluster


Client: TypeAlias = "redis.Redis | ClusterClient"


def open_client(address: RedisAddress, /) -> Client:
    """Return a client without retries of its own. It returns entries as bytes. Connects later.

    Raises:
        ImportError: redis-py is not installed.
        ValueError: An option in the address is not valid.
    """
    try:
        import redis  # noqa: PLC0415
    except ImportError as missing:
        raise ImportError('RedisStream needs redis-py: pip install "redrive[redis]"') from missing
    # The reader itself retries. A second layer of retries below it would only hide faults.
    options: dict[str, Any] = {
        "retry": retry.Retry(backoff.NoBackoff(), 0),
        "socket_timeout": SOCKET_SECONDS,
        "socket_connect_timeout": CONNECT_SECONDS,
    }
    if address.mode == "single":
        return redis.Redis.from_url(address.url, **options)
    parse: Callable[[str], dict[str, Any]] = connection.parse_url
    given = parse(address.url)
    for name in ("host", "port", "connection_class"):
        given.pop(name, None)
    for_sentinels = {
        name.removeprefix(SENTINEL_PREFIX): given.pop(name)
        for name in list(given)
        if name.startswith(SENTINEL_PREFIX)
    }
    options |= given
    if address.is_tls:
        options["ssl"] = True
    if address.mode == "cluster":
        options.pop("db", None)
        return ClusterClient(address, options)
    shared = {
        name: value
        for name, value in options.items()
        if name.startswith(("socket_", "ssl")) or name == "retry"
    }
    to_sentinel: Callable[..., Any] = sentinel.Sentinel
    sentinels = to_sentinel(
        list(address.nodes), sentinel_kwargs={**shared, **for_sentinels}, **options
    )
    client: redis.Redis = sentinels.master_for(address.service)
    return client


def run_pipeline(client: Client, key: str, add: Callable[[Pipeline], object], /) -> list[Any]:
    """Send commands for one key in one round trip, and return their replies."""
    if isinstance(client, ClusterClient):
        return client.run_pipeline(key, add)
    pipeline = client.pipeline(transaction=False)
    add(pipeline)
    return pipeline.execute()


def disconnect(client: Client, /) -> None:
    """Close the connections. After a failover they may lead to a server that is now a replica."""
    if isinstance(client, ClusterClient):
        client.disconnect()
    else:
        client.connection_pool.disconnect()


def close(client: Client, /) -> None:
    """Close the client, and its connections to Sentinels."""
    client.close()
    if not isinstance(client, ClusterClient):
        manager: Any = getattr(client.connection_pool, "sentinel_manager", None)
        if manager is not None:
            for server in manager.sentinels:  # redis-py 7 has no Sentinel.close()
                server.close()
