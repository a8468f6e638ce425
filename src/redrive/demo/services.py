"""The external services of the demo shop, and their faults.

A fixed seed makes the faults the same in every run.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

from redrive import Stop
from redrive.batch import ItemStatus, Report

SEED = 20260131


class ExternalServices:
    """Services that fail on demand. Threads may share one."""

    def __init__(self) -> None:
        self._random = random.Random(SEED)
        self._lock = threading.Lock()
        self.down: set[str] = set()
        """Services in an outage."""
        self.fixed: set[str] = set()
        """Services whose bug or flakiness was fixed."""

    def call(self, service: str, *, failure_rate: float = 0.0) -> None:
        """Send one request. It fails in an outage, and at random until the service is fixed."""
        with self._lock:
            draw = self._random.random()
        if service in self.down:
            raise ConnectionError(f"{service} is down")
        if draw < failure_rate and service not in self.fixed:
            raise TimeoutError(f"{service} did not respond in time")

    def parse(self, service: str, text: str) -> None:
        """Parse a text. Until the service is fixed, a bug rejects every text with a sharp s."""
        if "ß" in text and service not in self.fixed:
            raise Stop(f"{service}: street names with sharp s cannot be printed")


SERVICES = ExternalServices()


def report_items(statuses: Sequence[ItemStatus]) -> Report:
    """Return the report of a receiver that accepted or rejected each item of a batch."""
    rejected = sum(item.status == "rejected" for item in statuses)
    if not rejected:
        return Report("success", statuses)
    return Report("failure" if rejected == len(statuses) else "partial", statuses)
