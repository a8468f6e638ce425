"""What the storage backends promise, and the tables of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.interval import Interval
from benchmarks.plot import Bar, Hue, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import Outcome, Target, summary_line, table

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
    """What one turn took."""

    done: int
    """Bytes, or objects that were listed."""
    seconds: float
    cpu: float
    grew: float
    """Bytes at the peak, above what the process had before its first act."""

    @property
    def rate(self) -> float:
        """Bytes or objects a second."""
        return self.done / self.seconds

    def said(self, act: str) -> str:
        """The rate, for people."""
        return f"{self.rate:,.0f} /s" if act == "list" else f"{self.rate / MIB:,.{0 if self.rate > 10 * MIB else 1}f} MiB/s"


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
    cases: dict[Case, list[Seen]]
    """Turn by turn; whoever lags behind has fewer of them."""

    def slower(self, case: Case) -> Interval:
        """How much longer it takes than Redrive does in the same round."""
        ours = self.cases[Case(case.backend, case.act, "ours")]
        return Interval.of([own.rate / other.rate for own, other in zip(ours, self.cases[case], strict=False)])


def middle(turns: Sequence[Seen]) -> Seen:
    """The turn in the middle: neither the best nor the worst."""
    return sorted(turns, key=lambda turn: turn.rate)[len(turns) // 2]


def judged(results: Results) -> list[Outcome]:
    speed = [
        Outcome(
            Target(f"{case.backend}: {case.act}, to {case.name}", "≥", LEAST[case.who], "×"),
            results.slower(case),
        )
        for case in results.cases
        if case.who != "ours"
    ]
    grown: dict[str, float] = {}
    for case, turns in results.cases.items():
        if case.who == "ours":
            grown[case.backend] = max(grown.get(case.backend, 0.0), *(turn.grew / MIB for turn in turns))
    memory = [
        Outcome(Target(f"{backend}: memory", "≤", MEMORY, " MiB"), Interval.exactly(round(most, 1)))
        for backend, most in grown.items()
    ]
    return speed + memory


def tables(results: Results, outcomes: Sequence[Outcome]) -> list[Table]:
    rows = []
    for case, turns in results.cases.items():
        seen = middle(turns)
        against = "" if case.who == "ours" else f"{results.slower(case)}×"
        small = case.act != "list" and seen.done < results.size
        what = (f"{case.backend}: {case.act}", f"{case.name} ({seen.done // MIB} MiB)" if small else case.name)
        most = max(turn.grew for turn in turns)  # that is what one must have
        rows.append((*what, seen.said(case.act), against, f"{seen.cpu:.2f} s", f"{most / MIB:.0f} MiB"))
    columns = ("what", "library", "rate", "against it", "processor", "memory grew")
    note = "*Against it* is how much longer it takes than Redrive does in the same round."
    return [table(outcomes), Table("One after the other", columns, rows, note)]


def markdown(results: Results, outcomes: Sequence[Outcome]) -> str:
    head = f"""\
# What storage costs

Written by `make bench-storage`: {machine()}. {results.size // MIB:,} MiB streamed and {results.count:,} objects listed over
loopback, by each in a process of its own, in up to {results.rounds} rounds, of which whoever took twice as long as the quickest
had only one. Ratios are of the same round: their median, and the interval that encloses the true one in at least 95 of 100 runs
(of fewer than six rounds: all that was seen). Whoever would have needed more than two minutes was given less, as the table says.
{"The servers kept their files in memory." if results.in_memory else ""}

![Bars on a logarithmic scale: Redrive beside the bare clients and remote-store](storage.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


HUES: dict[str, Hue] = {"ours": "ours", "native": "floor", "peer": "peer"}
PANELS = {
    "write": ("Written: s for a GiB", 1024 * MIB),
    "read": ("Read: s for a GiB", 1024 * MIB),
    "list": ("Listed: s for 10,000", 10_000),
}


def picture(results: Results) -> str:
    """The same as bars."""
    panels = []
    for act, (title, many) in PANELS.items():
        cases = [(case, middle(turns)) for case, turns in results.cases.items() if case.act == act]
        panels.append(Panel(title, "", [Bar(f"{c.backend}: {c.name}", many / seen.rate, HUES[c.who]) for c, seen in cases]))
    note = f"Over loopback, logarithmic scale, shorter is better. {machine()}"
    return card("What storage costs: Redrive beside the bare clients", "What storage costs", note, panels)
