"""`redrive simulate`: output, picture, exit codes and errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.unit.cli.command import call, on_terminal

SCENARIO = """
minutes = 0.5
[service]
capacity = 30
latency = 0.1
[[outage]]
at = 5
lasts = 10
[clients]
count = 100
processes = 2
every = 5
[[policy]]
name = "calm"
budget = true
[[policy]]
name = "eager"
max_attempts = 30
backoff = { fixed = 0.5 }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outage.toml").write_text(SCENARIO)
    return tmp_path


@pytest.mark.req("Z-1")
def test_policies_are_compared_in_a_table_and_a_picture(folder: Path) -> None:
    status, output = call("simulate", "outage.toml", "--svg", "load.svg")
    assert status == 0
    assert "100 clients in 2 processes, 20 calls/s; capacity 30/s; 30 s simulated" in output
    assert "Outages: down from 5 s for 10 s. Seed 1." in output
    rows = {line.split()[0]: line.split() for line in output.splitlines() if line.startswith(("  calm", "  eager"))}
    assert float(rows["calm"][3]) < 2 < float(rows["eager"][3])
    assert "Picture: load.svg" in output
    assert "<title>Retries in an outage</title>" in (folder / "load.svg").read_text(encoding="utf-8")


def test_json_has_the_figures_and_the_curve_of_each_second() -> None:
    status, output = call("simulate", "outage.toml", "--json", "--seed", "5")
    report = json.loads(output)
    assert (status, report["seed"], report["seconds"]) == (0, 5, 30)
    calm, eager = report["policies"]
    assert calm["amplification"] < eager["amplification"]
    assert sum(calm["curve"]["attempts"]) == calm["attempts"]
    assert len(calm["curve"]["calls"]) == 30
    assert set(calm["reasons"]) <= {"attempts", "budget"}


def test_a_service_that_does_not_recover_is_exit_code_1(folder: Path) -> None:
    text = SCENARIO.replace("lasts = 10", "lasts = 24").replace("capacity = 30", "capacity = 21")
    (folder / "outage.toml").write_text(text)
    status, output = call("simulate", "outage.toml")
    assert status == 1
    assert "not recovered" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.toml",), "missing.toml cannot be read: No such file or directory"),
        (("broken.toml",), "broken.toml is not valid TOML: "),
        (("misspelt.toml",), "misspelt.toml: [clients]: unknown key 'evry' (did you mean 'every'?); known: count, every"),
        (("outage.toml", "--svg", "nowhere/load.svg"), "--svg nowhere/load.svg: not a file in an existing folder"),
        (("outage.toml", "--svg", "."), "--svg .: not a file in an existing folder"),
        (("outage.toml", "--seed", "-1"), "--seed"),
    ],
)
def test_invalid_input_is_one_line_and_exit_code_2(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    (folder / "broken.toml").write_text("[service")
    (folder / "misspelt.toml").write_text(SCENARIO.replace("every", "evry"))
    status, output = call("simulate", *arguments)
    assert status == 2
    assert message in " ".join(output.split())


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "numpy" or name == "redrive.simulation.fleet"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("layer_state", "service"):
        monkeypatch.delitem(sys.modules, f"redrive.simulation.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    status, output = call("simulate", "outage.toml")
    assert (status, output) == (2, 'redrive: simulate: NumPy is not installed; pip install "redrive[simulate]"\n')


def test_a_terminal_gets_a_progress_bar() -> None:
    status, output = on_terminal("simulate", "outage.toml")
    assert (status, "━" in output) == (0, True)
    assert "━" not in on_terminal("simulate", "outage.toml", "--quiet")[1]
