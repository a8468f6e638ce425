"""A worker under load: claim, start, run, settle, renew and reap until no job is left, despite database failures.

main([url, diary, name, lease, gate])

The gate is a file. Jobs of types that begin with `gated` continue when it exists.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from redrive.errors import LeaseLost, LedgerError
from redrive.ledger import Lease, Ledger, NewJob, Settlement, open_ledger

from .diary import Diary

KINDS = ("plain", "own", "paid", "poison", "gated", "gated-own", "gated-paid")
FAULTS = (LedgerError, DBAPIError, psycopg.Error, sqlite3.Error)
"""Errors of an unavailable database."""
BATCH = 10
WORK_SECONDS = 0.001


class Worker:
    """The loop of one process."""

    def __init__(self, ledger: Ledger, diary: Diary, name: str, lease: float, gate: Path) -> None:
        self.ledger = ledger
        self.diary = diary
        self.name = name
        self.lease = lease
        self.gate = gate
        self.settlements: list[Settlement] = []

    def finished(self) -> bool:
        """Return whether no job is queued or running."""
        return not any(tally.ready or tally.leased for tally in self.ledger.counts().values())

    def pass_once(self) -> bool:
        """Run one turn and its jobs. Return False if there were none."""
        self.ledger.maintenance.heartbeat(self.name)
        self.ledger.reap()
        kinds = dict.fromkeys(KINDS, BATCH)
        leases, late, *_ = self.ledger.turn(
            self.settlements, kinds, worker=self.name, lease=self.lease, total=BATCH, start=False
        )  # fmt: skip
        self.settlements = []
        self.late(late)
        if not leases:
            leases = self.ledger.claim(kinds, worker=self.name, lease=self.lease, start=False, alone=True)
        renewed = time.monotonic()
        for at, lease in enumerate(leases):
            if time.monotonic() - renewed > self.lease / 3:
                renewed = time.monotonic()
                self.ledger.renew(leases[at:], lease=self.lease)
            for begun in self.ledger.start([lease]):
                self.run(begun)
        return bool(leases)

    def run(self, lease: Lease) -> None:
        """Run one attempt from its effect to its settlement."""
        self.diary.note("effect", lease.kind, lease.key, self.name, lease.fence)
        if lease.kind == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(WORK_SECONDS)
        if lease.kind.startswith("gated"):
            while not self.gate.exists():
                time.sleep(0.01)
        try:
            if lease.kind.endswith("paid"):
                with self.ledger.begin() as tx:
                    tx.execute(text("INSERT INTO effect VALUES (:kind, :key)"), {"kind": lease.kind, "key": lease.key})
                    self.ledger.settle(lease.done(), tx=tx)
            elif lease.kind.endswith("own"):
                self.ledger.settle(lease.done())
            else:
                self.settlements.append(lease.done())
        except LeaseLost:
            if lease.kind.endswith("paid"):
                self.ledger.maintenance.count_late([lease.done()])
            self.late([lease.done()])

    def late(self, settlements: Sequence[Settlement]) -> None:
        """The lease belongs to another worker now."""
        for one in settlements:
            self.diary.note("late", one.kind, one.job_id, self.name)


def main(arguments: Sequence[str]) -> int:
    """Work until no job is left."""
    url, path, name, lease, gate = arguments
    diary = Diary(Path(path))
    worker: Worker | None = None
    while True:
        try:
            if worker is None:
                worker = Worker(open_ledger(url), diary, name, float(lease), Path(gate))
            if not worker.pass_once():
                if worker.finished():
                    worker.ledger.close()
                    return 0
                time.sleep(0.02)
        except FAULTS as fault:
            diary.note("fault", name, type(fault).__name__, str(fault).replace("\n", " "))
            time.sleep(0.02)


def submit_jobs(url: str, **counts: int) -> Ledger:
    """Submit this number of jobs of each type."""
    ledger = open_ledger(url, migrate=True)
    ledger.submit_many([NewJob(kind.replace("_", "-"), f"k{n:03}") for kind, count in counts.items() for n in range(count)])
    return ledger
