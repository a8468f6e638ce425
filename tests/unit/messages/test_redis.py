"""Errors of Redis in one line with the fix."""

from __future__ import annotations

import pytest
from redis import exceptions

from redrive.messages.redis.address import RedisAddress
from redrive.messages.redis.faults import explain


@pytest.mark.req("E-3")
@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        (
            "redis://r1:6379",
            exceptions.ConnectionError("Error 111 connecting to r1:6379. Connection refused."),
            (
                "Redis server r1:6379 cannot be reached (Error 111 connecting to r1:6379. Connection refused); "
                "start it, or correct the address"
            ),
        ),
        (
            "rediss://r1:6379",
            exceptions.TimeoutError("Timeout connecting to server"),
            (
                "Redis server r1:6379 cannot be reached (Timeout connecting to server); "
                "start it, or correct the address, or use redis:// if it has no TLS"
            ),
        ),
        (
            "redis+sentinel://r1:6379/main",
            exceptions.ResponseError("unknown command 'SENTINEL', with args beginning with: 'MASTERS'"),
            "Redis server r1:6379 is not a Sentinel; use an address of one, or begin it with redis://",
        ),
    ],
)
def test_an_error_names_the_server_and_the_fix(url: str, error: Exception, says: str) -> None:
    address = RedisAddress.parse(url)
    explained = explain(error, address, "orders")
    assert (type(explained), str(explained)) == (type(error), says)
    assert explain(explained, address, "orders") is explained, "once"


@pytest.mark.req("E-3")
def test_a_missing_certificate_file_is_named_as_the_problem() -> None:
    missing = FileNotFoundError(2, "No such file or directory")
    error = exceptions.ConnectionError("Error 2 connecting to r1:6379. No such file or directory.")
    error.__cause__ = missing
    explained = explain(error, RedisAddress.parse("rediss://r1:6379?ssl_ca_certs=/nowhere/ca.pem"), "orders")
    assert str(explained) == (
        "Redis server r1:6379: TLS failed: a certificate file does not exist; "
        "check the paths in ssl_ca_certs=, ssl_certfile= and ssl_keyfile= of the address"
    )
    over_a_socket = explain(error, RedisAddress.parse("redis://r1:6379"), "orders")
    assert "cannot be reached" in str(over_a_socket)
