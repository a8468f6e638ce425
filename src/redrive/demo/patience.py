"""A server that asks for more time than there is: the error leaves at once, and says when to come back."""

from __future__ import annotations

import time
from datetime import datetime, timezone

from redrive import outcome, retry
from redrive.testing import Answer, FaultServer

from .client import fetch
from .scene import Figures, Scene
from .stage import Stage

ASKED = 120


def _play(stage: Stage) -> Figures:
    stage.line(f"The server returns 429 with Retry-After: {ASKED}, and the call has a timeout of 5 s.")
    with FaultServer(Answer(429, {"Retry-After": str(ASKED)})) as server:
        began = time.monotonic()
        try:
            retry(max_attempts=5, timeout=5).call(fetch, server.url)
        except OSError as error:
            ended = outcome(error)
        else:
            raise AssertionError("the server never returns a success")
        elapsed = time.monotonic() - began
        assert ended is not None
        assert ended.retry_at is not None
        due = (ended.retry_at - datetime.now(timezone.utc)).total_seconds()
        stage.line(f"gave up after {elapsed * 1000:.0f} ms ({ended.reason}), without waiting", "yellow")
        stage.line(f"retry_at  {ended.retry_at:%H:%M:%S} UTC, in {due:.0f} s", "green")
        return {"requests": server.count, "elapsed": round(elapsed, 3), "retry_in": round(due, 1)}


PATIENCE = Scene(
    "patience",
    "A wait that does not fit the timeout fails immediately",
    _play,
    lambda figures: f"{figures['requests']} request, {figures['elapsed'] * 1000:.0f} ms; retry in {figures['retry_in']:.0f} s",
    "docs/how-to/calls/deadlines.md",
)
