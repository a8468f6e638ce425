"""`make bench-call` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

import os
import re
import sys
from pathlib import Path

from benchmarks.results import Results
from benchmarks.target import check_targets
from benchmarks.targets import TARGETS
from tests.acceptance.bench import ROOT, quick


def test_a_target_that_was_not_measured_is_not_met() -> None:
    outcomes = check_targets(Results(), TARGETS)
    assert [j.verdict for j in outcomes] == ["NOT MEASURED"] * len(TARGETS)
    assert all(j.missed for j in outcomes)


def test_a_quick_run_measures_installed_libraries_and_writes_table_and_plot(tmp_path: Path) -> None:
    printed = quick("call.py", tmp_path, PYTHONPATH=str(ROOT / "src"))
    # Only libraries that are not installed may be without a figure.
    assert "not measured" not in printed.splitlines()[-1], printed
    assert "NOT MEASURED" not in printed
    assert "floor, loop of three attempts" in printed
    assert "tenacity, @retry" in printed

    table = (tmp_path / "call.md").read_text(encoding="utf-8")
    for target in TARGETS:
        assert f"| {target.what} | ≤ " in table or f"| **{target.what}** " in table
    assert f"{sys.version_info.major}.{sys.version_info.minor}." in table
    picture = (tmp_path / "call.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert ">redrive</text>" in picture


def test_a_missing_library_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "nopanic.py").write_text("raise RuntimeError('broken')\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    printed = quick("call.py", tmp_path, "--only", "floor,nopanic", PYTHONPATH=path)
    assert re.search(r"^nopanic +RuntimeError: broken$", printed, re.MULTILINE)
    assert "targets missed: " in printed.splitlines()[-1]
