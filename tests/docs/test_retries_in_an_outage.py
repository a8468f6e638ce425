"""The page about retries in an outage: its pictures and tables are those of the scenarios."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from redrive.ops.retries.simulation import read_scenario

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "outage_load_pictures.py"))


@pytest.mark.parametrize("name", ["libraries", "overload", "budgets", "jitter", "layers"])
@pytest.mark.req("Z-1")
def test_a_picture_is_what_its_scenario_gives(script: dict[str, Any], name: str) -> None:
    drawn = script["draw"](script["report"](name))
    committed = script["picture_file"](name).read_text(encoding="utf-8")
    assert committed == drawn, "run scripts/outage_load_pictures.py"


def test_the_tables_are_those_of_the_scenarios(script: dict[str, Any]) -> None:
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](), "run scripts/outage_load_pictures.py"
    assert all(f"<!-- figures: {name} -->" in script["page"]() for name in script["NAMES"])


def test_every_example_is_a_valid_scenario(script: dict[str, Any]) -> None:
    files = sorted(script["SCENARIOS"].glob("*.toml"))
    assert {file.stem for file in files} == {*script["NAMES"], "million"}
    assert all(read_scenario(str(file)).outages or file.stem == "jitter" for file in files)
