"""Requests with the Idempotency-Key header, in each framework on a real server, by the rules of the IETF draft."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from redrive import App
from redrive.idempotency.record import KeyRecord
from tests.acceptance.idempotency.served import Answer, Client

from .shop import PIECE, Shops, World

pytestmark = [
    pytest.mark.req("I-4", "X-3"),
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume:Warning"),  # Django, of files under ASGI
]
PROBLEM = "application/problem+json"


def record_of(app: App, key: str) -> KeyRecord | None:
    """The stored record of an anonymous caller."""
    return app.keys().find(f"http::{key.strip(chr(34))}:request:v1")


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_retry_gets_the_stored_response(client: Client, world: World, app: App, key: str) -> None:
    first = client.send("/charge", b'{"cents":1}', key)
    again = client.send("/charge", b'{"cents":1}', key)
    assert (first.status, first.json) == (again.status, again.json) == (201, {"number": 1, "body": '{"cents":1}'})
    assert (first.replayed, again.replayed) == (False, True)
    assert again.headers["x-number"] == "1"
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["content-length"] == str(len(again.body))
    assert "set-cookie" in first.headers
    assert "set-cookie" not in again.headers  # would revive a session
    bare = key.strip('"')
    assert world.calls == [f"http::{bare}:request:v1"]
    record = record_of(app, key)
    assert record is not None
    assert b"secret" not in (record.response or b"secret")
    assert client.send("/charge", b'{"cents":1}', bare).replayed  # the same key without quotes


def test_a_request_without_a_key_runs_each_time(shops: Shops, client: Client, world: World, key: str) -> None:
    assert [client.send("/charge").json["number"] for _ in range(2)] == [1, 2]
    assert client.send("/charge", key=key, method="GET", body=b"").json == 3  # safe methods need none
    refused = shops.serve(required=True).send("/charge")
    assert (refused.status, refused.headers["content-type"]) == (400, PROBLEM)
    assert refused.json["title"] == "Idempotency-Key is missing"
    assert len(world.calls) == 3


def test_another_payload_is_rejected(client: Client, world: World, key: str) -> None:
    client.send("/charge", b'{"cents":1}', key)
    for other in (
        client.send("/charge", b'{"cents":2}', key),
        client.send("/charge?x=1", b'{"cents":1}', key),
        client.send("/status", b'{"cents":1}', key),
        client.send("/charge", b'{"cents":1}', key, headers={"content-type": "text/plain"}),
        client.send("/charge", b'{"cents":1}', key, headers={"x-tenant": "other"}),
    ):
        assert (other.status, other.headers["content-type"]) == (422, PROBLEM)
        assert other.json["title"] == "Idempotency-Key is already used"
    assert len(world.calls) == 1


def test_request_chooses_the_compared_part(shops: Shops, world: World, key: str) -> None:
    client = shops.serve(request=True)
    assert client.send("/charge", b"ab", key).body == client.send("/charge", b"ac", key).body
    assert client.send("/charge", b"b", key).status == 422
    assert len(world.calls) == 1


def test_a_running_request_is_a_409(client: Client, world: World, key: str) -> None:
    world.go.clear()
    answers: list[Answer] = []
    first = threading.Thread(target=lambda: answers.append(client.send("/charge", key=key)))
    first.start()
    until(lambda: bool(world.calls))
    busy = client.send("/charge", key=key)
    world.go.set()
    first.join(30)
    assert (busy.status, busy.headers["content-type"]) == (409, PROBLEM)
    assert 1 <= int(busy.headers["retry-after"]) <= 30
    assert busy.json["title"] == "A request is outstanding for this Idempotency-Key"
    assert answers[0].status == 201
    assert client.send("/charge", key=key).replayed
    assert len(world.calls) == 1


@pytest.mark.req("I-3")
def test_statuses_decide_whether_responses_are_stored(client: Client, world: World, key: str) -> None:
    stored = (200, 204, 303, 402, 409, 410, 412)
    for status in (*stored, 400, 401, 403, 404, 405, 408, 415, 422, 425, 429, 500, 502, 503):
        world.reset()
        world.status = status
        answers = [client.send("/status", key=f'{key[:-1]}-{status}"') for _ in range(2)]
        assert [answer.status for answer in answers] == [status, status]
        assert answers[1].replayed is (status in stored), status
        assert len(world.calls) == (1 if status in stored else 2)


def test_free_on_chooses_which_statuses_are_stored(shops: Shops, world: World, key: str) -> None:
    client = shops.serve(free_on=(503,))
    world.status = 404
    assert [client.send("/status", key=key).replayed for _ in range(2)] == [False, True]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_exception_frees_the_key(client: Client, world: World, key: str) -> None:
    assert client.send("/raises", key=key).status == 500
    answers = [client.send("/raises", key=key) for _ in range(2)]
    assert [(answer.status, answer.replayed) for answer in answers] == [(409, False), (409, True)]
    assert len(world.calls) == 2


def test_an_unknown_path_stores_nothing(client: Client, app: App, key: str) -> None:
    assert client.send("/unknown", key=key).status == 404
    assert record_of(app, key) is None


def test_an_invalid_key_is_a_400(client: Client, world: World) -> None:
    for key in ('"open', '""', "a b", "a,b", '"a"b"', "x" * 256, '"ä"'):
        refused = client.send("/charge", key=key)
        assert (refused.status, refused.headers["content-type"]) == (400, PROBLEM), key
        assert refused.json["title"] == "Idempotency-Key is not valid"
    assert world.calls == []


def test_binary_bodies_are_replayed(client: Client, key: str) -> None:
    first, again = (client.send("/binary", b"\xfe", key) for _ in range(2))
    assert first.body == again.body == b"\x00\xff\xfe"
    assert again.replayed


def test_files_are_replayed(client: Client, world: World, key: str) -> None:
    first, again = (client.send("/file", key=key) for _ in range(2))
    assert first.body == again.body
    assert first.body.startswith(b'"""One shop')
    assert world.calls == ["file"]


