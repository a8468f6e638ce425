"""Simulations of retries in an outage, of a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from ...simulation.figures import OutageFigures, PolicyRun, SimulationReport, summarise
from ...simulation.picture import draw
from ...simulation.scenario import OutageScenario, scenario_from_mapping
from ..project.user_code import Unreadable

__all__ = [
    "OutageFigures",
    "OutageScenario",
    "PolicyRun",
    "SimulationReport",
    "draw",
    "read_scenario",
    "simulate",
]

Progress = Callable[[str, float], None]


def read_scenario(file: str, /) -> OutageScenario:
    """Return the scenario of a TOML file.

    Raises:
        Unreadable: The file cannot be read, or is not a valid scenario.
    """
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8-sig")  # Some editors write a byte order mark.
    except (OSError, UnicodeDecodeError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else "it is not UTF-8 text"
        raise Unreadable(f"{path} cannot be read: {reason}") from wrong
    try:
        return scenario_from_mapping(tomllib.loads(text))
    except tomllib.TOMLDecodeError as wrong:
        raise Unreadable(f"{path} is not valid TOML: {wrong}") from wrong
    except (TypeError, ValueError) as wrong:
        raise Unreadable(f"{path}: {wrong}") from wrong


def simulate(
    scenario: OutageScenario, /, *, seed: int | None = None, progress: Progress | None = None
) -> SimulationReport:
    """Simulate a scenario, once for each policy.

    Args:
        scenario: The scenario.
        seed: Seed of the random numbers. Default: that of the scenario.
        progress: Called with the name of the policy and the simulated seconds since the last call.

    Raises:
        Unreadable: NumPy is not installed, or a policy makes too many attempts.
    """
    try:
        # The extra may be missing.
        from ...simulation.fleet import FleetRun, TooManyAttempts  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        if missing.name != "numpy":
            raise
        install = 'pip install "redrive[simulate]"'
        raise Unreadable(f"simulate: NumPy is not installed; {install}") from missing
    chosen = scenario.seed if seed is None else seed
    runs = []
    for policy in scenario.policies:

        def advance(seconds: float, name: str = policy.name) -> None:
            if progress is not None:
                progress(name, seconds)

        try:
            curve = FleetRun(scenario, policy, chosen).run(advance)
        except TooManyAttempts as problem:
            raise Unreadable(str(problem)) from problem
        runs.append(PolicyRun(policy.name, curve, summarise(scenario, curve)))
    return SimulationReport(scenario, chosen, tuple(runs))
