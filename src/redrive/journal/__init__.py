"""What happened, one record each: subscribe a sink, keep a ring, hide what is secret."""

from __future__ import annotations

from .bus import dropped, flush, subscribe
from .record import Record, Sink
from .redaction import hide
from .ring import Ring, ring

__all__ = ["Record", "Ring", "Sink", "dropped", "flush", "hide", "ring", "subscribe"]
