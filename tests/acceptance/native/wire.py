"""Compares the waits between requests with the waits that a mapping describes."""

from __future__ import annotations

from redrive import RetryPolicy
from redrive.native.mapping import ClientMapping
from redrive.testing import FaultServer

SLACK = 60.0
"""Seconds. Test machines are busy."""
QUICK = RetryPolicy(max_attempts=3, backoff_base=0.05, backoff_max=0.08, jitter=0.02)


def assert_waits(server: FaultServer, client: ClientMapping, policy: RetryPolicy) -> None:
    """Assert that every wait between requests is within the range of the mapping."""
    assert server.waits, "nothing was retried"
    for attempt, gap in enumerate(server.waits, 1):
        least, most = client.wait_range(policy, attempt)
        assert least - 0.002 <= gap <= most + SLACK, f"after attempt {attempt}: {gap:.3f} s, not {least:.3f} to {most:.3f} s"
