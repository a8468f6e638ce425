"""What happened, one record each: subscribe a sink, keep a ring, hide what is secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bus import dropped, flush, subscribe

if TYPE_CHECKING:
    from .record import Record as Record
    from .record import Sink as Sink
    from .redaction import hide as hide
    from .rings import Ring as Ring
    from .rings import ring as ring

_HOMES = {"Record": "record", "Sink": "record", "hide": "redaction", "Ring": "rings", "ring": "rings"}
__all__ = ["Record", "Ring", "Sink", "dropped", "flush", "hide", "ring", "subscribe"]


def __getattr__(name: str) -> Any:
    # Every program that retries loads this package; few need more of it than the bus.
    from importlib import import_module  # noqa: PLC0415

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = found
    return found
