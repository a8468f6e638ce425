"""Errors of one cause have one signature."""

from __future__ import annotations

import httpx
import psycopg
import pytest
from botocore.exceptions import ClientError

from redrive.core.classification.signature import MAX_SIGNATURE_CHARS, signature


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no answer from 10.0.0.7:8080 after 3.5 s", "no answer from 10.0.0.19:8080 after 12 s"),
        ("user 'ann' is unknown", "user 'bob' is unknown"),
        ("job 6f1c2d3e-1111-4222-8333-444455556666 failed", "job 00000000-1111-4222-8333-999955556666 failed"),
        ("GET https://api.example.org/orders/17?x=1: 503", "GET https://api.example.org/orders/9: 503"),
        ("order ord_8f3kd92 is gone", "order ord_1aa7772 is gone"),
        ("mail to ann@example.org bounced", "mail to bob.b@example.com bounced"),
        ("it doesn't know 'ann', who isn't here", "it doesn't know 'bob', who isn't here"),
        ("not 'O'Neill', please", "not 'ann', please"),
        ("bytes b'ab' are no text", "bytes b'xyz' are no text"),
        ("no such ids: [1, 22, 'x', None]", "no such ids: [3]"),
        ("cannot read {'a': 1, 'b': [2.5, -1]}", "cannot read {'z': true}"),
    ],
)
def test_values_that_differ_between_jobs_do_not_change_the_signature(one: str, other: str) -> None:
    assert signature(ValueError(one)) == signature(ValueError(other))


def status_error(status: int, url: str) -> httpx.HTTPStatusError:
    """As httpx raises it."""
    with pytest.raises(httpx.HTTPStatusError) as caught:
        httpx.Response(status, request=httpx.Request("GET", url)).raise_for_status()
    return caught.value


@pytest.mark.req("L-7")
def test_statuses_are_different_causes_at_any_address() -> None:
    statuses = (404, 401, 422, 410, 403)
    errors = [status_error(status, f"https://ann:secret@api.example.org/orders/{status}7?token=x") for status in statuses]
    assert [signature(error) for error in errors] == [
        f"HTTPStatusError: Client error {status} for url https://api.example.org/…" for status in statuses
    ]
    assert signature(status_error(404, "https://api.example.org/a/1")) == signature(
        status_error(404, "https://api.example.org/b/2?c=3")
    )


@pytest.mark.req("L-7")
def test_hosts_are_different_causes() -> None:
    assert signature(status_error(503, "https://a.example.org/x")) != signature(status_error(503, "https://b.example.org/x"))
    one, other = (ValueError(f"HTTPSConnectionPool(host='{host}', port=443): Max retries") for host in ("a.org", "b.org"))
    assert signature(one) == "ValueError: HTTPSConnectionPool(host=a.org, port=#): Max retries"
    assert signature(one) != signature(other)
    timeouts = [httpx.ConnectTimeout("timed out", request=httpx.Request("GET", f"https://{host}/1")) for host in "ab"]
    assert [signature(error) for error in timeouts] == ["ConnectTimeout (a): timed out", "ConnectTimeout (b): timed out"]


@pytest.mark.req("L-7")
@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("404 Client Error: Not Found for url: https://a.org/x/1", "404 Client Error: Not Found for url: https://a.org/…"),
        ("422 checksum mismatch", "422 checksum mismatch"),
        ("GET https://api.example.org/orders/17?x=1: 503", "GET https://api.example.org/…: 503"),
        ("(see https://api.example.org/17).", "(see https://api.example.org/…)."),
        ("404, message='Not Found', url='https://q.org/a'", "404, message=…, url=https://q.org/…"),
        ("HTTP 503 from b", "HTTP 503 from b"),
        ("status code 502 (id 7)", "status code 502 (id #)"),
        ("Error code: 429 - {'a': 1}", "Error code: 429 - {…}"),
        ("[Errno 111] Connect call failed ('10.0.0.7', 8080)", "[Errno 111] Connect call failed (…, #)"),
        ("order 417 failed", "order # failed"),
        ("got 500 rows, not 502", "got # rows, not #"),
    ],
)
def test_statuses_hosts_and_errno_are_kept_in_a_message(message: str, kept: str) -> None:
    assert signature(ValueError(message)) == f"ValueError: {kept}"


@pytest.mark.req("L-7")
def test_error_codes_are_kept_also_of_a_wrapped_error() -> None:
    duplicate = psycopg.errors.UniqueViolation('duplicate key in "orders_pkey"')
    assert signature(duplicate) == "UniqueViolation (23505): duplicate key in …"
    slow = {"Error": {"Code": "SlowDown", "Message": "x"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
    assert signature(ClientError(slow, "PutObject")).startswith("ClientError (503): An error occurred (SlowDown)")
    wrapped = RuntimeError("sync failed")
    wrapped.__cause__ = status_error(404, "https://api.example.org/a/1")
    assert signature(wrapped) == "RuntimeError (404, api.example.org): sync failed"
    wrapped.__cause__ = wrapped
    assert signature(wrapped) == "RuntimeError: sync failed"


def test_different_types_and_messages_have_different_signatures() -> None:
    assert signature(ValueError("no answer")) != signature(TypeError("no answer"))
    assert signature(ValueError("no answer")) != signature(ValueError("no permission"))
    assert signature(ConnectionError("no answer after 3 s")) == "ConnectionError: no answer after # s"
    assert signature(ValueError()) == "ValueError"
    assert signature(ValueError("can't open it, won't close it")) == "ValueError: can't open it, won't close it"


def test_a_signature_is_short_and_never_raises() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert len(signature(ValueError("word " * 1000))) <= MAX_SIGNATURE_CHARS
    assert signature(Mute()).startswith("Mute")
