"""Monitor: waits for a long-running operation of the service, such as a copy."""

from __future__ import annotations

from ...core.classification.retry_after import retry_after
from ...core.context import clock_around
from ...engine.attempt import current
from ...errors import AlreadyExists, Denied, NotFound, StorageError, Unavailable
from .client import GraphClient
from .errors import from_response, json_object

FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 1.0, 30.0
"""Waits between two polls, doubled from the first to the largest."""
ERROR_BY_CODE: dict[str, type[StorageError]] = {
    "accessDenied": Denied,
    "itemNotFound": NotFound,
    "nameAlreadyExists": AlreadyExists,
    "resourceLocked": Denied,
}


def wait_for_operation(client: GraphClient, url: str, path: str, timeout: float) -> None:
    """Poll an operation until it ends. Each poll is a request with the retries of the policy.

    The URL gives access by itself, so no token is sent. It raises Unavailable at the timeout, or at
    the deadline around the call.
    """
    clock = clock_around()
    remaining = current().remaining
    end = clock.monotonic() + (timeout if remaining is None else min(timeout, remaining))
    wait = FIRST_POLL_SECONDS
    while True:
        has_ended, server_wait = _poll(client, url, path)
        if has_ended:
            return
        pause = max(wait, server_wait)
        if clock.monotonic() + pause > end:
            limit = f"after {timeout:g} s, and was not waited for (copy_timeout)"
            if remaining is not None and remaining < timeout:
                limit = "after the deadline around the call, and was not waited for"
            message = f"{client.name}: {path!r}: it goes on {limit}"
            raise Unavailable(message, path=path, backend=client.name)
        clock.sleep(pause)
        wait = min(MAX_POLL_SECONDS, wait * 2)


def _poll(client: GraphClient, url: str, path: str) -> tuple[bool, float]:
    """Return whether the operation has ended, and the seconds that the service asks to wait."""
    response = client.send("GET", url, path, authorized=False)
    server_wait = retry_after(response.headers) or 0.0
    if 300 <= response.status_code < 400:
        return True, 0.0  # A redirect to the new item.
    if response.status_code >= 400:
        raise from_response(response, path=path, backend=client.name)
    content = json_object(response)
    status = str(content.get("status", ""))
    if status in ("failed", "deleteFailed", "cancelled"):
        error = content.get("error")
        code = str(error.get("code", status)) if isinstance(error, dict) else status
        error_class = ERROR_BY_CODE.get(code, StorageError)
        message = f"{client.name}: {path!r} was not done: {code}"
        raise error_class(message, path=path, backend=client.name)
    return status == "completed", server_wait
