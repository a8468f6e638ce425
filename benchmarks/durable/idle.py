"""A worker with nothing to do: what it asks the database for, and how much of a processor it takes."""

import time
from dataclasses import dataclass

from benchmarks.durable.drain import KIND


@dataclass(frozen=True)
class Idle:
    polls: int
    queries: int
    """Statements on Postgres; transactions on SQLite, whose looks at the file's version number are no queries."""
    cpu: float
    """Per cent of one processor."""


def idle(url: str, polls: int, poll: float) -> Idle:
    """Wait and look, so many times over."""
    from redrive.ledger import open_ledger

    with open_ledger(url, migrate=True) as ledger:
        wake = ledger.listen()
        ledger.claim({KIND: 100}, worker="idle")
        wake.wait(0.05)
        with ledger.connections.write.use() as session:
            counted = _Statements(session.raw)
            session.run = session.raw if session.sqlite else session.raw.cursor()  # the one it had does not count
        cpu = time.process_time()
        began = time.perf_counter()
        for _ in range(polls):
            wake.wait(poll)
            ledger.claim({KIND: 100}, worker="idle")
        cpu = time.process_time() - cpu
        seconds = time.perf_counter() - began
        wake.close()
        return Idle(polls, counted.count, 100 * cpu / seconds)


class _Statements:
    """Counts what a connection is asked. The ledger has just used this one, and uses it again."""

    def __init__(self, connection: object) -> None:
        self.count = 0
        if hasattr(connection, "set_trace_callback"):
            connection.set_trace_callback(self._heard)
            return
        import psycopg

        counted = self

        class Cursor(psycopg.Cursor[tuple[object, ...]]):
            def execute(self, *args: object, **kwargs: object) -> "Cursor":
                counted.count += 1
                super().execute(*args, **kwargs)  # type: ignore[call-overload]  # as they came
                return self

        connection.cursor_factory = Cursor  # type: ignore[attr-defined]  # of psycopg

    def _heard(self, statement: str) -> None:
        self.count += statement.startswith("BEGIN")
