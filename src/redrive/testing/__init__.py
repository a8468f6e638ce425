"""For your own tests: time that you move, faults that you order, a server that misbehaves as told."""

from __future__ import annotations

from .clock import FakeClock, instant
from .faults import Injected, inject
from .server import Answer, FaultServer

__all__ = ["Answer", "FakeClock", "FaultServer", "Injected", "inject", "instant"]
