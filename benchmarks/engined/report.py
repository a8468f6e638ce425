"""The tables and the picture of a run."""

from statistics import median

from benchmarks.candidate import release
from benchmarks.engined.brokers import BROKERS
from benchmarks.engined.results import ALL, FAILURES, FASTSTREAM, LOOP, PROCESSES, Results
from benchmarks.interval import Interval
from benchmarks.plot import Bar, Hue, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import Judgement, last_line, table

NAMES = {LOOP: "its own client, in a loop", FASTSTREAM: "faststream", FAILURES: 'redrive, persist="failures"', ALL: "redrive"}


def place(results: Results) -> str:
    return machine() + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def tables(results: Results, judgements: list[Judgement]) -> list[Table]:
    found = [table(judgements)]
    for key, broker in BROKERS.items():
        rows = []
        for way, name in NAMES.items():
            cells = [_figure(results.rates.get((key, way, count), [])) for count in PROCESSES]
            ratio = results.ratio(key, way, LOOP)
            if any(cells):
                rows.append((_named(way, name), *cells, "" if way == LOOP or ratio is None else f"{ratio}×"))
        if rows:
            columns = ("what", *(f"{count} process{'es' if count > 1 else ''}" for count in PROCESSES), "one to the loop")
            found.append(Table(f"{broker.name}: messages/s", columns, rows))
    if results.absent:
        found.append(Table("Not measured", ("what", "why"), list(results.absent.items())))
    return found


def _figure(taken: list[float]) -> str:
    if not taken:
        return ""
    found = Interval.of(taken)
    return f"{found.median:,.0f} ({found.low:,.0f}–{found.high:,.0f})"


def _named(way: str, name: str) -> str:
    return f"{name} ({release(FASTSTREAM)})".removesuffix(" ()") if way == FASTSTREAM else name


def markdown(results: Results, judgements: list[Judgement], rounds: int) -> str:
    head = f"""\
# What each engine carries

Written by `make bench-engines`: {place(results)}.
A handler does nothing with small messages, 100 at a time. All processes, the broker and Postgres share this machine, so more
processes than cores bring little. Redis writes its log every second, and NATS and the mock of Kafka do not wait for the disk.
Postgres is durable (`fsync` and `synchronous_commit` on). The loop reads and acknowledges, and decodes nothing. {rounds}
interleaved rounds. Figures are medians, with the interval that contains the true median in 95 of 100 runs. A target is missed
only if the whole interval misses it.

The difference between both rows of Redrive is the share of the ledger: with `persist="all"`, each message and its job are stored.

![Bars on a logarithmic scale: Redrive beside the loops of the brokers](engines.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, judgements))
    return f"{head}\n{body}\n\n{last_line(judgements).capitalize()}.\n"


def picture(results: Results) -> str:
    """The same as bars."""
    panels = []
    for key, broker in BROKERS.items():
        bars = [
            Bar(_short(name, count), median(results.rates[key, way, count]), _hue(way))
            for way, name in NAMES.items()
            for count in PROCESSES
            if results.rates.get((key, way, count))
        ]
        if bars:
            panels.append(Panel(f"messages/s, {broker.name}", "", sorted(bars, key=lambda bar: -bar.value), None))
    note = f"Messages a second: longer is better. {machine()}"
    return card("What each engine carries: Redrive beside its loop and faststream", "What workers do in a second", note, panels)


def _short(name: str, count: int) -> str:
    return name if count == 1 else f"{name}, {count} processes"


def _hue(way: str) -> Hue:
    return "floor" if way == LOOP else "peer" if way == FASTSTREAM else "ours"
