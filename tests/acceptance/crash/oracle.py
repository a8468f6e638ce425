"""The oracle: invariants that hold after all processes have ended, read from the rows themselves."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from redrive.ledger import open_ledger
from tests.ledgers import empty_ledger, sqlite_ledger

from .diary import read
from .story import EFFECTS, KEYS, TABLES

READY, LEASED, DONE, DEAD, DROPPED, PRUNED = range(6)


class Verdict(NamedTuple):
    """The result of one run."""

    lost: list[str]
    doubled: list[str]
    wrong: list[str]
    """Other violated invariants."""

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)


@contextmanager
def connection(url: str) -> Iterator[Any]:
    """A connection of the driver in autocommit, independent of Redrive."""
    if url.startswith("sqlite"):
        opened: Any = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    else:
        opened = psycopg.connect(url, autocommit=True)
    try:
        yield opened
    finally:
        opened.close()


def rows(url: str, query: str) -> Sequence[tuple[Any, ...]]:
    """Return the rows of a query."""
    with connection(url) as opened:
        found: list[tuple[Any, ...]] = opened.execute(query).fetchall()
        return found


def prepare(url: str) -> None:
    """Create an empty database with tables of a user beside those of the ledger."""
    with connection(url) as opened:
        if not url.startswith("sqlite"):
            opened.execute("DROP SCHEMA public CASCADE")  # creating a database takes ten times as long
            opened.execute("CREATE SCHEMA public")
        for table in TABLES:
            opened.execute(table)


def fresh(url: str) -> None:
    """Empty the ledger beside these tables. Rows are deleted and tables stay, because creating them is slow."""
    if url.startswith("sqlite"):
        file = Path(url.removeprefix("sqlite:///"))
        sqlite_ledger(file.parent)
        prepare(url)
        return
    if rows(url, "SELECT to_regclass('redrive_job')")[0][0] is None:
        prepare(url)
        open_ledger(url, migrate=True).close()
    empty_ledger(url)
    with connection(url) as opened:
        opened.execute("TRUNCATE effect, wish")


def an_hour_passes(url: str) -> None:
    """Move leases and heartbeats back by two hours, so that every lease has expired and every holder counts as lost."""
    back = "7200000000" if url.startswith("sqlite") else "interval '2 hours'"
    with connection(url) as opened:
        try:
            opened.execute(f"UPDATE redrive_job SET lease_until = lease_until - {back} WHERE state = 1")
            opened.execute(f"UPDATE redrive_worker SET seen_at = seen_at - {back}")
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
            pass  # the process crashed before the ledger existed


def judge(url: str, diary: Path, crashes: int) -> Verdict:
    """Check that every key is in exactly one place, and that every effect happened as often as allowed."""
    lost: list[str] = []
    doubled: list[str] = []
    wrong: list[str] = []
    happened = Counter((words[1], words[2]) for words in read(diary) if words[0] == "effect")
    paid = Counter(rows(url, "SELECT kind, key FROM effect"))
    current: dict[tuple[str, str], list[int]] = {}
    ended: Counter[tuple[str, str]] = Counter()
    for kind, key, state, is_current in rows(url, "SELECT kind, key, state, current FROM redrive_job"):
        if is_current:
            current.setdefault((kind, key), []).append(state)
        ended[kind, key] += state in (DONE, PRUNED)
    letters = Counter(rows(url, "SELECT kind, key, status FROM redrive_dead"))
    wishes = {key for (key,) in rows(url, "SELECT key FROM wish")}
    for kind, usual in EFFECTS.items():
        for key in KEYS:
            name, work = f"{kind}/{key}", (kind, key)
            places = current.get(work, [])
            final = DROPPED if kind == "hopeless" else PRUNED
            # A `brief` job is pruned by now, and its count is checked below. So is a cancelled one.
            if places != ([] if kind in ("brief", "halted") else [final]):
                (doubled if len(places) > 1 else lost).append(f"{name} is in {places}")
            if ended[work] > 1:
                doubled.append(f"{name} ended {ended[work]} times")
            if not happened[work]:
                lost.append(f"{name} never ran")
            if happened[work] > usual + crashes:
                doubled.append(f"{name} ran {happened[work]} times")
            if kind == "paid" and paid[work] != 1:
                (doubled if paid[work] else lost).append(f"{name} was paid {paid[work]} times")
            if kind == "stepped":
                steps = [words[0] for words in read(diary) if words[0] in ("charged", "stored") and words[1] == key]
                if not steps or steps.count("charged") > 1 + crashes or "charged" in steps[steps.index("stored") :]:
                    (doubled if steps else lost).append(f"{name} has the steps {steps}")
            if kind == "wished" and key not in wishes:
                lost.append(f"{name} was not wished for")
            status = {"doomed": "replayed", "swept": "replayed", "waiting": "replayed", "hopeless": "discarded"}.get(kind)
            if status and letters[kind, key, status] != 1:
                wrong.append(f"{name} has the dead letters {[found for found in letters if found[:2] == work]}")
    wrong += [f"{words} in the diary" for words in read(diary) if words[0] in ("late", "lost")]
    with open_ledger(url) as ledger:
        wrong += ledger.imbalance()
        tallies = ledger.counts()
        for kind in EFFECTS:
            replays = len(KEYS) if kind in ("doomed", "swept", "waiting") else 0
            cancelled = tallies[kind].cancelled if kind == "revoked" and kind in tallies else 0
            if kind not in tallies or tallies[kind].submitted != len(KEYS) + replays + cancelled:
                wrong.append(f"{kind}: {tallies.get(kind)}")
        if ledger.audit_broken() is not None:
            wrong.append("the chain of the audit log is broken")
    return Verdict(lost, doubled, wrong)
