"""Nested layers: three loops of three make 27 requests; three layers of Redrive make 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from redrive import retry
from redrive.testing import FaultServer

from .client import fetch
from .scene import Figures, Scene
from .stage import Stage

Fetch: TypeAlias = Callable[[str], bytes]


def naive(inner: Fetch) -> Fetch:
    """The loop that everybody has written once."""

    def loop(url: str) -> bytes:
        for attempt in range(1, 4):
            try:
                return inner(url)
            except OSError:
                if attempt == 3:
                    raise
        raise AssertionError("not reached")

    return loop


def _play(stage: Stage) -> Figures:
    layer = retry(max_attempts=3, backoff_base=0.1, jitter=0.1)
    stage.line("A service, its client and an SDK: three layers with 3 attempts each.")
    with FaultServer(503) as multiplied, FaultServer(503) as marked:
        stage.bar("three hand-written loops", lambda: multiplied.count)
        stage.bar("three layers of Redrive", lambda: marked.count)
        _fail(naive(naive(naive(fetch))), multiplied.url)
        _fail(layer(layer(layer(fetch))), marked.url)
        stage.line("An error that an inner layer already retried is final for the outer layers.")
        return {"requests_by_hand": multiplied.count, "requests_by_redrive": marked.count}


def _fail(function: Fetch, url: str) -> None:
    try:
        function(url)
    except OSError:
        pass  # the server is down, and that is the point


NESTING = Scene(
    "nesting",
    "Nested layers do not multiply",
    _play,
    lambda figures: (
        f"3 × 3 × 3 attempts: {figures['requests_by_hand']} requests by hand, {figures['requests_by_redrive']} by Redrive"
    ),
    "docs/how-to/calls/layers.md",
)
