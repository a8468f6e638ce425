"""Scenarios of calls in one process: a recovery, an outage, nested layers, a long Retry-After."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone
from typing import TypeAlias
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from redrive import Budget, Retry, current, outcome, retry
from redrive.journal import Record, subscribe
from redrive.testing import Answer, FaultServer

from .scenario import Display, Figures, Scenario

OUTAGE_CALLS = 60
OUTAGE_THREADS = 6
RETRY_AFTER_SECONDS = 120

Fetch: TypeAlias = Callable[[str], bytes]

_opener = build_opener(ProxyHandler({}))
"""Ignores proxies, because the server is on this machine."""


def fetch(url: str) -> bytes:
    """Return the body of a page, within the time that the current attempt has left."""
    try:
        with _opener.open(url, timeout=current().remaining) as response:
            body: bytes = response.read()
            return body
    except HTTPError as error:
        error.close()
        raise


# ---- a failed call is retried ----


def _recover(display: Display) -> Figures:
    def show(record: Record) -> None:
        fields, number = record.fields, record.fields["attempt"]
        if record.kind == "retry":
            display.line(
                f"attempt {number}  {fields['error']}; again in {fields['wait']:.2f} s", "yellow"
            )
        elif record.kind == "recovered":
            display.line(f"attempt {number}  succeeded", "green")

    with FaultServer(503, "reset", 200) as server:
        display.line("The server returns 503, then resets a connection, then succeeds.")
        unsubscribe = subscribe(show, inline=True)
        try:
            retry(max_attempts=4, backoff_base=0.5, jitter=0.25).call(fetch, server.url)
        finally:
            unsubscribe()
        waits = server.waits
    return {"requests": server.count, "waited": round(sum(waits), 3)}


RECOVERY = Scenario(
    "recovery",
    "A failed call is retried",
    _recover,
    lambda figures: (
        f"{figures['requests']} requests, {figures['waited']:.1f} s of waits, one response"
    ),
    "docs/how-to/calls/retry.md",
)


# ---- a shared budget limits retries in an outage ----


def _call_during_outage(display: Display) -> Figures:
    policy = retry(max_attempts=3, backoff_base=0.03, jitter=0.03)
    display.line(f"{OUTAGE_CALLS} calls of 3 attempts each meet a server that is down.")
    with FaultServer(503) as alone, FaultServer(503) as shared:
        display.bar("without a budget", lambda: alone.count)
        display.bar("with a shared budget", lambda: shared.count)
        _call_all(policy, alone.url)
        budget = Budget(capacity=100)
        _call_all(policy.using(budget=budget), shared.url)
        display.line(
            f"The budget denied {budget.denied} retries, "
            "which would have kept the server overloaded."
        )
        return {
            "calls": OUTAGE_CALLS,
            "requests_without_budget": alone.count,
            "requests_with_budget": shared.count,
        }


def _call_all(policy: Retry, url: str) -> None:
    def call(_: int) -> None:
        with suppress(OSError):  # every call fails in the end
            policy.call(fetch, url)

    with ThreadPoolExecutor(OUTAGE_THREADS) as pool:
        list(pool.map(call, range(OUTAGE_CALLS)))


OUTAGE = Scenario(
    "outage",
    "In an outage, a shared budget turns retries off",
    _call_during_outage,
    lambda figures: (
        f"{figures['calls']} calls: {figures['requests_without_budget']} requests without a "
        f"budget, {figures['requests_with_budget']} with one"
    ),
    "docs/how-to/calls/budgets.md",
)


# ---- nested layers do not multiply ----


def _retry_by_hand(inner: Fetch) -> Fetch:
    """Return a function with a hand-written retry loop of three attempts."""

    def loop(url: str) -> bytes:
        for _ in range(2):
            with suppress(OSError):
                return inner(url)
        return inner(url)

    return loop


def _nest_layers(display: Display) -> Figures:
    layer = retry(max_attempts=3, backoff_base=0.1, jitter=0.1)
    display.line("A service, its client and an SDK: three layers with 3 attempts each.")
    with FaultServer(503) as multiplied, FaultServer(503) as marked:
        display.bar("three hand-written loops", lambda: multiplied.count)
        display.bar("three layers of Redrive", lambda: marked.count)
        with suppress(OSError):
            _retry_by_hand(_retry_by_hand(_retry_by_hand(fetch)))(multiplied.url)
        with suppress(OSError):
            layer(layer(layer(fetch)))(marked.url)
        display.line("An error that an inner layer already retried is final for the outer layers.")
        return {"requests_by_hand": multiplied.count, "requests_by_redrive": marked.count}


NESTED_LAYERS = Scenario(
    "nesting",
    "Nested layers do not multiply",
    _nest_layers,
    lambda figures: (
        f"3 × 3 × 3 attempts: {figures['requests_by_hand']} requests by hand, "
        f"{figures['requests_by_redrive']} by Redrive"
    ),
    "docs/how-to/calls/layers.md",
)


# ---- a wait that exceeds the timeout fails at once ----


def _exceed_timeout(display: Display) -> Figures:
    display.line(
        f"The server returns 429 with Retry-After: {RETRY_AFTER_SECONDS}, "
        "and the call has a timeout of 5 s."
    )
    with FaultServer(Answer(429, {"Retry-After": str(RETRY_AFTER_SECONDS)})) as server:
        started = time.monotonic()
        try:
            retry(max_attempts=5, timeout=5).call(fetch, server.url)
        except OSError as error:
            result = outcome(error)
        else:
            raise AssertionError("the server never returns a success")
        elapsed = time.monotonic() - started
        assert result is not None
        assert result.retry_at is not None
        due = (result.retry_at - datetime.now(timezone.utc)).total_seconds()
        display.line(
            f"gave up after {elapsed * 1000:.0f} ms ({result.reason}), without waiting", "yellow"
        )
        display.line(f"retry_at  {result.retry_at:%H:%M:%S} UTC, in {due:.0f} s", "green")
        return {
            "requests": server.count,
            "elapsed": round(elapsed, 3),
            "retry_in": round(due, 1),
        }


RETRY_AFTER = Scenario(
    "patience",
    "A wait that does not fit the timeout fails immediately",
    _exceed_timeout,
    lambda figures: (
        f"{figures['requests']} request, {figures['elapsed'] * 1000:.0f} ms; "
        f"retry in {figures['retry_in']:.0f} s"
    ),
    "docs/how-to/calls/deadlines.md",
)
