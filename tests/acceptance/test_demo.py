"""The scenarios of the demo run on their own, and their figures match the counts of the servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from redrive.demo.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
PARTS = 3
"""Processes that share the scenarios, which mostly wait."""
SMALL = """
import io, json, sys
from rich.console import Console
from redrive.demo.scenarios import SCENARIOS, full_day, grpc_incident, jobs
from redrive.demo.scenarios.scenario import Display

# Longer delays keep the scenario in time on a busy machine.
grpc_incident.LATE_SECONDS, grpc_incident.DEADLINE_SECONDS = 0.4, 2.0
jobs.JOBS, jobs.KILL_AFTER = 30, 10
full_day.ORDERS, full_day.DAYS = 12, 7
printed = io.StringIO()
display = Display(Console(file=printed, width=60, highlight=False))
figures = {}
for scenario in SCENARIOS[int(sys.argv[1]) :: int(sys.argv[2])]:
    with display.section(scenario.title):
        figures[scenario.name] = scenario.run(display)
print(json.dumps([figures, printed.getvalue()]))
"""
TWO = """
from redrive.demo import scenarios
from redrive.demo.__main__ import main

scenarios.SCENARIOS = scenarios.SCENARIOS[2:4]
main()
"""


def run(*command: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "COLUMNS")}
    result = subprocess.run(
        [sys.executable, "-W", "error", *command],
        env=inherited | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_every_scenario_measures_the_expected_figures() -> None:
    def run_part(number: int) -> tuple[dict[str, dict[str, float]], str]:
        # The scenarios ignore proxies, because their servers are on this machine.
        figures, printed = json.loads(run("-c", SMALL, str(number), str(PARTS), http_proxy="http://127.0.0.1:9"))
        return figures, printed

    with ThreadPoolExecutor(PARTS) as threads:
        parts = list(threads.map(run_part, range(PARTS)))
    figures = {name: figure for part, _ in parts for name, figure in part.items()}
    printed = "".join(text for _, text in parts)
    check_figures(figures)
    assert max(map(len, printed.splitlines())) <= 60
    for scenario in SCENARIOS:
        assert scenario.title in printed
        assert scenario.summarize(figures[scenario.name])
        assert (ROOT / scenario.docs_page).is_file()
    assert "attempt 3  succeeded" in printed


def check_figures(figures: dict[str, dict[str, float]]) -> None:
    """Compare the figures with the counts of the servers."""
    assert figures["recovery"]["requests"] == 3
    assert 1.5 <= figures["recovery"]["waited"] < 60  # 0.5 s and 1 s, with jitter
    outage = figures["outage"]
    assert outage["requests_without_budget"] == 3 * outage["calls"]
    # A bucket of 100 pays for 7 retries of 14 tokens, then for one in each second.
    assert outage["calls"] + 7 <= outage["requests_with_budget"] < 1.5 * outage["calls"]
    assert figures["nesting"] == {"requests_by_hand": 27, "requests_by_redrive": 3}
    assert figures["patience"]["requests"] == 1
    assert figures["patience"]["elapsed"] < 60
    assert 60 < figures["patience"]["retry_in"] <= 121
    assert figures["uploads"] == {"items": 60, "sent": 180, "arrived": 59, "given_up": 1, "pending": 0}
    parked = figures["commands"]
    assert (parked["done"], parked["dead"]) == (parked["commands"], 0)
    assert 10 <= parked["requests_while_down"] < 1.5 * parked["commands"]
    assert figures["messages"] == {"events": 40, "known": 4, "search": 40, "qscore": 40, "dead": 20, "replayed": 20}
    rescue = figures["rescue"]
    assert (rescue["lost"], rescue["doubled"], rescue["done"]) == (0, 0, rescue["jobs"])
    whole = figures["whole"]
    assert (whole["lost"], whole["doubled"], whole["dead"]) == (0, 0, 0)
    assert whole["replayed"] == whole["found"] > 0
    assert whole["submitted"] == whole["done"] + whole["replayed"] == 6 * whole["orders"] + whole["replayed"]
    incident = figures["incident"]
    assert (incident["answered_once"], incident["requests_once"]) == (50, 2)
    assert (incident["answered"], incident["requests"]) == (incident["callers"], 3)
    assert (incident["requests_by_hand"], incident["requests_by_redrive"]) == (60, 5)
    assert 0 < rescue["by_first"] < rescue["jobs"] == rescue["by_first"] + rescue["by_second"]


def test_without_a_terminal_the_demo_prints_lines_and_ends() -> None:
    printed = run("-c", TWO, "--once", COLUMNS="60")
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 60
    for scenario in SCENARIOS[2:4]:
        assert scenario.title in printed
        assert scenario.docs_page in printed


@pytest.mark.skipif("REDRIVE_FULL" not in os.environ, reason="full size: set REDRIVE_FULL=1")
def test_the_full_demo_measures_the_expected_figures() -> None:
    data = json.loads(run("-m", "redrive.demo", "--once", "--json"))
    check_figures(data["scenes"])
