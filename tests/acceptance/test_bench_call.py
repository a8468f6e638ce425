"""`make bench-call` works and judges rightly. What it measures is not asserted here: machines are noisy."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.interval import Interval, number
from benchmarks.results import Results
from benchmarks.table import Table
from benchmarks.targets import TARGETS, Target, exit_code, judge, last_line, verdict

ROOT = Path(__file__).resolve().parents[2]


def target(what: str, limit: float, figure: Interval | None) -> Target:
    return Target(what, limit, "×", lambda _: figure, lambda _: "")


@pytest.mark.parametrize(
    ("figure", "judged"),
    [
        (Interval(5.0, 4.8, 5.2), "ok"),
        (Interval(5.5, 5.5, 5.5), "ok"),
        (Interval(5.4, 5.0, 6.0), "ok"),
        (Interval(5.7, 5.4, 6.0), "ok within noise"),
        (Interval(5.7, 5.6, 6.0), "MISSED"),
        (None, "NOT MEASURED"),
    ],
)
def test_a_target_is_missed_only_where_the_whole_interval_misses_it(figure: Interval | None, judged: str) -> None:
    assert verdict(figure, 5.5) == judged


def test_the_last_line_names_what_is_missed_and_the_exit_code_says_so() -> None:
    met = target("met", 2, Interval(1, 1, 1))
    noisy = target("noisy", 2, Interval(3, 1, 4))
    missed = target("slow", 2, Interval(3, 2.5, 4))
    unknown = target("unknown", 2, None)

    good = judge(Results(), [met, noisy])
    assert (last_line(good), exit_code(good)) == ("all 2 targets met", 0)
    bad = judge(Results(), [met, noisy, missed, unknown])
    assert last_line(bad) == "2 of 4 targets missed: slow (missed); unknown (not measured)"
    assert exit_code(bad) == 1


def test_a_target_that_was_not_measured_is_not_met() -> None:
    judgements = judge(Results(), TARGETS)
    assert [j.verdict for j in judgements] == ["NOT MEASURED"] * len(TARGETS)
    assert exit_code(judgements) == 1


def test_the_interval_of_a_median() -> None:
    # n = 41: the ranks 14 and 28 enclose the median with 97.2 %, the next ones only with 94.0 %.
    assert Interval.of([float(n) for n in range(41, 0, -1)]) == Interval(21, 14, 28)
    assert Interval.of([3.0, 1.0, 2.0]) == Interval(2, 1, 3)
    assert Interval.of([4.0]) == Interval.exactly(4)
    with pytest.raises(ValueError, match="no samples"):
        Interval.of([])


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (3, "3"), (4.404, "4.40"), (13.04, "13.0"), (479.2, "479"), (0.05, "0.05")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_a_table_on_the_terminal_and_in_markdown() -> None:
    table = Table("T", ("what", "n"), [("redrive", "1"), ("longer name", "20")])
    assert table.text().splitlines() == [
        "T",
        "what          n",
        "-----------  --",
        "redrive       1",
        "longer name  20",
    ]
    assert "| **redrive** | **1** |\n| longer name | 20 |" in table.markdown()


def test_a_quick_run_measures_what_is_installed_and_writes_table_and_plot(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/call.py", "--quick", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=240, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    last = done.stdout.splitlines()[-1]
    met = re.fullmatch(r"all \d+ targets met", last)
    assert met or re.match(r"\d+ of \d+ targets missed: ", last)
    assert done.returncode == (0 if met else 1)
    # Every figure of ours is there, whatever it is; a peer that is not installed is said to be.
    assert "not measured" not in last, done.stdout
    assert "NOT MEASURED" not in done.stdout
    assert "floor: a loop of three attempts" in done.stdout
    assert "tenacity: @retry" in done.stdout

    table = (tmp_path / "call.md").read_text(encoding="utf-8")
    for target_ in TARGETS:
        assert f"| {target_.what} | ≤ " in table or f"| **{target_.what}** " in table
    assert f"{sys.version_info.major}.{sys.version_info.minor}." in table
    picture = (tmp_path / "call.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert ">redrive</text>" in picture


def test_a_library_that_is_missing_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "nopanic.py").write_text("raise RuntimeError('broken')\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])}
    command = [sys.executable, "-m", "benchmarks.call", "--quick", "--only", "floor,nopanic"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=240, check=False
    )
    assert done.returncode == 1, done.stderr
    assert re.search(r"^nopanic +RuntimeError: broken$", done.stdout, re.MULTILINE)
    assert "targets missed: " in done.stdout.splitlines()[-1]
