"""Stats: what became of the items of a send buffer so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BufferStats:
    """Counters of a send buffer. Immutable.

    `entered` is the sum of accepted, refused, failed, spilled, withdrawn, waiting and in flight.

    Attributes:
        entered: Items that were taken in.
        accepted: Items that the receiver accepted.
        refused: Items that the receiver rejected.
        failed: Items whose retries were used up, whose error is not retryable, or whose buffer was
            closed.
        spilled: Items that could not be delivered and were passed to `spill`.
        withdrawn: Items whose senders were cancelled before a batch took them.
        waiting: Items that are not in a batch yet.
        in_flight: Items in batches that are being sent.
        batches: Batches that were sent. Retries of a batch are not counted.
    """

    entered: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    spilled: int = 0
    withdrawn: int = 0
    waiting: int = 0
    in_flight: int = 0
    batches: int = 0
