"""LoadCurve and OutageFigures: the load of a run in each second, and its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .scenario import OutageScenario, ServiceOutage

COUNTED = ("calls", "attempts", "failed_attempts", "succeeded", "failed")
"""What is counted in each second, in the order of the fields of `LoadCurve`."""
RECOVERED_SHARE = 0.95
"""Part of the attempts and of the calls that succeed when the service has recovered."""
RECOVERED_SECONDS = 5
"""Seconds for which they must."""


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """What happened in each simulated second. Immutable."""

    calls: tuple[int, ...]
    """Calls that began."""
    attempts: tuple[int, ...]
    """Requests that were sent to the service: the load."""
    failed_attempts: tuple[int, ...]
    succeeded: tuple[int, ...]
    """Calls that succeeded: the goodput."""
    failed: tuple[int, ...]
    """Calls that gave up."""
    reasons: Mapping[str, int]
    """Why calls gave up, as `Outcome.reason`."""


@dataclass(frozen=True, slots=True)
class OutageFigures:
    """A run in a few numbers. Immutable."""

    calls: int
    attempts: int
    normal_load: float
    """Attempts per second before the first outage."""
    peak_load: int
    """Attempts in the second with the most of them, from the begin of the first outage on."""
    peak_factor: float
    """Peak load, in multiples of the normal load."""
    amplification: float
    """Attempts per call during the outages. Without an outage: in the whole run."""
    success_rate: float
    """Part of the ended calls that succeeded, in the whole run."""
    failed_calls: int
    recovered_after: float | None
    """Seconds from the end of the last outage until 95 % of the attempts and of the calls succeed.
    None: not within the simulated time, or there is no outage."""
    reasons: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return asdict(self)


def summarise(scenario: OutageScenario, curve: LoadCurve, /) -> OutageFigures:
    """Return the figures of a run."""
    outages = scenario.outages
    first = min((outage.at for outage in outages), default=0.0)
    before = max(1, int(first)) if outages else len(curve.attempts)
    normal = sum(curve.attempts[:before]) / before
    if scenario.clients.start == "together" or not outages or first < 1:
        normal = scenario.clients.rate
    peak = max(curve.attempts[int(first) :], default=0)
    in_outage = [
        second
        for second in range(len(curve.calls))
        if not outages or any(_covers(outage, second) for outage in outages)
    ]
    calls = sum(curve.calls[second] for second in in_outage)
    attempts = sum(curve.attempts[second] for second in in_outage)
    ended = sum(curve.succeeded) + sum(curve.failed)
    return OutageFigures(
        calls=sum(curve.calls),
        attempts=sum(curve.attempts),
        normal_load=round(normal, 3),
        peak_load=peak,
        peak_factor=round(peak / normal, 3) if normal else 0.0,
        amplification=round(attempts / calls, 3) if calls else 0.0,
        success_rate=round(sum(curve.succeeded) / ended, 5) if ended else 0.0,
        failed_calls=sum(curve.failed),
        recovered_after=_recovery(outages, curve),
        reasons=dict(curve.reasons),
    )


def _covers(outage: ServiceOutage, second: int) -> bool:
    return second + 1 > outage.at and second < outage.end


def _recovery(outages: Sequence[ServiceOutage], curve: LoadCurve) -> float | None:
    """Return the seconds from the last outage until calls succeed for some seconds."""
    if not outages:
        return None
    end = max(outage.end for outage in outages)
    first = int(end)
    for second in range(first, len(curve.attempts) - RECOVERED_SECONDS + 1):
        window = slice(second, second + RECOVERED_SECONDS)
        succeeded = sum(curve.succeeded[window])
        # A call that an open breaker refuses fails without an attempt.
        failed = max(sum(curve.failed_attempts[window]), sum(curve.failed[window]))
        if succeeded and succeeded >= RECOVERED_SHARE * (succeeded + failed):
            return max(0.0, second - end)
    return None


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One policy in a scenario: its load in each second, and its figures. Immutable."""

    policy: str
    curve: LoadCurve
    figures: OutageFigures


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """A scenario, and what happened under each of its policies. Immutable."""

    scenario: OutageScenario
    seed: int
    runs: tuple[PolicyRun, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON. Curves have one number for each simulated second."""
        return {
            "title": self.scenario.title,
            "seed": self.seed,
            "seconds": self.scenario.seconds,
            "clients": self.scenario.clients.count,
            "outages": [asdict(outage) for outage in self.scenario.outages],
            "policies": [
                {
                    "policy": run.policy,
                    **run.figures.as_dict(),
                    "curve": {name: list(getattr(run.curve, name)) for name in COUNTED},
                }
                for run in self.runs
            ],
        }
