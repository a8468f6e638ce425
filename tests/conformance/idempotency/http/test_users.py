"""The users of each framework have separate keys, and a stored response is replayed only to its own caller."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App
from tests.acceptance.idempotency.served import Client

from .shop import Shops, World

pytestmark = pytest.mark.req("X-3")
REJECTED = 422


def sign_in(client: Client, name: str) -> dict[str, str]:
    """Sign a user in, as the framework does it, and return the headers of this user."""
    answer = client.send(f"/login/{name}", b"")
    if answer.status == 404:  # the shop has no sessions
        return {"authorization": f"Bearer {name}"}
    assert answer.status == 200, answer
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_users_of_the_framework_have_separate_keys(client: Client, app: App, world: World, key: str) -> None:
    ann, bob = sign_in(client, "ann"), sign_in(client, "bob")
    numbers = [client.send("/charge", key=key, headers=user).json["number"] for user in (ann, bob, ann, bob)]
    assert numbers == [1, 2, 1, 2]
    anonymous = client.send("/charge", key=key)
    assert (anonymous.status, anonymous.replayed) == (201, False)
    records = [record for record in app.keys().page() if key.strip('"') in record.key]
    assert len({record.user_id for record in records}) == 3
    assert client.send("/charge", b"other", key, headers=ann).status == REJECTED


def test_a_new_session_of_a_user_gets_the_stored_response(client: Client, world: World, key: str) -> None:
    for expected in (False, True):
        assert client.send("/charge", key=key, headers=sign_in(client, "eve")).replayed is expected
    assert len(world.calls) == 1


def test_users_of_two_hosts_do_not_share_responses(client: Client, world: World, key: str) -> None:
    """With a database for each host, both may have a user with this id."""
    ann = sign_in(client, "ann")
    assert client.send("/charge", key=key, headers=ann).status == 201
    for name in ("host", "x-forwarded-host"):
        assert client.send("/charge", key=key, headers={**ann, name: "other.example"}).status == REJECTED
    assert len(world.calls) == 1


def test_user_may_be_a_function(shops: Shops, app: App, world: World, key: str) -> None:
    client = shops.serve(user=True, domain="shop")
    numbers = [client.send("/charge", key=key, headers={"x-user": name}).json["number"] for name in ("ann", "bob", "ann")]
    assert numbers == [1, 2, 1]
    records = [(record.domain, record.user_id) for record in app.keys().page() if key.strip('"') in record.key]
    assert records == [("shop", "ann"), ("shop", "bob")]


def test_an_empty_user_is_anonymous_and_its_credentials_are_compared(shops: Shops, world: World, key: str) -> None:
    client = shops.serve(user=True, domain="shop")
    answers = [client.send("/charge", key=key, headers={"authorization": f"Bearer {token}"}) for token in "aab"]
    assert [(answer.status, answer.replayed) for answer in answers] == [(201, False), (201, True), (REJECTED, False)]


@pytest.mark.req("I-4")
@pytest.mark.filterwarnings("ignore:idempotency. requests carry")
def test_headers_distinguish_anonymous_callers(shops: Shops, world: World, key: str) -> None:
    client = shops.serve(user=None)
    for name in (
        "authorization", "cookie", "x-api-key", "Api-Key", "x-auth-token", "x-amz-security-token", "host",
        "x-forwarded-host", "x-user-id", "x-tenant-id", "x-remote-user", "x-goog-authenticated-user-email",
    ):  # fmt: skip
        world.reset()
        own = f'{key[:-1]}-{name}"'
        first = client.send("/charge", key=own, headers={name: "a.example"})
        assert first.json["number"] == 1, name
        assert client.send("/charge", key=own, headers={name: "b.example"}).status == REJECTED
        assert client.send("/charge", key=own).status == REJECTED
        assert client.send("/charge", key=own, headers={name: "a.example"}).body == first.body
        assert len(world.calls) == 1


def test_anonymous_headers_may_differ_in_a_retry(client: Client, world: World, key: str) -> None:
    for number, name in enumerate(("user-agent", "x-request-id", "traceparent", "accept", "x-csrf-token", "date")):
        assert client.send("/charge", key=key, headers={name: str(number)}).status == 201
    assert len(world.calls) == 1


def test_a_cookie_without_user_warns(shops: Shops, world: World, key: str) -> None:
    with pytest.warns(RuntimeWarning, match="pass user="):
        shops.serve(user=None).send("/charge", key=key, headers={"cookie": "session=a"})


@pytest.mark.parametrize("unknown", [None, False])
def test_an_unknown_user_is_rejected(shops: Shops, world: World, app: App, key: str, unknown: Any) -> None:
    client = shops.serve(user=UserIs(unknown))
    with pytest.warns(RuntimeWarning, match="user= returned"):
        assert client.send("/charge", key=key).status == 401
    assert world.calls == []


@pytest.mark.parametrize("user", ["a\x00b", "a\nb", "x" * 10_000])
def test_a_user_that_cannot_be_part_of_a_key_is_a_400(shops: Shops, world: World, key: str, user: str) -> None:
    assert shops.serve(user=UserIs(user)).send("/charge", key=key).status == 400
    assert world.calls == []


def test_user_ids_may_be_numbers(shops: Shops, world: World, app: App, key: str) -> None:
    assert shops.serve(user=UserIs(7)).send("/charge", key=key).status == 201
    assert [record.user_id for record in app.keys().page() if key.strip('"') in record.key] == ["7"]


class UserIs:
    """A function for `user=`, whatever its arguments are."""

    def __init__(self, user: Any) -> None:
        self._user = user

    def __call__(self, *_: object) -> Any:
        return self._user

    def __repr__(self) -> str:
        return f"UserIs({self._user!r:.20})"


def test_multipart_retries_may_have_another_boundary(client: Client, world: World, key: str) -> None:
    def send(boundary: str, value: str) -> int:
        part = f'--{boundary}\r\ncontent-disposition: form-data; name="a"\r\n\r\n{value}\r\n--{boundary}--\r\n'
        headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
        return client.send("/charge", part.encode(), key, headers=headers).status

    assert [send("one", "1"), send("another", "1"), send("third", "2")] == [201, 201, REJECTED]
    assert len(world.calls) == 1
