"""Orphans in stores of raw data: runs that the ledger does not know, and runs without a manifest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from ...core.text import pluralise
from ...errors import StorageError
from ..partitions.datasets import extractions
from ..target.target import ledger_of
from .finding import Finding

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger
    from ...storage.store import Store
    from ..target.target import Operated

LISTED = 5000
"""Files of a source that are listed: to list millions would take hours."""
OVER = ("rejected", "late", "lost", "returned")
_RUN = re.compile(r"(?P<folder>.*/logical_date=[^/]+/run_id=(?P<run>[^/]+))/(?P<name>[^/]+)")


def orphans(app: Operated, /) -> Iterator[Finding]:
    """Folders of runs that no row knows, or that have no manifest and never will. A bare ledger knows no stores: nothing."""
    seen: set[tuple[int, str, str]] = set()
    for extraction in extractions(app):
        source = extraction.terms.source
        try:
            store = extraction.store()
            place = (id(store.backend), store.root_path, source)  # the store itself is made anew for each who asks
            if place in seen:
                continue
            seen.add(place)
            yield from _found(store, source, ledger_of(app))
        except StorageError:
            continue  # said already, of what is in force


def _found(store: Store, source: str, ledger: Ledger) -> Iterator[Finding]:
    folders = _folders(store, source)
    states = _states(ledger, {run for run, _ in folders.values()})  # after the look: what has begun since is not in it
    unknown = sorted(folder for folder, (run, _) in folders.items() if run not in states)
    # What is accepted and has no manifest is lost, which is said elsewhere, and worse.
    ended = {folder for folder, (run, whole) in folders.items() if not whole and states.get(run) in OVER}
    half = sorted(folder for folder in ended if not store.exists(f"{folder}/{_manifest()}"))
    where = f"of {pluralise(len(folders), 'run')} in {store.name} of source {source}"
    if unknown:
        says = (
            f"Raw data: {len(unknown):,} {where} {'is' if len(unknown) == 1 else 'are'} unknown to this ledger, such as "
            f"{unknown[0]}; they belong to another ledger, or are newer than the backup that was restored"
        )
        mend = "delete their folders if no other ledger uses them"
        yield Finding("orphan runs", "warning", says, len(unknown), None, mend, False)
    if half:
        says = (
            f"Raw data: {len(half):,} {where} {'has' if len(half) == 1 else 'have'} no manifest, such as {half[0]}; "
            "the extraction failed or was killed"
        )
        mend = "delete their folders to free the space; they are not read or written again"
        yield Finding("half runs", "warning", says, len(half), None, mend, False)


def _folders(store: Store, source: str) -> dict[str, tuple[str, bool]]:
    """Of each folder of a run its run, and whether its manifest was seen."""
    from ...partitions.raw.layout import encoded  # noqa: PLC0415  # not before it is wanted

    found: dict[str, tuple[str, bool]] = {}
    for path in islice(store.files(encoded(source)), LISTED):
        if match := _RUN.fullmatch(path):
            whole = found.get(match["folder"], ("", False))[1] or match["name"] == _manifest()
            found[match["folder"]] = match["run"], whole
    return found


def _states(ledger: Ledger, runs: set[str]) -> Mapping[str, str]:
    from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    return Register(ledger).states(sorted(runs))


def _manifest() -> str:
    from ...partitions.raw.layout import MANIFEST  # noqa: PLC0415  # the same

    return MANIFEST
