"""The demonstration runs by itself, and its figures are what the servers counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.demo.scenes import SCENES

ROOT = Path(__file__).parents[2]
SMALL = """
import io, json
from rich.console import Console
from redrive.demo import incident, rescue, whole
from redrive.demo.scenes import SCENES
from redrive.demo.stage import Stage

incident.LATE, incident.DEADLINE = 0.4, 2.0  # in time, also on a busy machine
rescue.JOBS, rescue.KILLED_AFTER = 30, 10
whole.ORDERS, whole.DAYS = 12, 7
printed = io.StringIO()
stage = Stage(Console(file=printed, width=60, highlight=False))
figures = {}
for scene in SCENES:
    with stage.scene(scene.title):
        figures[scene.name] = scene.play(stage)
print(json.dumps([figures, printed.getvalue()]))
"""
TWO = """
from redrive.demo import scenes
from redrive.demo.__main__ import main

scenes.SCENES = scenes.SCENES[2:4]
main()
"""


def run(*command: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "COLUMNS")}
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], env=kept | environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_its_figures() -> None:
    # A proxy in the environment is not for a server on this machine.
    scenes, printed = json.loads(run("-c", SMALL, http_proxy="http://127.0.0.1:9"))
    checked(scenes)
    assert max(map(len, printed.splitlines())) <= 60
    for scene in SCENES:
        assert scene.title in printed
        assert scene.told(scenes[scene.name])
        assert (ROOT / scene.read).is_file()
    assert "attempt 3  succeeded" in printed


def checked(scenes: dict[str, dict[str, float]]) -> None:
    """What the servers counted."""
    assert scenes["recovery"]["requests"] == 3
    assert 1.5 <= scenes["recovery"]["waited"] < 60  # 0.5 s and 1 s, with jitter
    outage = scenes["outage"]
    assert outage["requests_without_budget"] == 3 * outage["calls"]
    # A bucket of 100 pays for 7 retries of 14; then one for each second that it takes.
    assert outage["calls"] + 7 <= outage["requests_with_budget"] < 1.5 * outage["calls"]
    assert scenes["nesting"] == {"requests_by_hand": 27, "requests_by_redrive": 3}
    assert scenes["patience"]["requests"] == 1
    assert scenes["patience"]["elapsed"] < 60
    assert 60 < scenes["patience"]["retry_in"] <= 121
    assert scenes["uploads"] == {"items": 60, "sent": 180, "arrived": 59, "given_up": 1, "pending": 0}
    parked = scenes["commands"]
    assert (parked["done"], parked["dead"]) == (parked["commands"], 0)
    assert 10 <= parked["requests_while_down"] < 1.5 * parked["commands"]
    assert scenes["messages"] == {"events": 40, "known": 4, "search": 40, "qscore": 40, "dead": 20, "replayed": 20}
    rescue = scenes["rescue"]
    assert (rescue["lost"], rescue["doubled"], rescue["done"]) == (0, 0, rescue["jobs"])
    whole = scenes["whole"]
    assert (whole["lost"], whole["doubled"], whole["dead"]) == (0, 0, 0)
    assert whole["replayed"] == whole["found"] > 0
    assert whole["submitted"] == whole["done"] + whole["replayed"] == 6 * whole["orders"] + whole["replayed"]
    incident = scenes["incident"]
    assert (incident["answered_once"], incident["requests_once"]) == (50, 2)
    assert (incident["answered"], incident["requests"]) == (incident["callers"], 3)
    assert (incident["requests_by_hand"], incident["requests_by_redrive"]) == (60, 5)
    assert 0 < rescue["by_first"] < rescue["jobs"] == rescue["by_first"] + rescue["by_second"]


def test_without_a_terminal_it_prints_plain_lines_and_ends() -> None:
    printed = run("-c", TWO, "--once", COLUMNS="60")
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 60
    for scene in SCENES[2:4]:
        assert scene.title in printed
        assert scene.read in printed


@pytest.mark.skipif("REDRIVE_FULL" not in os.environ, reason="the whole of it, as it is: REDRIVE_FULL=1")
def test_as_it_is() -> None:
    data = json.loads(run("-m", "redrive.demo", "--once", "--json"))
    checked(data["scenes"])
