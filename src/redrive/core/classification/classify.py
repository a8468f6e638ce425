"""classify: the standard rule for errors. It imports none of the libraries that it knows."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..fault import UNKNOWN, Fault
from ..lazy import PACKAGE
from ..lock import before_fork

if TYPE_CHECKING:
    from datetime import datetime

    from .known.inspect import Entry

_FAULTS: dict[int, Fault] = {}
"""Types all of whose errors have one fault, by id: a metaclass may make a type unhashable."""
_ENTRIES: dict[int, Entry] = {}
"""All types that have occurred, by id."""
_TYPE_REFS: dict[int, weakref.ref[type]] = {}
"""Removes a type that is deleted. Its id may be reused, and programs may create many types."""


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
        return _FAULTS[id(type(error))]  # most failures: about a tenth of a microsecond
    except KeyError:
        from .known.inspect import Inspector  # noqa: PLC0415  # not at import, as the registry

        return Inspector(_entry_of, now).classify(error)


def meaning(kind: type[Exception], /) -> Fault | None:
    """Return the fault of all errors of this type. None if it depends on the single error."""
    entry = _entry_of(kind)
    return entry if isinstance(entry, Fault) else None


def deciding_name(kind: type[Exception], /) -> str | None:
    """Return the registered name that decides for this type: its own, or that of a base."""
    registry = _load_registry()
    return next((name for name in map(_name, kind.__mro__) if name in registry), None)


def _entry_of(kind: type) -> Entry:
    """Return the entry of the nearest registered class among a type and its bases."""
    key = id(kind)
    if key not in _ENTRIES:
        entry = _find_entry(kind)
        _TYPE_REFS[key] = weakref.ref(kind, lambda _: _forget(key))
        _ENTRIES[key] = entry
        if isinstance(entry, Fault):
            _FAULTS[key] = entry
        return entry
    return _ENTRIES[key]


def _find_entry(kind: type) -> Entry:
    registry = _load_registry()
    try:
        return next((registry[n] for n in map(_name, kind.__mro__) if n in registry), UNKNOWN)
    except Exception:  # a metaclass may break even these attributes
        return UNKNOWN


def _load_registry() -> Mapping[str, Entry]:
    from .known.registry import KNOWN  # noqa: PLC0415  # loaded at the first failure, not at import

    return KNOWN


before_fork(_load_registry)


def _name(kind: type) -> str:
    """Return `grpc.AioRpcError` for grpc.aio._call.AioRpcError.

    Libraries move classes between modules, but not between packages.
    """
    is_ours = kind.__module__.startswith(f"{PACKAGE}.")  # a vendored copy has another first name
    return f"{'redrive' if is_ours else kind.__module__.partition('.')[0]}.{kind.__name__}"


def _forget(key: int) -> None:
    for cache in (_FAULTS, _ENTRIES, _TYPE_REFS):
        cache.pop(key, None)
