"""The register of requirements: its records, its table and its errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import NOT_YET, NUMBERS, Shown, requirements, table

ROOT = Path(__file__).parents[1]

TEXT = """
- R-1 The first.
- R-2 ★ Another (◇ with a part for later).
- S-13 ★ ◇ For later.
- not a number
"""


def test_numbers_are_read_from_the_text() -> None:
    assert requirements(TEXT) == {"R-1": False, "R-2": False, "S-13": True}
    assert len(requirements(NUMBERS.read_text(encoding="utf-8"))) == 159


def shown_by(outcome: str, *numbers: str) -> Shown:
    return Shown(numbers, outcome)


def test_the_table_has_a_line_for_each_requirement() -> None:
    records = {
        "python3.11": {
            "a[1]": shown_by("passed", "R-1"),
            "a[2]": shown_by("passed", "R-1"),
            "b": shown_by("passed", "R-1"),
            "c": shown_by("skipped", "R-2"),
        },
        "python3.12": {"a[1]": shown_by("passed", "R-1")},
    }
    lines, wrong = table({"R-1": False, "R-2": False, "R-3": False, "C-1": False, "C-13": True}, records, {"C-1"})
    assert lines == [
        "R-1   ok       a (+1)",
        "R-2   SKIPPED  c (python3.11)",
        "R-3   MISSING",
        "C-1   not yet",
        "",
        "For later:",
        "C-13  later",
    ]
    assert wrong == ["R-2 SKIPPED: c (python3.11)", "R-3 MISSING: no test shows it"]


def test_a_failure_on_any_interpreter_counts() -> None:
    records = {"python3.11": {"a": shown_by("passed", "R-1")}, "python3.13": {"a": shown_by("failed", "R-1")}}
    lines, wrong = table({"R-1": False}, records, set())
    assert lines == ["R-1   FAILED   a (python3.13)"]
    assert wrong == ["R-1 FAILED: a (python3.13)"]


def test_the_list_of_missing_requirements_only_shrinks() -> None:
    _, wrong = table({"R-1": False}, {"python3.11": {"a": shown_by("passed", "R-1")}}, {"R-1", "X-9"})
    assert wrong == [
        "X-9 stands in not_yet.txt but is no requirement",
        f"R-1 is shown by a: take it out of {NOT_YET.name}",
    ]


def run(folder: Path, source: str) -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
    (folder / "test_it.py").write_text("import pytest\n" + source)
    command = [sys.executable, "-m", "pytest", "-p", "tests.requirements", "-p", "no:cacheprovider", "-c", os.devnull]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment["REDRIVE_REQUIREMENTS"] = str(folder / "records")
    done = subprocess.run([*command, "--rootdir", ".", "."], cwd=folder, env=environment, capture_output=True, text=True)
    records = list((folder / "records").glob("*.json"))
    return done, json.loads(records[0].read_text()) if records else {}


SOURCE = """
@pytest.fixture
def broken():
    yield
    raise OSError

class TestIt:
    pytestmark = pytest.mark.req("R-1")
    def test_passes(self): pass
    @pytest.mark.req("R-2", "R-3")
    def test_fails(self): assert 0
    def test_skips(self): pytest.skip("no server")
    def test_breaks_afterwards(self, broken): pass
def test_without_a_number(): pass
"""


def test_outcomes_of_marked_tests_are_recorded(tmp_path: Path) -> None:
    _, record = run(tmp_path, SOURCE)
    assert record == {
        "test_it.py::TestIt::test_passes": [["R-1"], "passed"],
        "test_it.py::TestIt::test_fails": [["R-2", "R-3", "R-1"], "failed"],
        "test_it.py::TestIt::test_skips": [["R-1"], "skipped"],
        "test_it.py::TestIt::test_breaks_afterwards": [["R-1"], "failed"],
    }
    # A later run replaces the tests that it ran, and keeps the rest.
    _, record = run(tmp_path, "class TestIt:\n    @pytest.mark.req('R-2')\n    def test_fails(self): pass\n")
    assert record["test_it.py::TestIt::test_fails"] == [["R-2"], "passed"]
    assert len(record) == 4


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ('req("R-999")', "there is no requirement 'R-999'"),
        ("req()", "write @pytest.mark.req("),
        ("req", "write @pytest.mark.req("),
        ("req(1)", "write @pytest.mark.req("),
    ],
)
def test_an_invalid_marker_stops_the_run(tmp_path: Path, marker: str, message: str) -> None:
    done, record = run(tmp_path, f"@pytest.mark.{marker}\ndef test_it(): pass\n")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in done.stderr
    assert record == {}
