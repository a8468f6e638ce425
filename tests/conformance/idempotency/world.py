"""What tests of keys need beside the keys: time that passes at once, and other processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import text, update

from redrive import App, Key
from redrive.idempotency.record import Ident
from redrive.ledger import crashpoint
from redrive.ledger.tables import key as table

KEY = Key("billing", "ann", "o-1", "charge")
AT = Ident.of(KEY)


def aged(app: App, *, lease: float = 0.0, kept: float = 0.0, begun: int = 0) -> None:
    """Let so many seconds pass for all leases, for all that is kept, or since all that was begun: that changes the fences."""
    with app.ledger.begin() as tx:
        moved = {table.c.lease_until: lease, table.c.expires_at: kept}
        for row in tx.execute(table.select()).all():
            here = [column == getattr(row, column.name) for column in (table.c.domain, table.c.user_id, table.c.key)]
            values = {column.name: getattr(row, column.name) - timedelta(seconds=past) for column, past in moved.items()}
            values["fence"] = row.fence - begun * 1_000_000
            tx.execute(update(table).where(*here).values(values))


def effects(app: App) -> int:
    """How often the effect of a program has happened."""
    with app.ledger.begin() as tx:
        return int(tx.execute(text("SELECT count(*) FROM effect")).scalar_one())


def effect_table(app: App) -> None:
    with app.ledger.begin() as tx:
        tx.execute(text("CREATE TABLE effect (what text)"))


@contextmanager
def process(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs this program."""
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    with child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["redrive.app", "redrive.idempotency.keys", "redrive.idempotency.once", "psycopg"])


def dies(target: Callable[..., object], *arguments: object, at: str) -> int | None:
    """The exit status of a process that runs this function, and dies at that step."""
    child = FORKS.Process(target=_armed, args=(at, target, arguments))
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
        child.join()
        raise AssertionError(f"{at} was not reached in a minute")
    return child.exitcode


def _armed(at: str, target: Callable[..., object], arguments: tuple[object, ...]) -> None:
    if at.startswith("inside."):
        INSIDE.append(at)
    else:
        point = crashpoint.armed(at)
        for module in list(sys.modules.values()):
            if getattr(module, "crash_point", None) is crashpoint.crash_point and module is not crashpoint:
                module.crash_point = point  # type: ignore[attr-defined]  # the variable is read when it is imported: too early here
        crashpoint.crash_point = point  # for what is imported from now on: a module that could not be loaded before is not spared
    target(*arguments)


INSIDE: list[str] = []


def here(point: str) -> None:
    """A step of the user's own, at which a process can be told to die."""
    if point in INSIDE:
        os.kill(os.getpid(), signal.SIGKILL)
