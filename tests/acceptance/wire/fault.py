"""Fault: the behaviour of a server, and the requests that a client must send then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from redrive.testing import Answer
from redrive.testing.http_server import Step

Act: TypeAlias = Literal["read", "write"]
BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
READ_SECONDS = 0.4
"""Read timeout of the clients for a slow server. For other faults a busy machine gets more time."""
PATIENT_SECONDS = 30.0
RETRY_AFTER_SECONDS = 1.5
"""Seconds of the Retry-After."""


def busy(**headers: str) -> Answer:
    """Return the 503 of S3. With this body s3fs retries too."""
    return Answer(503, {"Content-Type": "application/xml", **headers}, BUSY)


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the table."""

    name: str
    act: Act
    script: tuple[Step, ...]
    passes: bool
    """True if the fault ends before three attempts."""

    @property
    def patience(self) -> float:
        """Return the read timeout of the clients."""
        return READ_SECONDS if self.name == "slow" else PATIENT_SECONDS


CUT = Answer(passed=True, trouble="cut")
SLOW = Answer(passed=True, delay=3 * READ_SECONDS)
FAULTS = (
    Fault("503 throughout", "read", (busy(),), passes=False),
    Fault("503 throughout", "write", (busy(),), passes=False),
    Fault("503 twice", "read", (busy(), busy(), "pass"), passes=True),
    Fault("503 twice", "write", (busy(), busy(), "pass"), passes=True),
    Fault("connection reset", "read", ("reset",), passes=False),
    Fault("connection reset", "write", ("reset",), passes=False),
    Fault("response lost once", "write", ("lost", "pass"), passes=True),
    Fault("cut in the body", "read", (CUT,), passes=False),
    Fault("cut once", "read", (CUT, "pass"), passes=True),
    Fault("slow", "read", (SLOW,), passes=False),
    Fault(
        f"Retry-After of {RETRY_AFTER_SECONDS:g} s",
        "read",
        (busy(**{"Retry-After": str(RETRY_AFTER_SECONDS)}), "pass"),
        passes=True,
    ),
)
