"""What the storage backends promise, and the tables of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.interval import Interval
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import Judgement, Target, last_line, table

MIB = 1024 * 1024
NATIVE = {"local": "open()", "sftp": "asyncssh", "s3": "s3fs", "s3-pyarrow": "pyarrow", "azure": "azure-storage-blob"}
PEER = "remote-store"
LEAST = {"native": 0.9, "peer": 1.0}
"""Of another's speed."""
MEMORY = 64
"""MiB by which a process may grow, whatever the size of the file."""


@dataclass(frozen=True)
class Case:
    """Who does what, where."""

    backend: str
    act: str
    who: str

    @property
    def name(self) -> str:
        return {"ours": "Redrive", "peer": PEER}.get(self.who, NATIVE[self.backend])


@dataclass(frozen=True)
class Seen:
    """What it took: the best of some rounds."""

    seconds: float
    cpu: float
    grew: float
    """Bytes at the peak, above what the process had before its first act."""


@dataclass(frozen=True)
class Results:
    """Of one run."""

    size: int
    """Bytes of the large object."""
    count: int
    """Objects that are listed."""
    rounds: int
    in_memory: bool
    """Whether the servers kept their files there."""
    cases: dict[Case, Seen]

    def slower(self, case: Case) -> float:
        """How much longer it took than Redrive did."""
        return self.cases[case].seconds / self.cases[Case(case.backend, case.act, "ours")].seconds


def judged(results: Results) -> list[Judgement]:
    speed = [
        Judgement(
            Target(f"{case.backend}: {case.act}, to {case.name}", "≥", LEAST[case.who], "×"),
            Interval.exactly(results.slower(case)),
        )
        for case in results.cases
        if case.who != "ours"
    ]
    grown: dict[str, float] = {}
    for case, seen in results.cases.items():
        if case.who == "ours":
            grown[case.backend] = max(grown.get(case.backend, 0.0), seen.grew / MIB)
    memory = [
        Judgement(Target(f"{backend}: memory", "≤", MEMORY, " MiB"), Interval.exactly(round(most, 1)))
        for backend, most in grown.items()
    ]
    return speed + memory


def tables(results: Results, judgements: Sequence[Judgement]) -> list[Table]:
    rows = []
    for case, seen in results.cases.items():
        rate = results.count / seen.seconds if case.act == "list" else results.size / MIB / seen.seconds
        against = "" if case.who == "ours" else f"{results.slower(case):.2f}×"
        said = f"{rate:,.0f} {'/s' if case.act == 'list' else 'MiB/s'}"
        what = (f"{case.backend}: {case.act}", case.name)
        rows.append((*what, said, against, f"{seen.cpu:.2f} s", f"{seen.grew / MIB:.0f} MiB"))
    columns = ("what", "library", "rate", "against it", "processor", "memory grew")
    note = "*Against it* is how much longer it took than Redrive did."
    return [table(judgements), Table("One after the other", columns, rows, note)]


def markdown(results: Results, judgements: Sequence[Judgement]) -> str:
    head = f"""\
# What storage costs

Written by `make bench-storage`: {machine()}. {results.size // MIB:,} MiB streamed and {results.count:,} objects listed over
loopback, by each in a process of its own; the best of up to {results.rounds} rounds, of which whoever took twice as long as
the quickest had only one.{" The servers kept their files in memory." if results.in_memory else ""}
"""
    body = "\n\n".join(each.markdown() for each in tables(results, judgements))
    return f"{head}\n{body}\n\n{last_line(judgements).capitalize()}.\n"
