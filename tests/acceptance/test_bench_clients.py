"""`make bench-clients` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

from pathlib import Path

from benchmarks.clients.part import Part
from benchmarks.clients.report import markdown, outcomes, picture
from benchmarks.interval import Interval
from benchmarks.plot import Bar, Panel
from benchmarks.target import Outcome, Target, summary_line
from tests.acceptance.bench import quick


def test_the_last_line_names_missed_targets() -> None:
    met = Outcome(Target("met", "≤", 1.15, "×"), Interval(1.1, 1, 1.2))
    slow = Outcome(Target("slow", "≤", 1.15, "×"), Interval(1.3, 1.2, 1.4))
    gone = Outcome(Target("gone", "≥", 8, "×"), None)
    assert summary_line(outcomes([Part([met]), Part([slow, gone])])) == (
        "2 of 3 targets missed: slow (missed); gone (not measured)"
    )


def test_table_and_picture_include_all_parts() -> None:
    part = Part(
        outcomes=[Outcome(Target("time per request", "≤", 1.15, "×"), Interval(1.1, 1.05, 1.2))],
        panels=[Panel("GET", "×", [Bar("redrive Client", 1.1, "ours")], 1.15)],
        notes=["How it was measured."],
        absent={"httpx-retries": "not installed"},
    )
    text = markdown([part])
    assert "| time per request | ≤ 1.15× | 1.10 (1.05–1.20)× | ok |" in text
    assert "How it was measured." in text
    assert "| httpx-retries | not installed |" in text
    assert ">redrive Client</text>" in picture([part])


def test_a_quick_run_measures_installed_clients_and_writes_table_and_plot(tmp_path: Path) -> None:
    printed = quick("clients", tmp_path, "--only", "http")
    assert printed.count("time per request") >= 4
    assert "NOT MEASURED" not in printed
    assert (tmp_path / "clients.md").read_text(encoding="utf-8").startswith("# Benchmark: clients")
    assert ">redrive Transport</text>" in (tmp_path / "clients.svg").read_text(encoding="utf-8")
