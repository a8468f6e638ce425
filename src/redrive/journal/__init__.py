"""Log records: subscribe a sink, keep the last records in memory, hide secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily
from .bus import dropped, flush, subscribe

if TYPE_CHECKING:
    from .record import Record as Record
    from .record import Sink as Sink
    from .redaction import hide as hide
    from .rings import Ring as Ring
    from .rings import ring as ring
    from .scraped import prometheus as prometheus
    from .spans import otel as otel
    from .structured import structlog as structlog

_HOMES = {
    "Record": "record",
    "Ring": "rings",
    "Sink": "record",
    "hide": "redaction",
    "otel": "spans",
    "prometheus": "scraped",
    "ring": "rings",
    "structlog": "structured",
}
__all__ = ["Record", "Ring", "Sink", "dropped", "flush", "hide", "otel", "prometheus", "ring", "structlog", "subscribe"]


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    # Every program that retries loads this package; few need more of it than the bus.
    __getattr__ = lazily(__name__, _HOMES)
