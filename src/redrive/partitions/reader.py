"""Reader: gives consumers what a validator accepted, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date

from ..core.context import clock_around
from ..core.text import pluralise
from ..errors import Damaged
from ..storage.store import Store
from .gap import Gap, gap
from .partition import Day, Partition, days, named, span
from .raw import File, Raw, raw
from .reading import Reading
from .record import Facts
from .register import Register

AT_ONCE = 8
"""Manifests that are looked at side by side."""
LONGEST = 36_600
"""Days of one reading: a hundred years."""


class Reader:
    """Reads one dataset: facts from the ledger, data from the store. Has no other verb. Threads may share it."""

    def __init__(self, source: str, query_name: str, register: Callable[[], Register], store: Callable[[], Store], /) -> None:
        self._source, self._query = source, query_name
        self._register, self._store = register, store

    def read(self, customer_id: str, since: Day, until: Day | None = None, /) -> Reading:
        """What is in force of these days, both ends in it. What is in force and not in the store is missing, and says so."""
        customer = named("customer", customer_id)
        first, last = span(since, until)
        if (last - first).days >= LONGEST:
            raise ValueError(f"{first} to {last} is more than a hundred years: read it in parts")
        facts = self._register().days(self._source, self._query, customer, first, last)
        today = clock_around().now().date()
        files: list[File] = []
        missing: list[Gap] = []
        for found in self._found([self._key(customer, each) for each in days(first, last)], facts, today):
            if isinstance(found, Gap):
                missing.append(found)
            else:
                files += found.files
        return Reading(files, missing)

    def _key(self, customer: str, day: date) -> Partition:
        return Partition(self._source, customer, self._query, day)

    def _found(self, keys: Sequence[Partition], facts: dict[date, Facts], today: date) -> list[Raw | Gap]:
        readable = [key for key in keys if (one := facts.get(key.logical_date)) is not None and one.current_run_id is not None]
        if len(readable) > 1:
            with ThreadPoolExecutor(min(AT_ONCE, len(readable)), "redrive-read") as threads:
                opened = dict(
                    zip(readable, threads.map(lambda key: self._opened(key, facts[key.logical_date]), readable), strict=True)
                )
        else:
            opened = {key: self._opened(key, facts[key.logical_date]) for key in readable}
        return [opened[key] if key in opened else gap(key, facts.get(key.logical_date), today=today) for key in keys]

    def _opened(self, key: Partition, facts: Facts) -> Raw | Gap:
        run_id = facts.current_raw_id or facts.current_run_id
        assert run_id is not None
        try:
            found = raw(self._store(), key, run_id)
        except Damaged as damage:
            return Gap(key, "lost", f"the data of the current run {facts.current_run_id} cannot be read: {damage}")
        if facts.record_count not in (None, found.row_count):
            accepted = pluralise(facts.record_count or 0, "was", "were")
            told = f"the manifest says {pluralise(found.row_count, 'row')}, but {accepted} accepted; it was changed"
            return Gap(key, "lost", f"current run {facts.current_run_id}: {told}")
        return found
