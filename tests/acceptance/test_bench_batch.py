"""`make bench-batch` works and evaluates targets correctly. Figures are not asserted, because machines are noisy."""

from pathlib import Path

import pytest

from benchmarks.batch_suite.report import markdown, picture, tables, targets
from benchmarks.batch_suite.runner import Results
from benchmarks.ledger_suite.results import Pair
from benchmarks.target import summary_line
from tests.acceptance.bench import quick


@pytest.mark.req("B-12")
def test_the_targets_are_the_requirements() -> None:
    results = Results(
        success={("ledger", 1): [0.5], ("table", 1): [6.0]},
        increments={"ledger": [[1.0] * 99 + [4.0]], "table": [[1.0] * 97 + [9.0] * 3], "bare": [[0.5]]},
        one_pass={"ledger": Pair([1.0], [1.09]), "table": Pair([1.0], [1.2])},
        shares={"ledger": [0.05], "table": [0.5]},
        items=10_000,
    )
    outcomes = targets(results)
    assert {j.target.text for j in outcomes} == {"≤ 5 ms", "≤ 10 %"}
    assert [j.verdict for j in outcomes] == ["ok", "ok", "ok", "ok", "MISSED", "MISSED", "MISSED", "MISSED"]
    assert summary_line(outcomes).startswith(
        "4 of 8 targets missed: TableItems, overhead of a successful call with 1 item (missed)"
    )
    text = markdown(results, outcomes, 1)
    assert "| app.items, overhead for 10,000 items, 1 % rejected | ≤ 10 % | 9.00 % | ok |" in text
    assert [table.title for table in tables(results, outcomes)][1:] == [
        "Increment, ms",
        "10,000 items in one pass, seconds",
    ]
    assert ">bare sender</text>" in picture(results)


@pytest.mark.req("B-12")
def test_a_quick_run_measures_everything_and_writes_table_and_plot(postgres: str, tmp_path: Path) -> None:
    assert "NOT MEASURED" not in quick("batch.py", tmp_path, postgres=postgres)
    assert (tmp_path / "batch.md").read_text(encoding="utf-8").startswith("# Benchmark: batches")
    assert ">bare sender</text>" in (tmp_path / "batch.svg").read_text(encoding="utf-8")
