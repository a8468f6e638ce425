"""Raw data of partitions: damaged runs, and partitions without raw data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ...errors import Damaged, NotAllowed, StorageError
from ...partitions.raw.files import load_raw
from ...partitions.raw.manifest import MANIFEST, manifest_path, runs_folder
from ...partitions.store.queries import runs_to_revalidate
from ...partitions.store.rows import read_partitions
from ...partitions.store.statements import chunks
from ..project.target import extractions, ledger_of

if TYPE_CHECKING:
    from ...partitions.datasets.dataset import Extraction
    from ...partitions.key import Partition
    from ...partitions.model import DisplayStatus, PartitionFilter, PartitionView
    from ...partitions.queries import PartitionQueries
    from ...storage.store import Store
    from ..project.target import Operated

READABLE: tuple[DisplayStatus, ...] = ("success", "refresh_failed")
PAGE = 500
THREADS = 8
"""Runs that are checked at the same time."""
MAX_STORE_CHECKS = 1000
"""Partitions of a plan that are looked up in the store. For a larger plan the ledger decides."""
NO_APP = "pass --ledger module:app"
"""Why raw data is not checked if only a ledger is known."""
NO_RAW_DATA = "no raw data"
"""Why a partition is skipped."""
NEVER_ENDED = "no extraction has ended"
NEVER_WRITTEN = "no extraction has written data"
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Lost:
    """An accepted partition that cannot be read. Immutable."""

    facts: PartitionView
    says: str
    """What is missing, or was changed."""


@dataclass(frozen=True, slots=True)
class RawState:
    """The state of the raw data of a current run. Immutable."""

    problem: str | None = None
    """What is missing, or has another size. None: no problem found, or not checked."""
    unchecked: str | None = None
    """Why the files were not checked. None: they were, or there is no current run."""


def raw_states(app: Operated, partitions: Sequence[PartitionView], /) -> list[RawState]:
    """Check the files of current runs, in the order of the partitions. No bytes are read."""
    registered = {extraction.limits.dataset: extraction for extraction in extractions(app)}

    def look(facts: PartitionView) -> RawState:
        extraction = registered.get((facts.partition.source, facts.partition.query_name))
        if facts.current_raw_id is None:
            return RawState()
        if extraction is None:
            return RawState(unchecked=NO_APP)
        try:
            return RawState(find_damage(extraction, facts.partition, facts.current_raw_id))
        except StorageError:
            return RawState(unchecked="store not reachable, see `redrive storage check`")

    return look_at_all(look, partitions) if registered else [look(facts) for facts in partitions]


def find_lost(
    app: Operated,
    queries: PartitionQueries,
    selection: PartitionFilter,
    /,
    *,
    after: int,
    limit: int,
) -> list[Lost]:
    """Return selected partitions whose current run is damaged, by id. No bytes are read.

    Raises:
        NotAllowed: The store is not known, or cannot be read.
    """
    registered = {extraction.limits.dataset: extraction for extraction in extractions(app)}
    shades = tuple(shade for shade in READABLE if shade in (selection.shades or READABLE))
    lost: list[Lost] = []
    while shades and len(lost) < limit:
        page = queries.find(replace(selection, shades=shades), after=after, limit=PAGE)
        runs = [
            (
                _extraction_of(registered, facts.partition),
                facts.partition,
                facts.current_raw_id or "",
            )
            for facts in page
        ]
        try:
            damages = look_at_all(lambda run: find_damage(*run), runs)
        except StorageError as problem:
            raise NotAllowed(f"the raw data cannot be read: {problem}") from problem
        pairs = zip(page, damages, strict=True)
        lost += [Lost(facts, damage) for facts, damage in pairs if damage is not None]
        if len(page) < PAGE:
            break
        after = page[-1].id
    return lost[:limit]


def find_damage(extraction: Extraction, partition: Partition, run_id: str, /) -> str | None:
    """Return what is wrong with the files of a run. None: they exist with their sizes."""
    try:
        load_raw(extraction.store(), partition, run_id)
    except Damaged as damage:
        return str(damage)
    return None


def look_at_all(look: Callable[[T], R], items: Sequence[T], /) -> list[R]:
    """Call a function for each item in a few threads. Return the results in the same order."""
    with ThreadPoolExecutor(THREADS, "redrive-look") as threads:
        return list(threads.map(look, items))


def missing_raw(app: Operated, act: str, ids: Sequence[int], /) -> dict[int, tuple[Partition, str]]:
    """Return partitions without raw data, by id, and the reason of each.

    A revalidation needs the raw data of the run that it validates. A retry needs an extraction that
    has ended. If it failed, no raw data is expected. If it wrote raw data, any run must still have
    some. The store decides if the app knows it, or else the ledger.

    Raises:
        NotAllowed: The raw store cannot be read.
    """
    runs: dict[int, str] = {}
    asks_stores = len(ids) <= MAX_STORE_CHECKS
    partitions: dict[int, Partition] = {}
    failed: set[int] = set()
    with ledger_of(app).reading() as connection:
        for chunk in chunks(ids):
            own_runs = runs_to_revalidate(connection, chunk)
            if asks_stores:
                runs |= own_runs
            else:
                chunk = [row_id for row_id in chunk if row_id not in own_runs]
            rows = read_partitions(connection, chunk)
            partitions |= {row_id: row.partition for row_id, row in rows.items()}
            # An extraction that raised an error has a verdict, and left no raw data.
            judged = {row_id for row_id, row in rows.items() if row.last_verdict is not None}
            failed |= judged - own_runs.keys()
    registered = {each.limits.dataset: each for each in extractions(app)} if asks_stores else {}

    def look(row_id: int) -> str | None:
        partition, run_id = partitions[row_id], runs.get(row_id)
        if row_id in failed:
            return None if act == "retry" else NEVER_WRITTEN
        extraction = registered.get((partition.source, partition.query_name))
        if extraction is None:
            return NEVER_ENDED if run_id is None else None
        return _why_missing(extraction, partition, run_id, any_run=act == "retry")

    try:
        reasons = look_at_all(look, list(partitions))
    except StorageError as problem:
        raise NotAllowed(
            f"the raw data cannot be read: {problem}. Nothing was changed"
        ) from problem
    pairs = zip(partitions.items(), reasons, strict=True)
    return {
        row_id: (partition, reason) for (row_id, partition), reason in pairs if reason is not None
    }


def _why_missing(
    extraction: Extraction, partition: Partition, run_id: str | None, *, any_run: bool
) -> str | None:
    """Return why a partition has no raw data in its store. None: it has."""
    store = extraction.store()
    if run_id is None:
        return None if any_run and _has_any_run(store, partition) else NEVER_ENDED
    has_manifest = store.exists(manifest_path(partition, run_id))
    if any_run and (has_manifest or _has_any_run(store, partition)):
        return None
    if not has_manifest:
        return f"the raw data of run {run_id} is not in {store.name}"
    return find_damage(extraction, partition, run_id)


def _has_any_run(store: Store, partition: Partition) -> bool:
    folders = store.folders(runs_folder(partition))
    return any(store.exists(f"{folder}/{MANIFEST}") for folder in folders)


def _extraction_of(
    registered: dict[tuple[str, str], Extraction], partition: Partition
) -> Extraction:
    extraction = registered.get((partition.source, partition.query_name))
    if extraction is None:
        raise NotAllowed(
            f"the raw data of {partition.source}/{partition.query_name} cannot be checked; the "
            "ledger does "
            "not know its store, so name the app that does (--ledger module:app; in code: "
            "Operator(app, ...))"
        )
    return extraction
