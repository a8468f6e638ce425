"""Operations on a ledger, as functions that return milliseconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from benchmarks.ledger_suite.backlog import BATCH, measure_claims
from benchmarks.scale_suite.results import FLAT_BY_ROWS
from redrive import App, Event
from redrive.ledger import Ledger, NewJob
from redrive.ops import DeadLetterFilter, Operator

KIND = "scale"
CLAIMS = 5
"""Claims of one round. The figure is their median. Few, because they add jobs to the smallest ledger."""
_EVENTS = {
    "postgresql": """
INSERT INTO redrive_event (source, event_id, type, payload, handlers, received_at)
SELECT 'bench', 'old-' || n, 'noop', '\\x7b7d'::bytea, 0, now() FROM generate_series(1, {size}) n
""",
    "sqlite": """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {size})
INSERT INTO redrive_event (source, event_id, type, payload, handlers, received_at)
SELECT 'bench', 'old-' || n, 'noop', x'7b7d', 0, CAST(strftime('%s', 'now') AS INTEGER) * 1000000 FROM numbers
""",
}


def insert_events(ledger: Ledger, size: int) -> None:
    """Insert events without handlers, with one statement."""
    with ledger.begin() as connection:
        connection.exec_driver_sql(_EVENTS[connection.dialect.name].format(size=size))


@contextmanager
def operations(url: str, ledger: Ledger, times: int) -> Iterator[dict[str, Callable[[], float]]]:
    """Return a function for each operation that must not grow with the rows. It repeats the operation and returns its median.

    Args:
        url: Address of the ledger.
        ledger: The ledger, with jobs of `console_suite.fill`.
        times: Repetitions.
    """
    numbers = count(time.time_ns())
    operator = Operator(ledger, actor="bench")

    def new_jobs(how_many: int) -> list[NewJob]:
        return [NewJob(KIND, f"new-{next(numbers)}", b"{}") for _ in range(how_many)]

    ledger.submit(NewJob(KIND, "known", b"{}"))
    with App(url) as app:

        def receive() -> object:
            return app.receive(Event("noop", {}, id=f"new-{next(numbers)}", source="bench"))

        actions: tuple[Callable[[], object], ...] = (
            lambda: ledger.submit(new_jobs(1)[0]),
            lambda: ledger.submit(NewJob(KIND, "known", b"{}")),
            lambda: ledger.submit_many(new_jobs(BATCH)),
            lambda: None,
            receive,
            lambda: operator.dead_letters.find(DeadLetterFilter(limit=50)),
            operator.dead_letters.groups,
            lambda: operator.jobs.search("key:known"),
            lambda: operator.partitions.counts(source="crm"),
        )
        timed = {
            name: (lambda action=action: median_ms(action, times)) for name, action in zip(FLAT_BY_ROWS, actions, strict=True)
        }
        yield {**timed, FLAT_BY_ROWS[3]: lambda: measure_claims(ledger, min(times, CLAIMS))}


def median_ms(action: Callable[[], object], times: int) -> float:
    """Return the median milliseconds of an action, without its first call."""
    action()
    samples = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        samples.append((time.perf_counter() - began) * 1000)
    return sorted(samples)[len(samples) // 2]
