"""Missing raw data: which partitions of a plan have none. Asks the raw store where the app knows it, else the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import NotAllowed, StorageError
from ..target.target import ledger_of
from .datasets import extractions
from .lost import missing, side_by_side

if TYPE_CHECKING:
    from ...partitions.datasets.definition import Extraction
    from ...partitions.key import Partition
    from ...storage.store import Store
    from ..target.target import Operated

ASKED = 1000
"""Partitions of a plan about which the store is asked: of a larger one the ledger says what was ever extracted."""
NEVER = "no extraction has ended"


def missing_raw(app: Operated, act: str, ids: Sequence[int], /) -> dict[int, tuple[Partition, str]]:
    """Partitions without raw data, and why each has none.

    A revalidation needs the raw data of the run that it validates. A retry has raw data if any run has.

    Raises:
        NotAllowed: The raw store cannot be asked.
    """
    from ...partitions.store.queries import to_validate  # noqa: PLC0415
    from ...partitions.store.rows import chunks, read  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    runs: dict[int, str] = {}
    with ledger_of(app).reading() as connection:
        for some in chunks(ids):
            runs |= to_validate(connection, some)
        wanted = ids if len(ids) <= ASKED else [id_ for id_ in ids if id_ not in runs]
        partitions = {id_: row.partition for some in chunks(wanted) for id_, row in read(connection, some).items()}
    known = {one.terms.dataset: one for one in extractions(app)} if len(ids) <= ASKED else {}

    def look(id_: int) -> str | None:
        partition, run_id = partitions[id_], runs.get(id_)
        extraction = known.get((partition.source, partition.query_name))
        if extraction is None:
            return NEVER if run_id is None else None
        return _in_store(extraction, partition, run_id, any_run=act == "retry")

    try:
        reasons = side_by_side(look, list(partitions))
    except StorageError as problem:
        raise NotAllowed(f"the raw data cannot be read: {problem}. Nothing was changed") from problem
    return {id_: (partitions[id_], why) for id_, why in zip(partitions, reasons, strict=True) if why is not None}


def _in_store(extraction: Extraction, partition: Partition, run_id: str | None, *, any_run: bool) -> str | None:
    """Why a partition has no raw data in its store; None: it has."""
    from ...partitions.raw.layout import manifest_of  # noqa: PLC0415  # not before a store is asked

    store = extraction.store()
    if run_id is None:
        return None if any_run and _has_any_run(store, partition) else NEVER
    if any_run:
        has_raw = store.exists(manifest_of(partition, run_id)) or _has_any_run(store, partition)
        return None if has_raw else f"the raw data of run {run_id} is not in {store.name}"
    if not store.exists(manifest_of(partition, run_id)):
        return f"the raw data of run {run_id} is not in {store.name}"
    return missing(extraction, partition, run_id)


def _has_any_run(store: Store, partition: Partition) -> bool:
    from ...partitions.raw.layout import MANIFEST, runs_of  # noqa: PLC0415  # the same

    return any(store.exists(f"{folder}/{MANIFEST}") for folder in store.folders(runs_of(partition)))
