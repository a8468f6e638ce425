"""Problems of partitions: wrong counts, paused sources, partitions that gave up, and raw data."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from ...core.text import pluralise
from ...errors import StorageError
from ...ledger.db.partition_tables import partition, work
from ...partitions.key import Partition
from ...partitions.queries import PartitionQueries
from ...partitions.raw.manifest import MANIFEST, encode_part
from ...partitions.store.overview import count_marked_by_operator, count_rejected_updates
from ..partitions.datasets import label
from ..partitions.overview import paused_by
from ..partitions.raw_data import find_damage, look_at_all
from ..project.target import extractions, ledger_of
from .overview_rules import Finding, pause_fix

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger
    from ...partitions.datasets.dataset import Extraction
    from ...storage.store import Store
    from ..project.target import Operated

GRACE = timedelta(seconds=60)
"""Time that a lease may be expired, because workers check only now and then."""
MAX_CHECKED_RUNS = 50
"""Current runs that are checked from either end of each dataset. Checking millions takes hours."""
MAX_NAMED = 3
"""Partitions or datasets that a finding names."""
MAX_LISTED_FILES = 5000
"""Files of a source that are listed. Listing millions takes hours."""
ENDED = ("rejected", "late", "lost", "returned")
"""States of runs that write no manifest any more."""
_RUN = re.compile(r"(?P<folder>.*/logical_date=[^/]+/run_id=(?P<run>[^/]+))/(?P<name>[^/]+)")


def check_ledger(ledger: Ledger, /) -> Iterator[Finding]:
    """Find problems that the ledger shows."""
    checks = (_wrong_counts, _paused_sources, _expired_leases, _given_up, _rejected_updates)
    return chain.from_iterable(check(ledger) for check in checks)


def check_raw_data(app: Operated, /) -> Iterator[Finding]:
    """Find problems of the raw data of an app. A bare ledger has no stores."""
    for extraction in extractions(app):
        yield from _damaged_runs(ledger_of(app), extraction)
    yield from _orphan_runs(app)


def _wrong_counts(ledger: Ledger) -> Iterator[Finding]:
    wrong = PartitionQueries(ledger).imbalance()
    if wrong:
        says = f"Calendar: its counts do not match the partitions ({'; '.join(wrong[:5])})"
        fix = (
            "find the program that wrote to these tables without Redrive, and compare with a backup"
        )
        yield Finding("calendar", "critical", says, len(wrong), None, fix, False)


def _paused_sources(ledger: Ledger) -> Iterator[Finding]:
    for source in PartitionQueries(ledger).sources():
        if source.paused:
            pause = f"{paused_by(source.until, source.actor or '')} ({source.because})"
            says = f"Source {source.source}: paused {pause}"
            severity, fix, is_command = pause_fix(source.source, source.actor or "")
            yield Finding(
                "source paused", severity, says, 1, None, fix, is_command, subject=source.source
            )


def _expired_leases(ledger: Ledger) -> Iterator[Finding]:
    expired = work.c.lease_until < ledger.now() - GRACE
    with ledger.reading() as connection:
        query = select(func.count(), func.min(work.c.lease_until)).where(expired)
        count, since = connection.execute(query).one()
    if count:
        says = f"Extractions: {count:,} with an expired lease; no worker is checking this ledger"
        yield Finding(
            "dangling extractions", "critical", says, count, since, "redrive work module:app", False
        )


def _given_up(ledger: Ledger) -> Iterator[Finding]:
    states = PartitionQueries(ledger).counts()
    with ledger.reading() as connection:
        decided = count_marked_by_operator(connection) if states else {}
    counts = {
        label(*dataset): shades.get("terminal", 0) - decided.get(dataset, 0)
        for dataset, shades in states.items()
    }
    counts = {name: count for name, count in counts.items() if count > 0}
    if counts:
        largest = sorted(counts.items(), key=lambda pair: -pair[1])
        names = _first([f"{count:,} {name}" for name, count in largest])
        total = sum(counts.values())
        says = (
            f"Partitions: {total:,} gave up ({names}) and {'is' if total == 1 else 'are'} not "
            "retried"
        )
        yield Finding(
            "partitions given up", "warning", says, total, None, "redrive state failures --terminal"
        )


def _rejected_updates(ledger: Ledger) -> Iterator[Finding]:
    """Find accepted partitions whose newer run was rejected, and that no retry is scheduled for."""
    with ledger.reading() as connection:
        rejected = count_rejected_updates(connection)
    if rejected:
        counts = {label(*dataset): count for dataset, count in rejected.items()}
        largest = sorted(counts.items(), key=lambda pair: -pair[1])
        names = _first([f"{count:,} {name}" for name, count in largest])
        total = sum(counts.values())
        says = (
            f"Partitions: the newer run of {total:,} was rejected ({names}) and is not retried; "
            "consumers read the older run"
        )
        fix = 'redrive state inspect --status "newer run rejected"'
        yield Finding("newer runs rejected", "warning", says, total, None, fix)


def _damaged_runs(ledger: Ledger, extraction: Extraction) -> Iterator[Finding]:
    """Find current runs whose raw data is missing or has another size."""
    runs = _current_runs(ledger, *extraction.limits.dataset)
    try:
        damages = look_at_all(lambda run: find_damage(extraction, *run), runs)
    except StorageError as problem:
        says = f"{extraction.name}: raw data cannot be checked ({problem})"
        fix, name = "redrive storage check", extraction.name
        yield Finding("raw data", "warning", says, 1, None, fix, False, subject=name)
        return
    pairs = zip(runs, damages, strict=True)
    damaged = [str(key) for (key, _), damage in pairs if damage is not None]
    if damaged:
        checked = pluralise(len(runs), "checked run")
        summary = f"raw data missing or changed in {len(damaged):,} of {checked}"
        fix = f"redrive state inspect {shlex.quote(extraction.name)} --lost"
        if len(damaged) == 1:
            fix = f'redrive state reprocess {shlex.quote(damaged[0])} --because "..."'
        says = f"{extraction.name}: {summary} ({_first(damaged)})"
        yield Finding(
            "raw data", "critical", says, len(damaged), None, fix, subject=extraction.name
        )


def _current_runs(ledger: Ledger, source: str, query: str) -> list[tuple[Partition, str]]:
    """Return the oldest current runs, which rules for old files delete first, and the newest."""
    of = partition.c
    columns = (of.source, of.customer_id, of.query_name, of.logical_date, of.current_raw_id)
    current = select(*columns).where(
        of.source == source, of.query_name == query, of.current_raw_id.is_not(None)
    )
    runs: dict[Partition, str] = {}
    with ledger.reading() as connection:
        for order in (of.logical_date, of.logical_date.desc()):
            for row in connection.execute(current.order_by(order).limit(MAX_CHECKED_RUNS)):
                runs[Partition(*row[:4])] = row[4]
    return list(runs.items())


def _orphan_runs(app: Operated) -> Iterator[Finding]:
    """Find runs in stores that the ledger does not know, or that ended without a manifest."""
    checked: set[tuple[int, str, str]] = set()
    for extraction in extractions(app):
        source = extraction.limits.source
        try:
            store = extraction.store()
            # Each call makes another store object, so the backend identifies it.
            place = (id(store.backend), store.root_path, source)
            if place not in checked:
                checked.add(place)
                yield from _orphans_of(store, source, ledger_of(app))
        except StorageError:
            continue  # `_damaged_runs` reports it.


def _orphans_of(store: Store, source: str, ledger: Ledger) -> Iterator[Finding]:
    folders = _run_folders(store, source)
    # Read after the files were listed, so that a run that has begun since is known.
    states = PartitionQueries(ledger).states(sorted({run for run, _ in folders.values()}))
    unknown = sorted(folder for folder, (run, _) in folders.items() if run not in states)
    # An accepted run without a manifest is damaged, which is reported as such.
    ended = [
        folder for folder, (run, whole) in folders.items() if not whole and states.get(run) in ENDED
    ]
    half = sorted(folder for folder in ended if not store.exists(f"{folder}/{MANIFEST}"))
    where = f"of {pluralise(len(folders), 'run')} in {store.name} of source {source}"
    if unknown:
        verb = "is" if len(unknown) == 1 else "are"
        says = (
            f"Raw data: {len(unknown):,} {where} {verb} unknown to this ledger, such as "
            f"{unknown[0]}; "
            "they belong to another ledger, or are newer than the backup that was restored"
        )
        fix = "delete their folders if no other ledger uses them"
        yield Finding(
            "orphan runs", "warning", says, len(unknown), None, fix, False, subject=source
        )
    if half:
        verb = "has" if len(half) == 1 else "have"
        says = (
            f"Raw data: {len(half):,} {where} {verb} no manifest, such as {half[0]}; the "
            "extraction failed or was killed"
        )
        fix = "delete their folders to free the space; they are not read or written again"
        yield Finding("half runs", "warning", says, len(half), None, fix, False, subject=source)


def _run_folders(store: Store, source: str) -> dict[str, tuple[str, bool]]:
    """Return the run of each folder, and whether its manifest was listed."""
    folders: dict[str, tuple[str, bool]] = {}
    for path in islice(store.files(encode_part(source)), MAX_LISTED_FILES):
        if match := _RUN.fullmatch(path):
            _, whole = folders.get(match["folder"], ("", False))
            folders[match["folder"]] = match["run"], whole or match["name"] == MANIFEST
    return folders


def _first(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")
