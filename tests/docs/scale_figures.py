"""Updates the figures of docs/concepts/scale.md from the tables in benchmarks/: `python -m tests.docs.scale_figures --write`.

A figure on the page is a number before a comment with its name, as in `24,300<!--postgres.batch-->`. In code it is
`24_300  # figure: postgres.batch`. Without `--write`, stale figures are printed, and the exit code is 1.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.docs.blocks import blocks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "scale.md"
SIZES = ROOT / "docs" / "concepts" / "database.md"
BENCHMARKS = ROOT / "benchmarks"
COMMAND = "python -m tests.docs.scale_figures --write"

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
FIGURE = re.compile(r"(?P<number>\d[\d,]*(?:\.\d+)?)<!--(?P<name>[a-z][\w.]*)-->")
CONSTANT = re.compile(r"(?P<number>\d[\d_]*(?:\.\d+)?)  # figure: (?P<name>[a-z][\w.]*)")
ENGINES = re.compile(r"(?<=<!-- engines -->\n).*?(?=<!-- end of engines -->)", re.DOTALL)
PROCESSES = re.compile(r"\d process(?:es)?")

Tables = dict[str, dict[str, dict[str, str]]]
"""Cells by the title of the table, the first cell of the row and the column."""


class Cell(NamedTuple):
    """The place of a figure in a page of benchmarks/."""

    page: str
    table: str
    row: str
    column: str


def _cells() -> Iterator[tuple[str, Cell]]:
    for database in ("Postgres", "SQLite"):
        name = database.lower()
        single, batch = (f"{database}, empty jobs, {how}" for how in ("one at a time", "in batches of 100"))
        empty, busy = (f"{database}, {jobs}, whole worker" for jobs in ("empty commands", "commands of 20 ms"))
        claim = Cell("ledger", "Claim of 100 jobs in a large table", f"{database}, due", "10,000 jobs, ms")
        yield f"{name}.single", Cell("ledger", single, "redrive ledger", "jobs/s")
        yield f"{name}.batch", Cell("ledger", batch, "redrive ledger", "jobs/s")
        yield f"{name}.claim.small", claim
        yield f"{name}.claim.large", claim._replace(column="1,000,000 jobs, ms")
        yield f"{name}.sync", Cell("commands", empty, "redrive, sync", "commands/s")
        yield f"{name}.async", Cell("commands", empty, "redrive, async", "commands/s")
        yield f"{name}.sync.20ms", Cell("commands", busy, "redrive, sync", "commands/s")
        yield f"{name}.async.20ms", Cell("commands", busy, "redrive, async", "commands/s")
        yield f"{name}.start", Cell("commands", f"{database}, from submit to start on an idle worker", "redrive", "p50, ms")
        yield f"{name}.messages", Cell("messages", "Batches of 100, empty handler", f"redrive, {database}", "messages/s")
        yield f"{name}.steps", Cell("steps", "Jobs of ten steps, one worker", f"redrive on {database}", "jobs/s")
    submit = Cell("ledger", "32 threads, one job per submit", "Postgres, same statement", "one ledger, jobs/s")
    yield "postgres.submit", submit
    yield "postgres.submit.apart", submit._replace(column="32 connections, jobs/s")
    yield "sqlite.submit", submit._replace(row="SQLite, bare row")
    single = "One message at a time, empty handler"
    yield "postgres.messages.single", Cell("messages", single, "redrive, Postgres", "messages/s")
    for name, setting in (("default", "default threads"), ("async", "async")):
        row = f"redrive on Postgres, {setting}"
        yield f"postgres.steps.{name}", Cell("steps", "Jobs of ten steps, one worker", row, "jobs/s")
    for trip in (0, 20, 100):
        yield f"trip.{trip}", Cell("ledger", "Network round trip to Postgres, jobs/s", "redrive worker", f"{trip} ms")


CELLS = dict(_cells())
STEPS = 10
"""Steps of a job in benchmarks/steps.md."""
BUSY_SECONDS = 0.020
"""Duration of a job in benchmarks/commands.md that is not empty."""
SLOTS = {"sync": 8, "async": 100}
"""Jobs that a worker with default settings runs at the same time."""


def tables(text: str, /) -> Tables:
    """The tables of a Markdown page, without bold."""
    found: Tables = {}
    title = ""
    columns: list[str] = []
    for line in text.replace("**", "").splitlines():
        if line.startswith("#"):
            title, columns = line.strip("# "), []
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not columns:
                columns = cells
            elif set(line) - set("|-: "):
                found.setdefault(title, {})[cells[0]] = dict(zip(columns, cells, strict=True))
    return found


def value(cell: str, /) -> float:
    """The number at the start of a cell: the median, if an interval follows it."""
    found = NUMBER.match(cell)
    if found is None:
        raise ValueError(f"not a figure: {cell!r}")
    return float(found.group().replace(",", ""))


def shown(number: float, /) -> str:
    """Three significant digits. An integer is a count, and exact."""
    if isinstance(number, int):
        return f"{number:,}"
    return f"{float(f'{number:.3g}'):,.0f}" if number >= 1000 else f"{number:.3g}"


def measured(folder: Path = BENCHMARKS, /) -> dict[str, float]:
    """The figures of the tables by name."""
    pages = {name: tables((folder / f"{name}.md").read_text("utf-8")) for name in ("console", *{c.page for c in CELLS.values()})}
    figures = {}
    for name, (page, table, row, column) in CELLS.items():
        try:
            figures[name] = value(pages[page][table][row][column])
        except KeyError as error:
            raise SystemExit(
                f"benchmarks/{page}.md: no {error} for {name}; correct CELLS in tests/docs/scale_figures.py"
            ) from None
    sizes = tables(SIZES.read_text("utf-8"))["Size"]
    for database in ("Postgres", "SQLite"):
        rows = pages["console"][f"Pages on {database}"].values()
        figures[f"{database.lower()}.console"] = max(value(row["ms at 1,000,000, p95"]) for row in rows)
        for state in ("done", "pruned"):
            figures[f"{database.lower()}.{state}"] = value(sizes[f"{state} job"][database])
    figures["weight.step"] = round(figures["postgres.async"] / figures["postgres.steps.async"] / STEPS, 1)
    figures["weight.message"] = round(figures["postgres.sync"] / figures["postgres.messages"], 1)
    return figures


def model(text: str, /) -> dict[str, Any]:
    """The names that the code of the page defines."""
    names: dict[str, Any] = {}
    for block in blocks(text):
        if block.language == "python":
            exec(block.source, names)
    return names


def predicted(figures: Mapping[str, float], names: Mapping[str, Any], /) -> dict[str, float]:
    """Rates of jobs of 20 ms by the model of the page."""
    return {
        f"{database}.{form}": names["jobs_per_second"](BUSY_SECONDS, SLOTS[form], empty=figures[f"{database}.{form}"])
        for database in ("postgres", "sqlite")
        for form in SLOTS
    }


def update(text: str, folder: Path = BENCHMARKS, /) -> str:
    """The page with the figures of the tables in `folder`."""
    figures = measured(folder)
    text = CONSTANT.sub(lambda found: f"{_look_up(figures, found).replace(',', '_')}  # figure: {found['name']}", text)
    names = model(text)
    rates = predicted(figures, names)
    figures |= {f"model.{name}": rate for name, rate in rates.items()}
    figures["model.lowest"] = round(min(figures[f"{name}.20ms"] / rate for name, rate in rates.items()), 2)
    figures |= {f"example.{name}": each for name, each in names.items() if isinstance(each, int | float)}
    text = FIGURE.sub(lambda found: f"{_look_up(figures, found)}<!--{found['name']}-->", text)
    return ENGINES.sub(lambda _: engines(folder / "engines.md"), text)


def _look_up(figures: Mapping[str, float], found: re.Match[str]) -> str:
    if found["name"] not in figures:
        raise SystemExit(f"docs/concepts/scale.md: unknown figure {found['name']!r}; use one of {', '.join(sorted(figures))}")
    return shown(figures[found["name"]])


METHODS = {'redrive, persist="failures"': '`persist="failures"`', 'redrive, persist="all", Postgres': '`persist="all"`, Postgres'}
"""Rows of benchmarks/engines.md, and their names on the page."""
ENGINES_HEAD = """\
| messages with an empty handler | 1 process | 2 processes | 4 processes | 8 processes |
| --- | ---: | ---: | ---: | ---: |
"""


def engines(page: Path, /) -> str:
    """The table of brokers, or how to measure it."""
    if not page.exists():
        return "`make bench-engines` measures Redis, NATS, Kafka and RabbitMQ with 1, 2, 4 and 8 worker processes.\n"
    rows = []
    for title, table in tables(page.read_text("utf-8")).items():
        for method, name in METHODS.items():
            row = table.get(method, {}) if title.endswith(": messages/s") else {}
            cells = [f"{shown(value(cell))}/s" if cell else "" for column, cell in row.items() if PROCESSES.fullmatch(column)]
            if any(cells):
                rows.append(f"| {title.removesuffix(': messages/s')}, {name} | {' | '.join(cells)} |\n")
    note = "`make bench-engines` measures this. Brokers, workers and Postgres share the 2 cores.\n"
    return f"{ENGINES_HEAD}{''.join(rows)}\n{note}"


def main(arguments: list[str], /) -> int:
    """Write the page, or print the stale lines."""
    old = PAGE.read_text("utf-8")
    new = update(old)
    if arguments == ["--write"]:
        PAGE.write_text(new, encoding="utf-8")
        return 0
    sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "page", "tables", n=0))
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
