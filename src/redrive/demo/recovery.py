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
            stage.line(f"attempt {number}  it worked", "green")

    with FaultServer(503, "reset", 200) as server:
        stage.line("The server says 503, then tears a connection down, then works.")
        unsubscribe = subscribe(hear, inline=True)
        try:
            retry(max_attempts=4, backoff_base=0.5, jitter=0.25).call(fetch, server.url)
        finally:
            unsubscribe()
        waits = server.waits
    return {"requests": server.count, "waited": round(sum(waits), 3)}


RECOVERY = Scene(
    "recovery",
    "A call that fails is tried again",
    _play,
    lambda figures: f"{figures['requests']} requests, {figures['waited']:.1f} s of waits, one answer",
    "docs/how-to/calls/retry.md",
)