def test_sizes_are_bounded(shops: Shops, world: World, key: str) -> None:
    client = shops.serve(max_body=2500)
    assert client.send("/stream/3", key=key).body == PIECE * 3
    again = client.send("/stream/3", key=key)
    assert (again.status, again.replayed, again.json["title"]) == (409, True, "The response was not stored")
    other = key[:-1] + '-file"'
    assert client.send("/file", key=other).status == 200
    assert client.send("/file", key=other).status == 409
    assert world.calls == ["stream", "stream ended", "file"]
    refused = client.send("/charge", b"x" * 2501, key[:-1] + '-large"')
    assert (refused.status, refused.headers["content-type"]) == (413, PROBLEM)


def test_keys_are_required_only_for_the_configured_paths_and_methods(shops: Shops, world: World) -> None:
    client = shops.serve(required=True, paths="/char*", methods=("post",))
    assert client.send("/charge").status == 400
    assert client.send("/status").status == 200
    assert client.send("/charge", method="GET", body=b"").status == 200


def test_get_and_head_may_take_keys(shops: Shops, world: World, key: str) -> None:
    client = shops.serve(methods=("GET", "HEAD"))
    for method in ("GET", "HEAD"):
        answers = [client.send("/charge", b"", f'{key[:-1]}-{method}"', method) for _ in range(2)]
        assert [answer.replayed for answer in answers] == [False, True]
        assert answers[0].body == answers[1].body
        assert answers[0].headers["content-length"] == answers[1].headers["content-length"]
    refused = client.send("/charge", b"", "a b", "HEAD")
    assert (refused.status, refused.body) == (400, b"")
    assert world.calls == ["get", "head"]


def test_a_chunked_request_is_read_to_its_end(client: Client, world: World, key: str) -> None:
    first, again = (client.send("/charge", iter([b"one ", b"two"]), key) for _ in range(2))
    assert first.json["body"] == "one two"
    assert again.replayed
    assert client.send("/charge", iter([b"one ", b"three"]), key).status == 422
    assert len(world.calls) == 1


def test_a_chunked_request_that_is_too_large_is_a_413(shops: Shops, world: World, key: str) -> None:
    client = shops.serve(max_body=2500)
    assert client.send("/charge", iter([b"x" * 1000] * 3), key).status == 413
    assert world.calls == []
