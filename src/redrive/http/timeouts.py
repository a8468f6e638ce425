"""Time-outs: those of one attempt, as httpx takes them."""

from __future__ import annotations

from collections.abc import Mapping

PHASES = ("connect", "read", "write", "pool")


def timeouts(own: Mapping[str, float | None], seconds: float, /) -> dict[str, float | None]:
    """The client's own, none of them longer than what is left."""
    return {phase: _shorter(own.get(phase), seconds) for phase in PHASES}


def _shorter(own: float | None, seconds: float) -> float:
    return seconds if own is None or seconds < own else own
