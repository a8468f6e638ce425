"""Spill: a call that gave up becomes a durable job, with its history."""

from __future__ import annotations

import inspect
import json
import uuid
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core.callables import function_name
from ...core.codec import to_bytes
from ...core.codec.codec import Arguments
from ...core.context import clock_around
from ...core.key import Key, KeyLike, KeyOf, Template
from ...engine.spill import Spill, Spilled, check_not_ended
from ...errors import RedriveWarning
from ..model import NewJob
from ..validation import MAX_KIND_BYTES, check_name

if TYPE_CHECKING:
    from ..ledger import Ledger

HEADER_PREFIX = "redrive-"
"""Of the headers of a spilled job that describe the call."""


class SpillToJob:
    """Makes a job of a retried call that gave up: `retry(spill=app.spill("crm.sync"))`. Immutable.

    Args:
        ledger: Returns the ledger.
        kind: Job type.
        key: The job key, a template or function for it, or None: the key of the call.
    """

    __slots__ = ("_key", "_kind", "_ledger")

    def __init__(self, ledger: Callable[[], Ledger], kind: str, key: Key | KeyOf | None) -> None:
        check_name("kind", kind, MAX_KIND_BYTES)
        if key is not None and not isinstance(key, (Key, str)) and not callable(key):
            raise TypeError(
                "key= must be a Key, a template such as 'crm:{user}:{contact}:sync:v1', "
                f"or a function, not {key!r}"
            )
        self._ledger = ledger
        self._kind = kind
        self._key = key

    def over(self, fn: Callable[..., Any], /) -> Spill:
        """Return the spill for calls of this function.

        Raises:
            TypeError: An argument cannot be stored.
            ValueError: The key names an argument that the function does not have.
        """
        arguments = Arguments(fn)
        key_of = self._key_maker(fn)

        def spill(spilled: Spilled) -> str:
            key = key_of(spilled)
            payload = to_bytes(arguments.dump(spilled.args, spilled.kwargs))
            ledger = self._ledger()
            submitted = ledger.submit(new_job(self._kind, key, payload, spilled))
            check_not_ended(submitted, lambda: _state_of(ledger, submitted.id))
            return str(submitted.id)

        return spill

    def __call__(self, _spilled: Spilled, /) -> str:
        """Raise TypeError: without its function, it is not known how to store the arguments."""
        raise TypeError("app.spill(...) cannot be called here; pass it to retry(spill=...)")

    def _key_maker(self, fn: Callable[..., Any]) -> Callable[[Spilled], KeyLike | None]:
        key = self._key
        if key is None:
            return lambda spilled: spilled.key
        if isinstance(key, Key):
            _warn_of_constant(key, fn)
            return lambda _spilled: key
        if isinstance(key, str):
            template = Template.over(key, fn)
            if template.is_constant:
                _warn_of_constant(key, fn)
            return lambda spilled: template.key(spilled.args, spilled.kwargs)
        return lambda spilled: key(*spilled.args, **spilled.kwargs)


def _state_of(ledger: Ledger, job_id: int) -> str:
    row = ledger.get(job_id)
    return "done" if row is None else row.shown  # pruned since


def _warn_of_constant(key: KeyLike, fn: Callable[..., Any]) -> None:
    """Warn that calls with different arguments would be one job."""
    parameters = list(inspect.signature(fn).parameters)
    if not parameters:
        return
    name = function_name(fn)
    message = (
        f"redrive: app.spill for {name}: the key {str(key)!r} is the same for every call, so only "
        f"the first failed call becomes a job; name parameters in it, such as {{{parameters[0]}}}"
    )
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None:
        warnings.warn(message, RedriveWarning, stacklevel=2)
    else:  # The place of the function: the depth of the stack depends on how it was decorated.
        warnings.warn_explicit(message, RedriveWarning, code.co_filename, code.co_firstlineno)


def new_job(kind: str, key: KeyLike | None, payload: bytes, spilled: Spilled, /) -> NewJob:
    """Return the job, due when the call may be retried. Without a key, every call is a new job."""
    left = 0.0
    if spilled.retry_at is not None:
        left = (spilled.retry_at - clock_around().now()).total_seconds()
    return NewJob(
        kind=kind,
        key=uuid.uuid4().hex if key is None else str(key),
        payload=payload,
        delay=max(0.0, left),  # not `due`, because the ledger's clock is not this machine's
        headers=history(spilled),
    )


def history(spilled: Spilled, /) -> dict[str, str]:
    """Return the history of the call as headers, which a dead letter keeps."""
    waits = [[error, round(wait, 3)] for error, wait in spilled.history]
    values = {
        "operation": spilled.operation,
        "error": f"{spilled.error}: {spilled.message}",
        "reason": spilled.reason,
        "attempts": str(spilled.attempts),
        "elapsed": f"{spilled.elapsed:.3f}",
        "history": json.dumps(waits) if waits else None,
    }
    return {f"{HEADER_PREFIX}{key}": value for key, value in values.items() if value is not None}
