"""An outage: what many calls do to a server that is down, without and with a shared budget of retries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from redrive import Budget, Retry, retry
from redrive.testing import FaultServer

from .client import fetch
from .scene import Figures, Scene
from .stage import Stage

CALLS = 60
AT_ONCE = 6


def _play(stage: Stage) -> Figures:
    policy = retry(max_attempts=3, backoff_base=0.03, jitter=0.03)
    stage.line(f"{CALLS} calls of 3 attempts each meet a server that is down.")
    with FaultServer(503) as alone, FaultServer(503) as shared:
        stage.bar("without a budget", lambda: alone.count)
        stage.bar("with a shared budget", lambda: shared.count)
        _call_all(policy, alone.url)
        budget = Budget(capacity=100)
        _call_all(policy.using(budget=budget), shared.url)
        stage.line(f"The budget denied {budget.denied} retries, which would have kept the server overloaded.")
        return {"calls": CALLS, "requests_without_budget": alone.count, "requests_with_budget": shared.count}


def _call_all(policy: Retry, url: str) -> None:
    def one(_: int) -> None:
        try:
            policy.call(fetch, url)
        except OSError:
            pass  # an outage: every call fails in the end

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(CALLS)))


OUTAGE = Scene(
    "outage",
    "In an outage, a shared budget turns retries off",
    _play,
    lambda figures: (
        f"{figures['calls']} calls: {figures['requests_without_budget']} requests without a budget, "
        f"{figures['requests_with_budget']} with one"
    ),
    "docs/how-to/calls/budgets.md",
)
