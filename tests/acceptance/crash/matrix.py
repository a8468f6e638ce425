"""`make crash-matrix`: every crash point × database × way to crash × pass, as a table. Fails if a job is lost or repeated.

python -m tests.acceptance.crash.matrix [point …]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from redrive.ledger.failpoint import POINTS
from tests.servers.postgres import postgres_server
from tests.servers.process import ServerMissing
from tests.zygote import Zygote

from .cell import PASSES, WAYS, Pass, Way, deaths, play

COLUMNS = [(way, which) for way in WAYS for which in PASSES]


class Row(NamedTuple):
    """One point on one database, with every way to crash."""

    point: str
    database: str
    cells: list[str]
    """For each way and pass: ok, the problem in short, or a dash if the story does not reach the point."""
    lost: int
    doubled: int
    problems: list[str]

    @property
    def ok(self) -> bool:
        return not self.problems


def row(zygote: Zygote, point: str, database: str, url: str, *, columns: Sequence[tuple[Way, Pass]] = COLUMNS) -> Row:
    """Crash at the point in every way."""
    cells, lost, doubled, problems = [], 0, 0, []
    for way, which in columns:
        with tempfile.TemporaryDirectory(prefix="redrive-crash-") as name:
            folder = Path(name)
            try:
                crashes, verdict = play(zygote, url or f"sqlite:///{folder}/ledger.db", folder, point, way, which)
            except AssertionError as error:
                crashes, verdict = -1, None
                problems.append(f"{point} on {database}, {way}, {which}: {error}")
        lost += len(verdict.lost) if verdict else 0
        doubled += len(verdict.doubled) if verdict else 0
        if verdict is None or not verdict.ok:
            cells.append("WRONG")
            problems += [f"{point} on {database}, {way}, {which}: {verdict}"] if verdict else []
        elif crashes != deaths(point, database, which):
            cells.append("UNREACHED")
            problems.append(f"{point} on {database}, {way}, {which}: reached {crashes} times")
        else:
            cells.append("ok" if crashes else "–")
    return Row(point, database, cells, lost, doubled, problems)


def lines(rows: Iterator[Row]) -> Iterator[str]:
    """Yield the table line by line."""
    heads = [f"{way} {which}" for way, which in COLUMNS]
    yield f"{'crash point':<22}{'database':<12}" + "".join(f"{head:<13}" for head in heads) + "lost  doubled  verdict"
    for one in rows:
        cells = "".join(f"{cell:<13}" for cell in one.cells)
        counts = f"{one.lost:>4}  {one.doubled:>7}  {'ok' if one.ok else 'WRONG'}"
        yield f"{one.point:<22}{one.database:<12}{cells}{counts}"


def main(arguments: Sequence[str]) -> int:
    """Print the table. Return 1 if there is a problem."""
    points = arguments or POINTS
    unknown = [point for point in points if point not in POINTS]
    if unknown:
        print(f"there is no crash point {', '.join(unknown)}; known: {', '.join(POINTS)}", file=sys.stderr)
        return 2
    began = time.monotonic()
    done: list[Row] = []
    with ExitStack() as stack:
        zygote = stack.enter_context(Zygote())
        try:
            databases = {"sqlite": "", "postgresql": stack.enter_context(postgres_server())}
        except ServerMissing as missing:
            print(f"NOT RUN: POSTGRES. TO GET IT: {missing}", file=sys.stderr)
            return 1

        def rows() -> Iterator[Row]:
            for point in points:
                for database, url in databases.items():
                    done.append(row(zygote, point, database, url))
                    yield done[-1]

        for line in lines(rows()):
            print(line, flush=True)
    for problem in (problem for one in done for problem in one.problems):
        print(f"\n{problem}")
    cells = [cell for one in done for cell in one.cells if cell != "–"]
    print(
        f"\n{len(cells)} deaths and returns in {time.monotonic() - began:.0f} s: lost {sum(one.lost for one in done)}, "
        f"doubled {sum(one.doubled for one in done)}, otherwise wrong {sum(not one.ok for one in done)}"
    )
    return 0 if all(one.ok for one in done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
