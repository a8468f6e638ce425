"""A call that fails twice, and is tried again."""

from __future__ import annotations

from redrive import retry
from redrive.journal import Record, subscribe
from redrive.testing import FaultServer

from .client import fetch
from .scene import Figures, Scene
from .stage import Stage


def _play(stage: Stage) -> Figures:
    def hear(record: Record) -> None:
        told, number = record.fields, record.fields["attempt"]
        if record.kind == "retry":
            stage.line(f"attempt {number}  {told['error']}; again in {told['wait']:.2f} s", "yellow")
        elif record.kind == "recovered":
            stage.line(f"attempt {number}  succeeded", "green")

    with FaultServer(503, "reset", 200) as server:
        stage.line("The server returns 503, then resets a connection, then succeeds.")
        unsubscribe = subscribe(hear, inline=True)
        try:
            retry(max_attempts=4, backoff_base=0.5, jitter=0.25).call(fetch, server.url)
        finally:
            unsubscribe()
        waits = server.waits
    return {"requests": server.count, "waited": round(sum(waits), 3)}


RECOVERY = Scene(
    "recovery",
    "A failed call is retried",
    _play,
    lambda figures: f"{figures['requests']} requests, {figures['waited']:.1f} s of waits, one response",
    "docs/how-to/calls/retry.md",
)
