"""docs/concepts/scale.md has the figures of benchmarks/, and its capacity model agrees with them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from benchmarks.engines_suite import report
from benchmarks.engines_suite.results import ALL, FAILURES, LOOP, PROCESSES, Results
from tests.docs import scale_figures
from tests.docs.scale_figures import CELLS, COMMAND, ENGINES, FIGURE, NUMBER

TEXT = scale_figures.PAGE.read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tables without engines.md."""
    for page in scale_figures.BENCHMARKS.glob("*.md"):
        shutil.copy(page, tmp_path)
    (tmp_path / "engines.md").unlink(missing_ok=True)
    return tmp_path


def test_the_figures_are_those_of_the_benchmarks() -> None:
    assert scale_figures.update(TEXT) == TEXT, f"stale: run `{COMMAND}`"


def test_every_figure_of_the_tables_is_on_the_page() -> None:
    assert CELLS.keys() <= {found["name"] for found in FIGURE.finditer(TEXT)}


def test_every_number_in_a_column_of_figures_has_a_source() -> None:
    for line, is_figure in number_columns(ENGINES.sub("", TEXT)):
        cells = [cell for cell, right in zip(line.strip("|").split("|"), is_figure, strict=True) if right]
        assert not NUMBER.search(FIGURE.sub("", "|".join(cells))), line


def number_columns(text: str) -> list[tuple[str, list[bool]]]:
    """The rows of all tables, with the columns that are aligned to the right."""
    rows: list[tuple[str, list[bool]]] = []
    columns: list[bool] = []
    for line in text.splitlines():
        if re.fullmatch(r"\|(?: -+:? \|)+", line):
            columns = [cell.strip().endswith(":") for cell in line.strip("|").split("|")]
        elif line.startswith("|") and columns:
            rows.append((line, columns))
        else:
            columns = []
    return rows


def test_a_new_measurement_changes_only_its_figure(folder: Path) -> None:
    page = folder / "ledger.md"
    old = scale_figures.tables(page.read_text("utf-8"))[CELLS["postgres.batch"].table]["redrive ledger"]["jobs/s"]
    page.write_text(page.read_text("utf-8").replace(old, "98,765 (90,000–99,999)"), encoding="utf-8")
    text = scale_figures.update(TEXT, folder)
    assert "98,800<!--postgres.batch-->" in text
    assert {found["name"] for found in FIGURE.finditer(text) if found.group() not in TEXT} == {"postgres.batch"}


def test_a_renamed_row_of_a_benchmark_is_reported(folder: Path) -> None:
    page = folder / "ledger.md"
    page.write_text(page.read_text("utf-8").replace("**redrive ledger**", "**the ledger**"), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"benchmarks/ledger\.md: no 'redrive ledger' for postgres\.single"):
        scale_figures.update(TEXT, folder)


def test_the_model_predicts_the_measured_rates() -> None:
    figures, names = scale_figures.measured(), scale_figures.model(TEXT)
    load = names["workers"].__defaults__[-1]
    for name, rate in scale_figures.predicted(figures, names).items():
        assert load <= figures[f"{name}.20ms"] / rate <= 1.25, name


def test_the_predicted_workers_reach_the_peak() -> None:
    figures, names = scale_figures.measured(), scale_figures.model(TEXT)
    for form, slots in scale_figures.SLOTS.items():
        for peak in (100, 1_000, 10_000):
            needed = names["workers"](peak, scale_figures.BUSY_SECONDS, slots, empty=figures[f"postgres.{form}"])
            assert needed * figures[f"postgres.{form}.20ms"] >= peak


def test_the_model_predicts_the_sizes_of_the_ledger() -> None:
    text = scale_figures.SIZES.read_text("utf-8")
    names = scale_figures.model(TEXT)
    month, year = (names["ledger_bytes"](100_000, days) for days in (30, 30 + 365))
    assert f"{month / 1e9:.1f} GB on Postgres" in text
    assert f"or {(year - month) / 1e9:.0f} GB of pruned rows" in text


def test_without_engines_the_page_names_the_benchmark(folder: Path) -> None:
    assert "`make bench-engines` measures Redis" in scale_figures.update(TEXT, folder)


def test_with_engines_the_page_has_their_rates(folder: Path) -> None:
    rates = {("nats", method, count): [1_000.0 * count] for method in (LOOP, FAILURES) for count in PROCESSES}
    page = report.markdown(Results(rates | {("nats", ALL, 1): [456.0]}), [], 3)
    (folder / "engines.md").write_text(page, encoding="utf-8")
    text = scale_figures.update(TEXT, folder)
    assert '| NATS JetStream, `persist="failures"` | 1,000/s | 2,000/s | 4,000/s | 8,000/s |\n' in text
    assert '| NATS JetStream, `persist="all"`, Postgres | 456/s |  |  |  |\n' in text
    assert text.count("NATS JetStream, `") == 2
    assert scale_figures.update(text, folder) == text
