"""Fault: what a server does to a request, and what then has to be seen on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from redrive.testing import Answer
from redrive.testing.server import Step

Act: TypeAlias = Literal["read", "write"]
BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
READ_SECONDS = 0.4
"""The clients' read time-out where the server is slow; elsewhere a busy machine is given time."""
PATIENT = 30.0
ASKED = 1.5
"""Seconds of the Retry-After."""


def busy(**headers: str) -> Answer:
    """S3's 503: with this body s3fs has a loop of its own."""
    return Answer(503, {"Content-Type": "application/xml", **headers}, BUSY)


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the table."""

    name: str
    act: Act
    script: tuple[Step, ...]
    passes: bool
    """Whether it is over before three attempts are."""

    @property
    def patience(self) -> float:
        """The read time-out that clients have."""
        return READ_SECONDS if self.name == "slow" else PATIENT


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
    Fault(f"Retry-After of {ASKED:g} s", "read", (busy(**{"Retry-After": str(ASKED)}), "pass"), passes=True),
)
