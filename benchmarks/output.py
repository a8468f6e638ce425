"""Output of a benchmark: a progress line, then tables, a Markdown page, an SVG picture and the missed targets."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.table import Table
from benchmarks.target import Outcome, summary_line

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Output:
    """Output of a finished run."""

    head: str
    """The machine of the run."""
    tables: Sequence[Table]
    outcomes: Sequence[Outcome]
    page: Callable[[], str]
    """Renders the Markdown page."""
    picture: Callable[[], str] | None = None
    """Renders the SVG picture."""


def summarise(report: Any, results: Any, outcomes: Sequence[Outcome], *, head: str, rounds: int) -> Output:
    """Build the output from a report module with `tables`, `markdown` and `picture`."""
    return Output(
        head,
        report.tables(results, outcomes),
        outcomes,
        lambda: report.markdown(results, outcomes, rounds),
        lambda: report.picture(results),
    )


Measure = Callable[[argparse.Namespace, list[str]], Output]
"""Takes the options and the names from `--only`."""


def show_progress(text: str) -> None:
    """Overwrite the progress line, if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main(
    name: str, about: str | None, measure: Measure, *, quick: str, only: str = "", arguments: list[str] | None = None
) -> int:
    """Run the benchmark and print its output.

    Args:
        quick: Help text of `--quick`.
        only: Help text of `--only`. If empty, the option does not exist.

    Returns:
        The exit status: 1 if a target was missed.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--quick", action="store_true", help=f"{quick} (the figures are not comparable)")
    if only:
        parser.add_argument("--only", default="", help=only)
    parser.add_argument(
        "--out", type=Path, help=f"directory for {name}.md and {name}.svg (default: {HERE.name}/; with --quick: not written)"
    )
    options = parser.parse_args(arguments)
    names = [each for each in getattr(options, "only", "").split(",") if each]
    out = options.out or (None if options.quick or names else HERE)
    output = measure(options, names)
    show_progress("")
    print(output.head, end="\n\n")
    print("\n\n".join(table.text() for table in output.tables), end="\n\n")
    if out:
        out.mkdir(parents=True, exist_ok=True)
        files = {out / f"{name}.md": output.page, out / f"{name}.svg": output.picture}
        for file, render in files.items():
            if render:
                file.write_text(render(), encoding="utf-8")
        print(f"written: {', '.join(os.path.relpath(file) for file, render in files.items() if render)}")
    print(summary_line(output.outcomes))
    return 1 if any(each.missed for each in output.outcomes) else 0
