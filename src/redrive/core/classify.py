"""classify: the standard rule. Says what an error means, without importing the library that it comes from."""

from __future__ import annotations

import weakref
from datetime import datetime

from .fault import UNKNOWN, Fault
from .known.look import Entry, Look
from .lock import before_fork

_PLAIN: dict[int, Fault] = {}
"""Types all of whose errors mean the same, by the type's id: a class may have a metaclass that cannot be hashed."""
_LEARNT: dict[int, Entry] = {}
"""Every type met so far, by its id."""
_ALIVE: dict[int, weakref.ref[type]] = {}
"""Forgets a type's id when the type goes: classes made on the fly neither pile up nor inherit from a dead one."""


def classify(error: Exception, /, *, now: datetime | None = None) -> Fault:
    """Return the meaning of an error, by the standard rule. Never raises.

    Errors are recognised by the names of their classes and base classes, such as
    `httpx.ConnectTimeout`. Errors that are not recognised are `unknown`.

    Args:
        error: The exception.
        now: Time that a Retry-After date is compared with if the response has no Date header.
            Default: the system clock.

    Returns:
        The fault: its kind, when to retry, and whether the request was sent.
    """
    try:
        return _PLAIN[id(type(error))]  # the path of most failures: about a tenth of a microsecond
    except KeyError:
        return Look(_entry, now).at(error)


def meaning(kind: type[Exception], /) -> Fault | None:
    """What every error of this type means; None where that depends on the single error. (The engine remembers it.)"""
    entry = _entry(kind)
    return entry if isinstance(entry, Fault) else None


def deciding_name(kind: type[Exception], /) -> str | None:
    """The name of the class in the table that decides for this type: its own, or of its nearest known base."""
    from .known.table import KNOWN  # noqa: PLC0415  # likewise

    return next((name for name in map(_name, kind.__mro__) if name in KNOWN), None)


def _entry(kind: type) -> Entry:
    """What is known of a type: of the nearest known class among itself and its bases."""
    key = id(kind)
    if key not in _LEARNT:
        entry = _found(kind)
        _ALIVE[key] = weakref.ref(kind, lambda _: _forget(key))
        _LEARNT[key] = entry
        if isinstance(entry, Fault):
            _PLAIN[key] = entry
        return entry
    return _LEARNT[key]


def _found(kind: type) -> Entry:
    from .known.table import KNOWN  # noqa: PLC0415  # paid at the first failure, not at import

    try:
        return next((KNOWN[name] for name in map(_name, kind.__mro__) if name in KNOWN), UNKNOWN)
    except Exception:  # a metaclass may spoil even these attributes
        return UNKNOWN


def _load() -> None:
    from .known import table  # noqa: F401, PLC0415  # what `_found` loads when it is first needed


before_fork(_load)


def _name(kind: type) -> str:
    """`grpc.AioRpcError` for grpc.aio._call.AioRpcError: libraries move classes about, but not to other packages."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def _forget(key: int) -> None:
    for memory in (_PLAIN, _LEARNT, _ALIVE):
        memory.pop(key, None)
