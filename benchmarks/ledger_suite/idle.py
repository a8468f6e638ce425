"""Queries and CPU time of an idle worker."""

import time
from dataclasses import dataclass

from benchmarks.ledger_suite.drain import KIND


@dataclass(frozen=True)
class Idle:
    polls: int
    queries: int
    """Statements on Postgres, transactions on SQLite. Reads of the version number of the file do not count."""
    cpu: float
    """Percent of one core."""


def measure_idle(url: str, polls: int, poll: float) -> Idle:
    """Poll an empty ledger and count its queries."""
    from redrive.ledger import open_ledger

    with open_ledger(url, migrate=True) as ledger:
        wake = ledger.listen()
        ledger.claim({KIND: 100}, worker="idle")
        wake.wait(0.05)
        with ledger.connections.write.use() as session:
            statements = _Statements(session.raw)
            session.run = session.raw if session.sqlite else session.raw.cursor()  # the previous cursor does not count statements
        cpu = time.process_time()
        began = time.perf_counter()
        for _ in range(polls):
            wake.wait(poll)
            ledger.claim({KIND: 100}, worker="idle")
        cpu = time.process_time() - cpu
        seconds = time.perf_counter() - began
        wake.close()
        return Idle(polls, statements.count, 100 * cpu / seconds)


class _Statements:
    """Counts the statements of a connection. The ledger keeps using the same connection."""

    def __init__(self, connection: object) -> None:
        self.count = 0
        if hasattr(connection, "set_trace_callback"):
            connection.set_trace_callback(self._count)
            return
        import psycopg

        counter = self

        class Cursor(psycopg.Cursor[tuple[object, ...]]):
            def execute(self, *args: object, **kwargs: object) -> "Cursor":
                counter.count += 1
                super().execute(*args, **kwargs)  # type: ignore[call-overload]  # passed on unchanged
                return self

        connection.cursor_factory = Cursor  # type: ignore[attr-defined]  # an attribute of psycopg

    def _count(self, statement: str) -> None:
        self.count += statement.startswith("BEGIN")
