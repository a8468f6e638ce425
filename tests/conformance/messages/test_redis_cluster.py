"""RedisStream on a cluster and behind Sentinels: the suite of sources, moved slots, killed masters, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from redrive.messages import Message, RedisStream, Source
from redrive.messages.redis.address import RedisAddress
from redrive.testing import SourceConformance
from tests.acceptance.engines import redis_drills
from tests.servers.process import free_port

pytestmark = pytest.mark.req("E-3")


def first_node(cluster_url: str) -> tuple[str, int]:
    return RedisAddress.parse(cluster_url).nodes[0]


@pytest.fixture
def cluster(redis_cluster_url: str) -> Iterator[redis.RedisCluster]:
    host, port = first_node(redis_cluster_url)
    with redis.RedisCluster(host, port) as opened:
        yield opened


class TestRedisStreamOnACluster(SourceConformance):
    @pytest.fixture
    def source(self, redis_cluster_url: str, stream: str) -> Source:
        return RedisStream(redis_cluster_url, stream, group="shop")

    @pytest.fixture
    def send(self, cluster: redis.RedisCluster, stream: str) -> Callable[[Sequence[tuple[bytes, Mapping[str, str]]]], None]:
        def send(messages: Sequence[tuple[bytes, Mapping[str, str]]]) -> None:
            for body, headers in messages:
                fields: dict[Any, Any] = {**headers, "payload": body}
                cluster.xadd(stream, fields)

        return send

    @pytest.fixture
    def announced(
        self, cluster: redis.RedisCluster, stream: str
    ) -> Callable[[], Sequence[tuple[Mapping[str, str], bytes | None]]]:
        def read() -> list[tuple[Mapping[str, str], bytes | None]]:
            entries: Any = cluster.xrange(f"{stream}.dead")
            letters: list[tuple[Mapping[str, str], bytes | None]] = []
            for _, fields in entries:
                payload = fields.pop(b"payload", None)
                letters.append(({name.decode(): value.decode() for name, value in fields.items()}, payload))
            return letters

        return read


def test_a_cluster_is_trimmed(redis_cluster_url: str, cluster: redis.RedisCluster, stream: str) -> None:
    source = RedisStream(redis_cluster_url, stream, group="shop", trim=True)
    publisher, consumer = source.publisher(), source.connect()
    publisher.publish([Message(str(number), b"{}", {"type": "paid"}) for number in range(300)])
    messages = consumer.read(1000, 1.0)
    assert len(messages) == 300
    consumer.ack(messages)
    consumer.trim()
    assert cluster.xlen(stream) < 300, "whole blocks of 100 entries are removed"
    publisher.close()
    consumer.close()


def test_a_moved_slot_loses_nothing(tmp_path: Path) -> None:
    assert redis_drills.move_slot(tmp_path, times=2, messages=300).is_good


def test_a_killed_master_of_a_cluster_loses_nothing(tmp_path: Path) -> None:
    assert redis_drills.kill_master(tmp_path, times=1, messages=300).is_good


def test_a_failover_by_sentinels_loses_nothing(tmp_path: Path) -> None:
    assert redis_drills.fail_over(tmp_path, times=1, messages=300).is_good


def test_a_single_server_address_of_a_cluster_names_the_right_address(redis_cluster_url: str, stream: str) -> None:
    client: Any = redis.RedisCluster(*first_node(redis_cluster_url))
    owner = client.get_node_from_key(stream)
    host, port = next(node for node in RedisAddress.parse(redis_cluster_url).nodes if node[1] != owner.port)
    client.close()
    consumer = RedisStream(f"redis://{host}:{port}", stream, group="shop").connect()
    with pytest.raises(redis.ResponseError) as caught:
        consumer.read(1, 0.01)
    expected = f"Redis server {host}:{port} is a node of a cluster, and another node has the stream {stream!r}; "
    assert str(caught.value) == f"{expected}use the address redis+cluster://{host}:{port}"
    consumer.close()


def test_a_cluster_address_of_a_single_server_is_reported(redis_url: str, stream: str) -> None:
    address = redis_url.replace("redis://", "redis+cluster://")
    with pytest.raises(
        redis.ResponseError, match=r"^Redis server \S+ is not a cluster; use an address that begins with redis://$"
    ):
        RedisStream(address, stream, group="shop").connect().read(1, 0.01)


@pytest.mark.parametrize(
    ("mode", "end", "message"),
    [
        ("cluster", "", "Redis cluster 127.0.0.1:{port} cannot be reached; check that its nodes run"),
        ("sentinel", "/mymaster", "no Sentinel of 127.0.0.1:{port} knows a running master 'mymaster'; check that they run.*"),
    ],
)
def test_offline_servers_are_named_in_one_line(mode: str, end: str, message: str) -> None:
    port = free_port()
    source = RedisStream(f"redis+{mode}://ann:Secret-7@127.0.0.1:{port}{end}", "orders", group="shop")
    for act in (lambda: source.connect().read(1, 0.01), lambda: source.publisher().publish([Message("1", b"", {})])):
        with pytest.raises(redis.ConnectionError, match=message.format(port=port)) as caught:
            act()
        assert "\n" not in str(caught.value)
        assert "Secret-7" not in str(caught.value)


def test_a_cluster_has_all_its_nodes_and_one_login() -> None:
    address = RedisAddress.parse("rediss+cluster://ann:a%40b@n1:7000,n2,[::1]:7002?ssl_ca_certs=/ca.pem")
    assert address.nodes == (("n1", 7000), ("n2", 6379), ("::1", 7002))
    assert address.url == "rediss://ann:a%40b@n1:7000/?ssl_ca_certs=/ca.pem"
    assert (address.mode, address.is_tls, address.user) == ("cluster", True, "ann")


def test_sentinels_have_a_master_and_a_database() -> None:
    address = RedisAddress.parse("valkey+sentinel://s1,s2:5000/mymaster/2")
    assert address.nodes == (("s1", 26379), ("s2", 5000))
    assert (address.mode, address.service, address.url) == ("sentinel", "mymaster", "redis://s1:26379/2")


def test_other_addresses_are_passed_to_the_client_unchanged() -> None:
    assert RedisAddress.parse("valkeys://h:1/0") == ("single", "rediss://h:1/0", (), "")
    assert RedisAddress.parse("unix:///run/redis.sock?db=1").servers == "/run/redis.sock"
    assert RedisAddress.parse("redis://ann:pw@h").servers == "h:6379"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://h", "must begin with redis://"),
        ("redis+ring://h", "must begin with redis://"),
        ("unix+cluster:///run/s", "must begin with redis://"),
        ("redis+sentinel://ann:Secret-7@h:26379", "must end with the name of the master"),
        ("redis+cluster://ann:Secret-7@h:7000/3", "a cluster has only the database 0, not '3'"),
        ("redis+cluster://ann:Secret-7@h:port", "each server must be host or host:port"),
        ("redis+cluster://", "each server must be host or host:port"),
    ],
)
def test_an_invalid_address_is_rejected_without_its_password(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        RedisStream(url, "orders", group="shop")
    assert "Secret-7" not in str(caught.value)
