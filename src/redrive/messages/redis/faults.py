"""`explain` turns errors of Redis into one line with the thing, the problem and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...core.lazy import deferred
from .address import RedisAddress

if TYPE_CHECKING:
    from redis import exceptions, sentinel
else:  # the extra may be missing
    exceptions, sentinel = deferred("redis", "exceptions", "sentinel")

_COMMAND = re.compile(r"permissions to run the '([^']+)'")
_USER = re.compile(r"User (\S+) has no")


def explain(error: Exception, address: RedisAddress, key: str, /) -> Exception:
    """Return the error for users, or the same error if it needs no explanation.

    `key` is the stream that was used. The new error has no secrets.
    """
    server = f"Redis server {address.servers}"
    for cause in _causes(error):
        text = str(cause)
        if isinstance(cause, exceptions.NoPermissionError) or text.startswith("NOPERM"):
            return exceptions.NoPermissionError(f"{server}: {_missing_right(text, address, key)}")
        if isinstance(cause, exceptions.AuthenticationError) or text.startswith("NOAUTH"):
            return exceptions.AuthenticationError(
                f"{server}: the login was rejected; check user and password in the address"
            )
        if "CERTIFICATE" in text or "[SSL" in text:
            return exceptions.ConnectionError(
                f"{server}: TLS failed: {_first_line(text)}; set ?ssl_ca_certs=/path/ca.pem in the "
                "address, and ssl_certfile= and ssl_keyfile= if the server asks for a certificate"
            )
        # Clients of a single server have classes for these errors since redis-py 6.
        is_elsewhere = isinstance(cause, exceptions.AskError) or text.startswith(("MOVED ", "ASK "))
        if is_elsewhere and address.mode == "single":
            scheme = "rediss" if address.is_tls else "redis"
            return exceptions.ResponseError(
                f"{server} is a node of a cluster, and another node has the stream {key!r}; use "
                f"the address {scheme}+cluster://{address.servers}"
            )
        if isinstance(cause, sentinel.MasterNotFoundError):
            return sentinel.MasterNotFoundError(
                f"no Sentinel of {address.servers} knows a running master {address.service!r}; "
                "check that they run, and the name at the end of the address"
            )
    if "Cluster mode is not enabled" in str(error):
        return exceptions.ResponseError(
            f"{server} is not a cluster; use an address that begins with "
            f"{'rediss' if address.is_tls else 'redis'}://"
        )
    if "unknown command 'SENTINEL'" in str(error):
        return exceptions.ResponseError(
            f"{server} is not a Sentinel; use an address of one, or begin it with "
            f"{'rediss' if address.is_tls else 'redis'}://"
        )
    if address.is_tls and any(isinstance(cause, FileNotFoundError) for cause in _causes(error)):
        return exceptions.ConnectionError(
            f"{server}: TLS failed: a certificate file does not exist; check the paths in "
            "ssl_ca_certs=, ssl_certfile= and ssl_keyfile= of the address"
        )
    is_away = isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError))
    if is_away and server not in str(error):
        hint = ", or use redis:// if it has no TLS" if address.is_tls else ""
        problem = _first_line(str(error))
        return type(error)(
            f"{server} cannot be reached ({problem}); start it, or correct the address{hint}"
        )
    if isinstance(error, exceptions.RedisClusterException):
        return exceptions.ConnectionError(
            f"Redis cluster {address.servers} cannot be reached; check that its nodes run "
            f"({_first_line(str(error))})"
        )
    return error


def _missing_right(text: str, address: RedisAddress, key: str) -> str:
    """Return which right is missing, and the command that grants it."""
    found = _USER.search(text)
    user = found[1] if found else address.user
    command = _COMMAND.search(text)
    if command:
        right = command[1].lower()
        return f"user {user!r} must not run {right.upper()}; run: ACL SETUSER {user} +{right}"
    return f"user {user!r} must not access the key {key!r}; run: ACL SETUSER {user} ~{key}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes. redis-py hides the first error of a cluster in others."""
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].rstrip(".")
