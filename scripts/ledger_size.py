"""Measure the bytes that a ledger stores for each job, dead letter, idempotency record and event.

    python scripts/ledger_size.py            # prints a table for SQLite and Postgres

The figures are in docs/concepts/database.md. Sizes include indexes. Each database is vacuumed before its size is
measured, so free space does not count.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import sqlalchemy  # noqa: E402

from redrive import App, Event, RetryPolicy, Stop  # noqa: E402
from tests.servers.postgres import postgres_server  # noqa: E402

COUNT = 3_000
TEXT = "x" * 200
"""Text in the payload of a typical call."""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "size.db"
        print_rows("SQLite", measure(f"sqlite:///{file}", lambda: sqlite_size(file)))
    with postgres_server() as url:
        print_rows("Postgres", measure(url, lambda: postgres_size(url)))
    return 0


def print_rows(name: str, rows: list[tuple[str, float]]) -> None:
    print(f"\n{name}")
    for what, size in rows:
        print(f"| {what} | {size:,.0f} |")


def measure(url: str, size: Callable[[], int]) -> list[tuple[str, float]]:
    app = App(url, migrate=True)

    @app.command("size.work", key="shop:{user}:{order}:receipt:v1")
    def work(order: str, user: str, text: str) -> str:
        return "sent"

    @app.command("size.dead", key="shop:{user}:{order}:dead:v1", retry=RetryPolicy.disabled())
    def fail(order: str, user: str, text: str) -> str:
        raise Stop("measured")

    @app.once("billing:{user}:{order}:charge:v1")
    def charge(order: str, user: str) -> str:
        return "charged"

    @app.on("size.event", name="size.handler")
    def handle(event: Event[dict[str, str]]) -> None: ...

    app.migrate()
    rows = [("empty ledger, total bytes", float(size()))]
    before = size()

    def add(what: str) -> None:
        nonlocal before
        now = size()
        rows.append((what, (now - before) / COUNT))
        before = now

    users = [(f"o-{number:08}", f"user-{number % 500:04}") for number in range(COUNT)]
    app.submit_many(work.bind(order, user=user, text=TEXT) for order, user in users)
    add("queued job")
    run(app, "size.work", "done")
    add("added when it is done")
    while app.ledger.prune(0):
        pass
    add("added when it is pruned")
    app.submit_many(fail.bind(order, user=user, text=TEXT) for order, user in users)
    run(app, "size.dead", "dead")
    add("dead letter, with its job and its attempt")
    for order, user in users:
        charge(order, user)
    add("idempotency record")
    for order, user in users:
        app.receive(Event("size.event", {"order": order, "text": TEXT}, id=f"{order}-{user}"))
    run(app, "size.handler", "done")
    add("event with one handler, done")
    app.close()
    return rows


def run(app: App, kind: str, state: str) -> None:
    with app.worker(threads=8):
        while getattr(app.ledger.counts().get(kind), state, 0) < COUNT:
            time.sleep(0.2)


def sqlite_size(file: Path) -> int:
    copy = file.with_suffix(".copy")
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"VACUUM INTO '{copy}'")
    engine.dispose()
    size = copy.stat().st_size
    copy.unlink()
    return size


def postgres_size(url: str) -> int:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        names = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE tablename LIKE 'redrive_%%'").scalars().all()
        for name in names:
            connection.exec_driver_sql(f"VACUUM FULL {name}")
        sizes = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'redrive_%%'"
        size = connection.exec_driver_sql(sizes).scalar_one()
    engine.dispose()
    return int(size)


if __name__ == "__main__":
    sys.exit(main())
