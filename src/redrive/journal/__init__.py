"""Journal records: subscribe a sink, keep the last records in memory, hide secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily
from .bus import dropped, flush, subscribe

if TYPE_CHECKING:
    from .record import Record as Record
    from .record import Sink as Sink
    from .redaction.secrets import hide as hide
    from .sinks.otel import otel as otel
    from .sinks.prometheus import prometheus as prometheus
    from .sinks.ring import Ring as Ring
    from .sinks.ring import ring as ring
    from .sinks.sentry import sentry as sentry
    from .sinks.structlog import structlog as structlog

_HOMES = {
    "Record": "record",
    "Ring": "sinks.ring",
    "Sink": "record",
    "hide": "redaction.secrets",
    "otel": "sinks.otel",
    "prometheus": "sinks.prometheus",
    "ring": "sinks.ring",
    "sentry": "sinks.sentry",
    "structlog": "sinks.structlog",
}
__all__ = [
    "Record",
    "Ring",
    "Sink",
    "dropped",
    "flush",
    "hide",
    "otel",
    "prometheus",
    "ring",
    "sentry",
    "structlog",
    "subscribe",
]


if not TYPE_CHECKING:  # A type checker that saw this would accept every misspelt name.
    # Every program that retries loads this package. Most of them need only the bus.
    __getattr__ = lazily(__name__, _HOMES)
