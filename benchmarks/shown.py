"""What a benchmark shows: one line while it runs; at its end tables, a page, a picture, and which targets were missed."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.table import Table
from benchmarks.target import Judgement, last_line

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Shown:
    """The end of a run."""

    head: str
    """Where it was measured."""
    tables: Sequence[Table]
    judgements: Sequence[Judgement]
    page: Callable[[], str]
    """In Markdown."""
    picture: Callable[[], str] | None = None
    """As SVG."""


def summarise(report: Any, results: Any, judgements: Sequence[Judgement], *, head: str, rounds: int) -> Shown:
    """The end of a run whose report is a module with `tables`, `markdown` and `picture`."""
    return Shown(
        head,
        report.tables(results, judgements),
        judgements,
        lambda: report.markdown(results, judgements, rounds),
        lambda: report.picture(results),
    )


Measure = Callable[[argparse.Namespace, list[str]], Shown]
"""From the options, and the names after --only, to the end of the run."""


def show(text: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main(
    name: str, about: str | None, measure: Measure, *, quick: str, only: str = "", arguments: list[str] | None = None
) -> int:
    """Measure, and show it; the exit status. quick, only: what the options say of themselves; without `only` there is none."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--quick", action="store_true", help=f"{quick}; the figures mean little")
    if only:
        parser.add_argument("--only", default="", help=only)
    parser.add_argument(
        "--out", type=Path, help=f"where {name}.md and {name}.svg go (default: {HERE.name}/; with --quick, nowhere)"
    )
    options = parser.parse_args(arguments)
    some = [each for each in getattr(options, "only", "").split(",") if each]
    out = options.out or (None if options.quick or some else HERE)
    shown = measure(options, some)
    show("")
    print(shown.head, end="\n\n")
    print("\n\n".join(table.text() for table in shown.tables), end="\n\n")
    if out:
        out.mkdir(parents=True, exist_ok=True)
        written = {out / f"{name}.md": shown.page, out / f"{name}.svg": shown.picture}
        for file, text in written.items():
            if text:
                file.write_text(text(), encoding="utf-8")
        print(f"written: {', '.join(os.path.relpath(file) for file, text in written.items() if text)}")
    print(last_line(shown.judgements))
    return 1 if any(each.missed for each in shown.judgements) else 0
