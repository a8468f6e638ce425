"""A stored response is replayed only to its own caller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App

REJECTED = 422


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}") as opened:
        yield opened


class Shop:
    """An application that responds with its number of calls."""

    def __init__(self, status: int = 200) -> None:
        self.calls = 0
        self.status = status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": str(self.calls).encode()})


def send(
    asgi: Any, *headers: tuple[str, str], body: bytes = b"{}", method: str = "POST", key: str | None = "k"
) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def keep(message: Any) -> None:
        sent.append(message)

    given = [(name.encode(), value.encode()) for name, value in headers]
    given += [] if key is None else [(b"idempotency-key", key.encode())]
    asyncio.run(asgi({"type": "http", "method": method, "path": "/pay", "headers": given}, receive, keep))
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.req("I-4")
@pytest.mark.filterwarnings("ignore:idempotency. requests carry")
@pytest.mark.parametrize(
    ("name", "ann", "bob"),
    [
        ("authorization", "Bearer a", "Bearer b"),
        ("cookie", "session=a", "session=b"),
        ("x-api-key", "a", "b"),
        ("Api-Key", "a", "b"),
        ("x-auth-token", "a", "b"),
        ("x-amz-security-token", "a", "b"),
        ("host", "a.example.com", "b.example.com"),
        ("x-forwarded-host", "a.example.com", "b.example.com"),
        ("x-user-id", "a", "b"),
        ("x-tenant-id", "a", "b"),
        ("x-remote-user", "a", "b"),
        ("x-goog-authenticated-user-email", "a", "b"),
    ],
)
def test_callers_identified_by_a_header_have_their_own_responses(app: App, name: str, ann: str, bob: str) -> None:
    shop = Shop()
    asgi = app.idempotency(shop)
    assert send(asgi, (name, ann)) == (200, b"1")
    assert send(asgi, (name, bob))[0] == REJECTED
    assert send(asgi)[0] == REJECTED
    assert send(asgi, (name, ann)) == (200, b"1")
    assert shop.calls == 1


@pytest.mark.parametrize("name", ["user-agent", "x-request-id", "traceparent", "accept", "x-csrf-token", "date"])
def test_anonymous_headers_may_differ_in_a_retry(app: App, name: str) -> None:
    asgi = app.idempotency(Shop())
    assert send(asgi, (name, "1")) == send(asgi, (name, "2")) == (200, b"1")


def test_a_cookie_without_user_warns(app: App) -> None:
    with pytest.warns(RuntimeWarning, match="pass user="):
        send(app.idempotency(Shop()), ("cookie", "session=a"))


@pytest.mark.parametrize("unknown", [None, False])
def test_an_unknown_user_is_rejected(app: App, unknown: Any) -> None:
    shop = Shop()
    with pytest.warns(RuntimeWarning, match="user= returned"):
        status, _ = send(app.idempotency(shop, user=lambda scope: unknown))
    assert (status, shop.calls, app.keys().page()) == (401, 0, [])


def test_an_empty_user_is_anonymous_and_its_credentials_are_compared(app: App) -> None:
    asgi = app.idempotency(Shop(), user=lambda scope: "")
    assert send(asgi, ("authorization", "Bearer a")) == (200, b"1")
    assert send(asgi, ("authorization", "Bearer b"))[0] == REJECTED


@pytest.mark.parametrize("user", ["a\x00b", "a\nb", "x" * 10_000])
def test_a_user_that_cannot_be_part_of_a_key_is_a_400(app: App, user: str) -> None:
    shop = Shop()
    assert send(app.idempotency(shop, user=lambda scope: user))[0] == 400
    assert shop.calls == 0


def test_user_ids_may_be_numbers(app: App) -> None:
    send(app.idempotency(Shop(), user=lambda scope: 7))
    assert [record.user_id for record in app.keys().page()] == ["7"]


def test_method_names_are_compared_without_case(app: App) -> None:
    shop = Shop()
    assert send(app.idempotency(shop, required=True), method="post", key=None)[0] == 400
    assert shop.calls == 0


@pytest.mark.parametrize("status", [400, 404, 405, 422])
def test_rejected_requests_leave_no_rows(app: App, status: int) -> None:
    asgi = app.idempotency(Shop(status))
    for number in range(5):
        assert send(asgi, key=f"k{number}")[0] == status
    assert app.keys().page() == []


def test_free_on_chooses_which_statuses_are_stored(app: App) -> None:
    asgi = app.idempotency(Shop(404), free_on={503})
    assert send(asgi) == send(asgi) == (404, b"1")
    with pytest.raises(ValueError, match="free_on= must be a collection of HTTP statuses"):
        app.idempotency(Shop(), free_on="5xx")  # type: ignore[arg-type]


def test_a_multipart_retry_with_another_boundary_is_the_same_request(app: App) -> None:
    def form(boundary: str, value: str) -> tuple[tuple[str, str], bytes]:
        part = f'--{boundary}\r\ncontent-disposition: form-data; name="a"\r\n\r\n{value}\r\n--{boundary}--\r\n'
        return ("content-type", f"multipart/form-data; boundary={boundary}"), part.encode()

    asgi = app.idempotency(Shop())
    for boundary in ("one", "another"):
        header, body = form(boundary, "1")
        assert send(asgi, header, body=body) == (200, b"1")
    header, body = form("third", "2")
    assert send(asgi, header, body=body)[0] == REJECTED


def test_request_chooses_the_compared_fields(app: App) -> None:
    asgi = app.idempotency(Shop(), request=lambda scope, body: body[:1])
    assert send(asgi, body=b"ab") == send(asgi, body=b"ac") == (200, b"1")
    assert send(asgi, body=b"b")[0] == REJECTED
    assert send(asgi, ("authorization", "Bearer b"), body=b"ab")[0] == REJECTED
