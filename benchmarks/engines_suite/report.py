"""Tables, page and picture of a run."""

from statistics import median

from benchmarks.candidate import release
from benchmarks.engines_suite.brokers import BROKERS, PARTITIONS
from benchmarks.engines_suite.reader import MAX_SECONDS
from benchmarks.engines_suite.results import ALL, FAILURES, FASTSTREAM, FLOOR, LOOP, PROCESSES, SQLITE, Results
from benchmarks.engines_suite.runner import FULL
from benchmarks.interval import Interval
from benchmarks.plot import Bar, Hue, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, summary_line, table

NAMES = {
    LOOP: "loop of its client",
    FLOOR: "loop with json.loads and an empty handler",
    FASTSTREAM: "faststream",
    FAILURES: 'redrive, persist="failures"',
    ALL: 'redrive, persist="all", Postgres',
    SQLITE: 'redrive, persist="all", SQLite',
}


def describe_machine(results: Results) -> str:
    """Describe the machine and its disk."""
    return machine() + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def tables(results: Results, outcomes: list[Outcome]) -> list[Table]:
    made = [table(outcomes)]
    for key, broker in BROKERS.items():
        rows = []
        for method, name in NAMES.items():
            cells = [_figure(results.rates.get((key, method, count), [])) for count in PROCESSES]
            ratios = [_ratio_text(results, key, method, base) for base in (LOOP, FLOOR)]
            if any(cells):
                rows.append((_add_version(method, name), *cells, *ratios))
        if rows:
            columns = (
                "case",
                *(f"{count} process{'es' if count > 1 else ''}" for count in PROCESSES),
                "1 process vs loop",
                "vs floor",
            )
            made.append(Table(f"{broker.name}: messages/s", columns, rows))
    if results.absent:
        made.append(Table("Not measured", ("case", "reason"), list(results.absent.items())))
    return made


def _ratio_text(results: Results, broker: str, method: str, base: str) -> str:
    ratio = results.ratio(broker, method, base)
    return "" if method in (LOOP, base) or ratio is None else f"{ratio}×"


def _figure(taken: list[float]) -> str:
    if not taken:
        return ""
    interval = Interval.of(taken)
    return f"{interval.median:,.0f} ({interval.low:,.0f}–{interval.high:,.0f})"


def _add_version(method: str, name: str) -> str:
    return f"{name} ({release(FASTSTREAM)})".removesuffix(" ()") if method == FASTSTREAM else name


def markdown(results: Results, outcomes: list[Outcome], rounds: int) -> str:
    head = f"""\
# Benchmark: engines

Written by `make bench-engines`: {describe_machine(results)}.
An empty handler receives small messages in batches of 100. All processes, the broker and Postgres share this machine, so more
processes than cores add little. Redis syncs its log to disk every second. NATS and the Kafka mock do not wait for the disk.
RabbitMQ has a quorum queue, and Postgres is durable (`fsync` and `synchronous_commit` on). There are {rounds} interleaved rounds
with one process. Two of them also have several processes and the ledger. {HOW_TO_READ}

A measurement has {_sizes()} messages, and {FULL.stored:,} if each is stored. It ends after {MAX_SECONDS:.0f} s, and counts the
messages until then. The processes of a measurement start to read together, after each has its share of the group of a topic,
which has {PARTITIONS} partitions. The mock of Kafka answers from the memory of the process that runs the benchmark.

The loop reads and acknowledges messages, and does not look at them. The second row is the floor of any handler in Python. It
parses the body and calls an empty function. The target of 0.8 is checked against both. A handler of Redrive also has a
validated event, a deadline, a key and correlation ids.
Where the floor itself is below 0.8 of the loop, no handler in Python can meet the first target.
The loop of RabbitMQ uses the iterator of aio-pika. Redrive reads the channel of aiormq below it, so it can be faster.

The difference between the rows of Redrive is the cost of the ledger. With `persist="all"`, each message and its job are stored.

![Bars on a logarithmic scale: Redrive, the client loops and faststream](engines.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


def _sizes() -> str:
    return ", ".join(f"{each.messages:,} ({each.name}, faststream {each.peer_messages:,})" for each in BROKERS.values())


def picture(results: Results) -> str:
    """Draw the results as bars."""
    panels = []
    for key, broker in BROKERS.items():
        bars = [
            Bar(_bar_label(name, count), median(results.rates[key, method, count]), _hue(method))
            for method, name in NAMES.items()
            for count in PROCESSES
            if results.rates.get((key, method, count))
        ]
        if bars:
            panels.append(Panel(f"{broker.name}: messages/s", "", sorted(bars, key=lambda bar: -bar.value), None))
    note = f"Medians, logarithmic scale. Longer is better. {machine()}"
    return card("Engines: Redrive, the client loops and faststream", "Engines: messages per second", note, panels)


def _bar_label(name: str, count: int) -> str:
    return name if count == 1 else f"{name}, {count} processes"


def _hue(method: str) -> Hue:
    return "floor" if method in (LOOP, FLOOR) else "peer" if method == FASTSTREAM else "ours"
