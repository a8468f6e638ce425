"""Reasons of dead letters and attempts. docs/reference/errors.md explains each of them."""

from __future__ import annotations

from typing import Literal, TypeAlias

DeadReason: TypeAlias = Literal[
    "attempts",
    "not_retryable",
    "not_idempotent",
    "stopped",
    "deadline",
    "undecodable",
    "payload_lost",
    "result",
    "crashed_worker",
    "crashed_process",
]
"""Why a job is a dead letter. A job that raised `Blocked` has the text of that error instead."""

AttemptReason: TypeAlias = Literal[
    "failed",
    "again",
    "parked",
    "ledger",
    "lost_worker",
    "lost_lease",
    "crashed_process",
]
"""Why an attempt is followed by another one. The last attempt has the reason of the dead letter."""
UNCOUNTED_REASONS: tuple[AttemptReason, ...] = ("parked", "ledger")
"""Reasons of failures that do not count as attempts: an outage of a service, or of the ledger."""

JobReason: TypeAlias = DeadReason | AttemptReason | Literal["blocked", "released", "cancelled"]
"""Any reason of a job. `released`: a worker that stops gave it back, without an attempt.
`cancelled`: it was cancelled while it ran."""
