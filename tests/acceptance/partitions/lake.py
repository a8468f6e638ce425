"""A lake: one ledger, one store, processes that extract into it, and invariants."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from redrive.errors import Damaged
from redrive.ledger import Ledger, open_ledger
from redrive.partitions import Partition
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.queries import PartitionQueries
from redrive.partitions.raw.files import load_raw
from redrive.partitions.raw.manifest import MANIFEST, run_folder
from redrive.partitions.reader import Reader, Reading
from redrive.storage import Store
from tests.acceptance.crash.oracle import connection, rows
from tests.zygote import Zygote

from .program import CUSTOMERS, SINCE, UNTIL, build_app, rows_of

PROGRAM = "tests.acceptance.partitions.program"
LOADED = ("s3fs", "aiobotocore.session", "redrive.storage.s3", "redrive.storage.local", PROGRAM)
"""Modules that are slow to import."""
PATIENCE = 120
TABLES = (
    "redrive_partition", "redrive_partition_work", "redrive_partition_run", "redrive_partition_verdict",
    "redrive_partition_marker", "redrive_partition_source", "redrive_partition_dataset", "redrive_partition_rollup",
    "redrive_partition_range", "redrive_sweep",
)  # fmt: skip


class Lake:
    """One ledger and one store: starts processes, waits for them, and checks the result."""

    def __init__(self, zygote: Zygote, url: str, store: dict[str, Any], folder: Path) -> None:
        self.zygote, self.url, self.store, self.folder = zygote, url, store, folder
        self.output, self.gate = folder / "output", folder / "gate"
        self.app = build_app(url, store)
        self.grid = Grid.of("crm", "orders", CUSTOMERS, SINCE, UNTIL)
        self.keys = [self.grid.at(place) for place in range(len(self.grid))]

    def fill(self) -> None:
        """Empty the tables, and plan a backfill of all days."""
        with connection(self.url) as opened:
            for table in TABLES:
                opened.execute(f"DELETE FROM {table}")
        with open_ledger(self.url) as ledger:
            ControlPlane(ledger, [one.limits for one in self.app.datasets]).backfill(
                self.grid, actor="ann", because="a new dataset"
            )

    def hire(self, name: str = "worker", *, crash_at: str = "", gated: bool = False) -> int:
        """Start a process that extracts, and return its id."""
        arguments = [self.url, json.dumps(self.store), name, *([str(self.gate)] if gated else [])]
        return self.zygote.fork(PROGRAM, arguments, output=self.output, crash_at=crash_at)

    def until(self, word: str) -> None:
        """Wait for a line of output with this beginning."""
        deadline = time.monotonic() + PATIENCE
        while not any(line.startswith(word) for line in self.story().splitlines()):
            assert time.monotonic() < deadline, f"nobody said {word}: {self.story()}"
            time.sleep(0.005)

    def story(self) -> str:
        """Return their output."""
        return self.output.read_text() if self.output.exists() else ""

    def an_hour_passes(self) -> None:
        """Move leases back by two hours, so that every lease has expired."""
        back = "7200000000" if self.url.startswith("sqlite") else "interval '2 hours'"
        with connection(self.url) as opened:
            opened.execute(f"UPDATE redrive_partition_work SET lease_until = lease_until - {back} WHERE lease_until IS NOT NULL")

    def finished(self) -> None:
        """Start processes until all partitions are done."""
        for _ in range(5):
            if self.zygote.wait(self.hire()) == 0:
                return
            self.an_hour_passes()
        raise AssertionError(f"they do not come to an end: {self.story()}")

    def current(self, key: Partition) -> str | None:
        """Return the current run."""
        with open_ledger(self.url) as ledger:
            facts = PartitionQueries(ledger).get(key)
            return None if facts is None else facts.current_run_id

    def states(self) -> Counter[str]:
        """Return the number of runs by state."""
        return Counter(state for (state,) in rows(self.url, "SELECT state FROM redrive_partition_run"))

    # ---- invariants ----

    def wrong(self) -> list[str]:
        """Return the violated invariants. Empty: no problems."""
        store = self.app.stores.get_store("raw")
        with open_ledger(self.url) as ledger:
            found = [f"counts: {one}" for one in PartitionQueries(ledger).imbalance()]
            for key in self.keys:
                found += [f"{key}: {one}" for one in self._wrong(ledger, store, key)]
        found += self._unread()
        return found

    def _wrong(self, ledger: Ledger, store: Store, key: Partition) -> list[str]:
        register = PartitionQueries(ledger)
        facts = register.get(key)
        if facts is None or facts.status != "success" or facts.current_run_id is None:
            return [f"it is {facts}"]
        runs = register.history(key)
        found = []
        if facts.attempt_count != sum(run.verdict is not None for run in runs):
            found.append(f"{facts.attempt_count} attempts, and the verdicts of {runs}")
        if facts.dispatch_count != len(runs):
            found.append(f"{facts.dispatch_count} dispatches, and {len(runs)} runs")
        current = next(run for run in runs if run.run_id == facts.current_run_id)
        if current.state != "accepted" or current.verdict is None:
            found.append(f"the run in force is {current}")
        elif load_raw(store, key, current.raw_run_id, digest=current.verdict.manifest).row_count != facts.record_count:
            found.append("the rows of the run in force are not those of its verdict")
        return found + [f"run {run.run_id}: {problem}" for run in runs if (problem := _find_damage(store, key, run.run_id))]

    def _reading(self, customer: str) -> Reading:
        """Return the data that a consumer reads."""
        (one,) = self.app.datasets
        with open_ledger(self.url) as ledger:
            return Reader("crm", "orders", lambda: PartitionQueries(ledger), one.store).read(customer, SINCE, UNTIL)

    def _unread(self) -> list[str]:
        found = []
        for customer in CUSTOMERS:
            reading = self._reading(customer)
            if reading.missing:
                found.append(f"{customer}: missing {reading.missing}")
            expected = Counter(f"{row['day']}" for key in self.keys if key.customer_id == customer for row in rows_of(key))
            if Counter(row["day"] for row in reading.rows()) != expected:
                found.append(f"{customer}: other rows than the source's were read")
        return found


def _find_damage(store: Store, key: Partition, run_id: str) -> str | None:
    """Check the folder of a run: complete with a manifest, ignored without one."""
    names = {path.removeprefix(f"{run_folder(key, run_id)}/") for path in store.files(run_folder(key, run_id))}
    if MANIFEST not in names:
        return None
    try:
        load_raw(store, key, run_id).check_digests()
    except Damaged as damage:
        return str(damage)
    return None
