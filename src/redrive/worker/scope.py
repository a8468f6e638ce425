"""Scope: what is around the work of one attempt: its number, key, deadline, and the ids of whoever submitted it."""

from __future__ import annotations

import math
from _thread import get_ident
from collections.abc import Callable, Mapping
from contextvars import Context
from datetime import datetime
from time import monotonic
from typing import NamedTuple

from ..core.context import IDS, SLOT, ContextSlot, Scope
from ..core.key import Key, KeyLike
from ..ledger.record import Lease
from .kind import Kind

NO_IDS: Mapping[str, str] = {}
PARTS = 4
"""Colons of a key that has all of its parts."""


class Layer:
    """The durable layer, as code inside an attempt sees it. Immutable."""

    __slots__ = ("_kind", "_lease")

    def __init__(self, kind: Kind, lease: Lease) -> None:
        self._kind, self._lease = kind, lease  # most work never asks

    @property
    def operation(self) -> str:
        """The kind."""
        return self._kind.name

    @property
    def max_attempts(self) -> int:
        """Of the job, or of its kind."""
        return self._kind.settings.max_attempts if self._lease.max_attempts is None else self._lease.max_attempts

    @property
    def job_id(self) -> str:
        """In the ledger."""
        return str(self._lease.job_id)


class Around(NamedTuple):
    """What a worker has for each attempt. Threads may share it."""

    context: Context
    """As it was where the worker was started; each attempt gets a copy."""
    now: Callable[[], datetime]
    """The moment by the ledger's clock."""

    def seconds(self, kind: Kind, lease: Lease) -> float:
        """How long the attempt may take: its own time-out, or what is left until the job's deadline. Infinite: no limit."""
        own = kind.settings.attempt_timeout
        limit = math.inf if own is None else own
        if lease.deadline_stored is None:
            return limit
        deadline = lease.deadline
        assert deadline is not None
        return min(limit, (deadline - self.now()).total_seconds())


def enter(kind: Kind, lease: Lease, seconds: float) -> None:
    """Be inside the attempt, from now on: in a context of its own, which ends with it."""
    key = lease.key if lease.key.count(":") >= PARTS else key_of(lease)
    scope: Scope = (monotonic() + seconds, max(1, lease.attempt), Layer(kind, lease), key, None)
    SLOT.set(ContextSlot(scope, get_ident()))
    ids = lease.ids_stored
    IDS.set(lease.ids if isinstance(ids, str) else ids or NO_IDS)


def key_of(lease: Lease) -> KeyLike | None:
    """The key for calls that the work makes: the job's own; where nobody gave it one, of this shape at least."""
    if lease.key.count(":") >= PARTS:
        return lease.key
    try:
        return Key("job", "", lease.key, lease.kind.replace(":", "."))
    except ValueError:
        return None
