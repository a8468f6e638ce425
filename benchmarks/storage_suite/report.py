"""Targets, tables, page and picture of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.interval import Interval
from benchmarks.plot import Bar, Hue, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, Target, summary_line, table

MIB = 1024 * 1024
NATIVE = {
    "local": "open()",
    "sftp": "asyncssh",
    "s3": "s3fs",
    "s3-pyarrow": "pyarrow",
    "s3-obstore": "obstore",
    "azure": "azure-storage-blob",
    "azure-obstore": "obstore",
}
PEER = "remote-store"
RIVALS = {"s3-obstore": "type s3", "azure-obstore": "type azure"}
"""Instead of remote-store, which has no obstore: the backend of Redrive with the other client."""
MIN_RATIO = {"native": 0.9, "peer": 1.0}
"""Minimum rate relative to the client and to remote-store."""
MAX_GROWTH = 64
"""Maximum growth of a process in MiB, regardless of the file size."""


@dataclass(frozen=True)
class Case:
    """An operation on a backend, with one library."""

    backend: str
    operation: str
    role: str
    """`ours`, `native` or `peer`."""

    @property
    def name(self) -> str:
        peer = RIVALS.get(self.backend, PEER)
        return {"ours": "Redrive", "peer": peer}.get(self.role, NATIVE[self.backend])


@dataclass(frozen=True)
class Sample:
    """Figures of one operation."""

    done: int
    """Bytes, or listed objects."""
    seconds: float
    cpu: float
    growth: float
    """Peak memory in bytes, above the memory before the first operation."""

    @property
    def rate(self) -> float:
        """Bytes or objects per second."""
        return self.done / self.seconds

    def format_rate(self, operation: str) -> str:
        """Format the rate with its unit."""
        return f"{self.rate:,.0f} /s" if operation == "list" else f"{self.rate / MIB:,.{0 if self.rate > 10 * MIB else 1}f} MiB/s"


@dataclass(frozen=True)
class Results:
    """Results of a run."""

    size: int
    """Bytes of the large object."""
    count: int
    """Number of listed objects."""
    rounds: int
    in_memory: bool
    """The servers stored their files in memory."""
    cases: dict[Case, list[Sample]]
    """Samples of each round. A slow library has fewer, and one that failed has only those before."""

    def speed_up(self, case: Case) -> Interval:
        """Rate of Redrive relative to another library, round by round."""
        ours = self.cases[Case(case.backend, case.operation, "ours")]
        return Interval.of([own.rate / other.rate for own, other in zip(ours, self.cases[case], strict=False)])


def median_sample(samples: Sequence[Sample]) -> Sample:
    """Return the sample with the median rate."""
    return sorted(samples, key=lambda sample: sample.rate)[len(samples) // 2]


def targets(results: Results) -> list[Outcome]:
    """Check the targets."""
    speed = [
        Outcome(
            Target(f"{case.backend} {case.operation}, vs {case.name}", "≥", MIN_RATIO[case.role], "×"),
            results.speed_up(case),
        )
        for case in results.cases
        if case.role != "ours"
    ]
    growth: dict[str, float] = {}
    for case, samples in results.cases.items():
        if case.role == "ours":
            growth[case.backend] = max(growth.get(case.backend, 0.0), *(sample.growth / MIB for sample in samples))
    memory = [
        Outcome(Target(f"{backend} memory", "≤", MAX_GROWTH, " MiB"), Interval.exactly(round(most, 1)))
        for backend, most in growth.items()
    ]
    return speed + memory


def tables(results: Results, outcomes: Sequence[Outcome]) -> list[Table]:
    rows = []
    for case, samples in results.cases.items():
        sample = median_sample(samples)
        speed_up = "" if case.role == "ours" else f"{results.speed_up(case)}×"
        small = case.operation != "list" and sample.done < results.size
        names = (f"{case.backend} {case.operation}", f"{case.name} ({sample.done // MIB} MiB)" if small else case.name)
        most = max(sample.growth for sample in samples)  # the maximum determines the memory to provide
        rows.append((*names, sample.format_rate(case.operation), speed_up, f"{sample.cpu:.2f} s", f"{most / MIB:.0f} MiB"))
    columns = ("case", "library", "rate", "speed-up", "CPU", "memory growth")
    note = "*Speed-up* is the rate of Redrive relative to this library, in the same round."
    return [table(outcomes), Table("All libraries", columns, rows, note)]


def markdown(results: Results, outcomes: Sequence[Outcome]) -> str:
    head = f"""\
# Benchmark: storage

Written by `make bench-storage`: {machine()}.
Each library streams {results.size // MIB:,} MiB and lists {results.count:,} objects over loopback, in its own process. There
are up to {results.rounds} rounds. A library that takes four times as long as the fastest one has only two rounds. A library
that would need more than two minutes gets a smaller file, as the table shows. A library that fails has only the rounds before.
Ratios are computed per round. With fewer than six rounds, the brackets contain all figures. {HOW_TO_READ}
{"The servers stored their files in memory." if results.in_memory else ""}

![Bars on a logarithmic scale: Redrive, the bare clients and remote-store](storage.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


HUES: dict[str, Hue] = {"ours": "ours", "native": "floor", "peer": "peer"}
PANELS = {
    "write": ("Write: seconds per GiB", 1024 * MIB),
    "read": ("Read: seconds per GiB", 1024 * MIB),
    "list": ("List: seconds per 10,000 objects", 10_000),
}


def picture(results: Results) -> str:
    """Draw the results as bars."""
    panels = []
    for operation, (title, amount) in PANELS.items():
        cases = [(case, median_sample(samples)) for case, samples in results.cases.items() if case.operation == operation]
        panels.append(
            Panel(title, "", [Bar(f"{c.backend}, {c.name}", amount / sample.rate, HUES[c.role]) for c, sample in cases])
        )
    note = f"Over loopback, logarithmic scale. Shorter is better. {machine()}"
    return card("Storage: Redrive, the bare clients and remote-store", "Storage: time of an operation", note, panels)
