"""What reached the wire: how many requests, how far apart, and whether that is what a mapping promises."""

from __future__ import annotations

from redrive import RetryPolicy
from redrive.native.mapped import Client
from redrive.testing import FaultServer

SLACK = 60.0
"""Seconds: these machines are busy."""
QUICK = RetryPolicy(max_attempts=3, backoff_base=0.05, backoff_max=0.08, jitter=0.02)


def waited_as_said(server: FaultServer, client: Client, policy: RetryPolicy) -> None:
    """Every gap between requests is one that the client's own description allows."""
    assert server.waits, "nothing was retried"
    for attempt, gap in enumerate(server.waits, 1):
        least, most = client.waits(policy, attempt)
        assert least - 0.002 <= gap <= most + SLACK, f"after attempt {attempt}: {gap:.3f} s, not {least:.3f} to {most:.3f} s"
