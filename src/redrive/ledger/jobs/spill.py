"""Spill: what a call gave up on becomes a durable job, with its history."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core.codec import to_bytes
from ...core.codec.codec import Arguments
from ...core.context import clock_around
from ...core.key import Key, KeyLike, KeyOf, Template
from ...engine.spill import Spill, Spilled
from ..record import NewJob
from ..validation import MAX_KIND, name

if TYPE_CHECKING:
    from ..ledger import Ledger

HEADER = "redrive-"
"""What a spilled job's headers begin with that say what was tried before."""


class LeaveBehind:
    """Makes a job of what a retried call gave up on: `retry(spill=app.spill("crm.sync"))`. Immutable: anything may share it."""

    __slots__ = ("_key", "_kind", "_ledger")

    def __init__(self, ledger: Callable[[], Ledger], kind: str, key: Key | KeyOf | None) -> None:
        name("kind", kind, MAX_KIND)
        if key is not None and not isinstance(key, (Key, str)) and not callable(key):
            raise TypeError(
                f"key= must be a Key, a template such as 'crm:{{user}}:{{contact}}:sync:v1', or a function, not {key!r}"
            )
        self._ledger = ledger
        self._kind = kind
        self._key = key

    def over(self, fn: Callable[..., Any], /) -> Spill:
        """For calls of this function; TypeError or ValueError where its arguments cannot be stored, or the key is not of them."""
        arguments = Arguments(fn)
        key_of = self._key_maker(fn)

        def spill(spilled: Spilled) -> str:
            key = key_of(spilled)
            job = new_job(self._kind, key, to_bytes(arguments.dump(spilled.args, spilled.kwargs)), spilled)
            return str(self._ledger().submit(job).id)

        return spill

    def __call__(self, _spilled: Spilled, /) -> str:
        """Not by itself: without its function nobody can say how the arguments are stored."""
        raise TypeError("app.spill(...) cannot be called here; pass it to retry(spill=...)")

    def _key_maker(self, fn: Callable[..., Any]) -> Callable[[Spilled], KeyLike | None]:
        key = self._key
        if key is None:
            return lambda spilled: spilled.key
        if isinstance(key, Key):
            return lambda _spilled: key
        if isinstance(key, str):
            template = Template.over(key, fn)
            return lambda spilled: template.key(spilled.args, spilled.kwargs)
        return lambda spilled: key(*spilled.args, **spilled.kwargs)


def new_job(kind: str, key: KeyLike | None, payload: bytes, spilled: Spilled, /) -> NewJob:
    """The job: due when trying again makes sense, once for its key; without a key, every one is new work."""
    left = 0.0 if spilled.retry_at is None else (spilled.retry_at - clock_around().now()).total_seconds()
    return NewJob(
        kind=kind,
        key=uuid.uuid4().hex if key is None else str(key),
        payload=payload,
        delay=max(0.0, left),  # as seconds from now: the database's clock is not this machine's
        headers=history(spilled),
    )


def history(spilled: Spilled, /) -> dict[str, str]:
    """What was tried before, as headers of the job: shown with it, and kept with its dead letter."""
    found = {
        "operation": spilled.operation,
        "error": f"{spilled.error}: {spilled.message}",
        "reason": spilled.reason,
        "attempts": str(spilled.attempts),
        "elapsed": f"{spilled.elapsed:.3f}",
        "history": json.dumps([[error, round(wait, 3)] for error, wait in spilled.history]) if spilled.history else None,
    }
    return {f"{HEADER}{key}": value for key, value in found.items() if value is not None}
