"""Leases that expire immediately, effects that can be counted, and processes that crash."""

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
from redrive.idempotency.record import KeyId
from redrive.ledger import failpoint
from redrive.ledger.db.tables import key as table

KEY = Key("billing", "ann", "o-1", "charge")
AT = KeyId.of(KEY)


def age_keys(app: App, *, lease: float = 0.0, kept: float = 0.0, begun: int = 0) -> None:
    """Move leases, retentions or begin times of all keys into the past, in seconds. The last changes the fences."""
    with app.ledger.begin() as tx:
        moved = {table.c.lease_until: lease, table.c.expires_at: kept}
        for row in tx.execute(table.select()).all():
            here = [column == getattr(row, column.name) for column in (table.c.domain, table.c.user_id, table.c.key)]
            values = {column.name: getattr(row, column.name) - timedelta(seconds=past) for column, past in moved.items()}
            values["fence"] = row.fence - begun * 1_000_000
            tx.execute(update(table).where(*here).values(values))


def effects(app: App) -> int:
    """Return the number of effects."""
    with app.ledger.begin() as tx:
        return int(tx.execute(text("SELECT count(*) FROM effect")).scalar_one())


def effect_table(app: App) -> None:
    with app.ledger.begin() as tx:
        tx.execute(text("CREATE TABLE effect (what text)"))


@contextmanager
def process(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program in another process."""
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
    """Run a function in a process that crashes at a step, and return its exit status."""
    child = FORKS.Process(target=_run_armed, args=(at, target, arguments))
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
        child.join()
        raise AssertionError(f"{at} was not reached in a minute")
    return child.exitcode


def _run_armed(at: str, target: Callable[..., object], arguments: tuple[object, ...]) -> None:
    if at.startswith("inside."):
        INSIDE.append(at)
    else:
        point = failpoint.arm(at)
        for module in list(sys.modules.values()):
            if getattr(module, "crash_point", None) is failpoint.crash_point and module is not failpoint:
                module.crash_point = point  # type: ignore[attr-defined]  # the variable is read when it is imported: too early here
        failpoint.crash_point = point  # for modules that are imported later
    target(*arguments)


INSIDE: list[str] = []


def here(point: str) -> None:
    """A crash point in the user's code."""
    if point in INSIDE:
        os.kill(os.getpid(), signal.SIGKILL)
