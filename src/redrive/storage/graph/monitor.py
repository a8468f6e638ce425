"""Monitor: an operation that goes on at the service, looked at until it ends or its time is up."""

from __future__ import annotations

from ...core.context import clock_around
from ...core.retry_after import retry_after
from ...engine.attempt import current
from ...errors import AlreadyExists, Denied, NotFound, StorageError, Unavailable
from .failure import failed, fields
from .sender import Sender

FIRST, LONGEST = 1.0, 30.0
"""Seconds between two looks: doubled from the first to the longest."""
KINDS: dict[str, type[StorageError]] = {
    "accessDenied": Denied,
    "itemNotFound": NotFound,
    "nameAlreadyExists": AlreadyExists,
    "resourceLocked": Denied,
}


def watch(sender: Sender, url: str, path: str, timeout: float) -> None:
    """Wait until the operation has ended. Bounded by its own timeout and by the deadline around: it may take minutes where a
    request takes seconds. Each look is one request, with the attempts of the policy.

    Its address is a key of its own: no token goes there.
    """
    clock = clock_around()
    left = current().remaining
    end = clock.monotonic() + (timeout if left is None else min(timeout, left))
    wait = FIRST
    while True:
        done, asked = _look(sender, url, path)
        if done:
            return
        pause = max(wait, asked)
        if clock.monotonic() + pause > end:
            over = f"after {timeout:g} s, and was not waited for (copy_timeout)"
            if left is not None and left < timeout:
                over = "after the deadline around the call, and was not waited for"
            message = f"{sender.name}: {path!r}: it goes on {over}"
            raise Unavailable(message, path=path, backend=sender.name)
        clock.sleep(pause)
        wait = min(LONGEST, wait * 2)


def _look(sender: Sender, url: str, path: str) -> tuple[bool, float]:
    """Has it ended, and how long does the service want to be left alone?"""
    response = sender.send("GET", url, path, authorized=False)
    asked = retry_after(response.headers) or 0.0
    if 300 <= response.status_code < 400:
        return True, 0.0  # to the item that was made
    if response.status_code >= 400:
        raise failed(response, path=path, backend=sender.name)
    content = fields(response)
    status = str(content.get("status", ""))
    if status in ("failed", "deleteFailed", "cancelled"):
        said = content.get("error")
        code = str(said.get("code", status)) if isinstance(said, dict) else status
        kind = KINDS.get(code, StorageError)
        raise kind(f"{sender.name}: {path!r} was not done: {code}", path=path, backend=sender.name)
    return status == "completed", asked
