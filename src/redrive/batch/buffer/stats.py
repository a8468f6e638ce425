"""Stats: what became of the items of a send buffer so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BufferStats:
    """What became of the items so far: entered = accepted + refused + failed + spilled + withdrawn + waiting + in flight."""

    entered: int = 0
    accepted: int = 0
    refused: int = 0
    """The receiver said no."""
    failed: int = 0
    """Retries were spent, the error was not worth one, or the buffer was closed too early."""
    spilled: int = 0
    """Could not be delivered, and were handed over."""
    withdrawn: int = 0
    """Their senders were cancelled before a batch had taken them."""
    waiting: int = 0
    in_flight: int = 0
    batches: int = 0
    """Sent, however often each was tried."""
