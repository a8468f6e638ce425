"""The stored form of a response."""

from __future__ import annotations

from redrive.idempotency.response import RecordedResponse, dump_within


def test_a_response_that_is_too_large_is_stored_without_its_body() -> None:
    response = RecordedResponse(201, [(b"A", b"1"), (b"Set-Cookie", b"s"), (b"connection", b"close")], b"\x00" * 100)
    assert RecordedResponse.load(response.dump()) == RecordedResponse(201, [(b"A", b"1")], b"\x00" * 100)
    assert RecordedResponse.load(dump_within(response, limit=100)) == RecordedResponse(201, [(b"A", b"1")], None)
    assert RecordedResponse.load(dump_within(response._replace(headers=[(b"A", b"1" * 5000)]), limit=100)) == RecordedResponse(
        201, [], None
    )
