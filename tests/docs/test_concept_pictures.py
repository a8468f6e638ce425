"""The pictures of the concept pages show the states of the code."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, get_args

import pytest

from redrive.batch.report import Status as ItemStatus
from redrive.ledger.model import DisplayState
from redrive.partitions.model import Status as PartitionStatus
from tests.architecture.layers import LAYERS

ROOT = Path(__file__).parents[2]
LIFE_CYCLES = (ROOT / "docs" / "concepts" / "life-cycles.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "concept_pictures.py"))


def test_the_files_are_as_the_script_draws_them(script: dict[str, Any]) -> None:
    for picture in script["PICTURES"]:
        file = ROOT / "docs" / "pictures" / f"{picture.name}.svg"
        assert file.read_text(encoding="utf-8") == script["draw"](picture), "run scripts/concept_pictures.py"


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("JOB", set(get_args(DisplayState))),
        ("PARTITION", set(get_args(PartitionStatus))),
        ("ITEM", set(get_args(ItemStatus)) - {"rejected"}),
    ],
)
def test_a_picture_has_every_state(script: dict[str, Any], name: str, states: set[str]) -> None:
    assert states <= {box.title for box in script[name].boxes}
    assert all(f"`{state}`" in LIFE_CYCLES for state in states)


def test_the_layers_are_those_that_are_checked(script: dict[str, Any]) -> None:
    drawn = [frozenset(title.split(" · ")) for title, _, _ in script["LAYER_ROWS"]]
    checked = [layer for layer in reversed(LAYERS) if layer != {"__main__"}]
    assert drawn == checked
