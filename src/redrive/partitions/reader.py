"""Reader: gives consumers what a validator accepted, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, Self, TypeAlias

from ..core.context import clock_around
from ..core.text import pluralise
from ..errors import Damaged, Incomplete
from ..storage.store import Store
from .key import Day, Partition, days, named, span
from .model import Facts
from .queries import Register
from .raw.files import File, Raw, raw

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


class Reading:
    """Accepted data of a range of days, and the gaps. Threads may share it.

    It describes the moment of reading. Runs do not change.

    Attributes:
        files: The files, ordered by day.
        missing: The gaps.
    """

    def __init__(self, files: Sequence[File], missing: Sequence[Gap]) -> None:
        self.files: Sequence[File] = tuple(files)
        """In the order of their days."""
        self.missing: Sequence[Gap] = tuple(missing)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all files: JSON Lines, or Parquet with pyarrow.

        Yields:
            The rows.
        """
        for file in self.files:
            yield from file.read()

    def complete(self) -> Self:
        """Return this reading if no day is missing.

        Returns:
            The reading itself.

        Raises:
            Incomplete: A day is missing. Its `gaps` list all of them.
        """
        if not self.missing:
            return self
        first = self.missing[0]
        why = ", ".join(f"{many} {reason.replace('_', ' ')}" for reason, many in Counter(one.why for one in self.missing).items())
        days = pluralise(len(self.missing), "day is", "days are")
        raise Incomplete(f"{days} missing ({why}); first {first.partition}: {first.detail}", gaps=list(self.missing))

    def __repr__(self) -> str:
        return f"<Reading: {pluralise(len(self.files), 'file')}, {pluralise(len(self.missing), 'day')} missing>"


Why: TypeAlias = Literal["never_run", "running", "failed", "terminal", "paused", "lost"]


@dataclass(frozen=True, slots=True)
class Gap:
    """A day without data. Immutable: threads may share it.

    Attributes:
        partition: The partition.
        why: `"never_run"`, `"running"`, `"failed"`, `"terminal"` (gave up), `"paused"` or `"lost"`
            (accepted, but its files are gone or changed).
        detail: Explanation.
    """

    partition: Partition
    why: Why
    detail: str


def gap(partition: Partition, facts: Facts | None, /, *, today: date) -> Gap:
    """Why there is nothing to read."""
    if facts is None:
        future = partition.logical_date > today
        return Gap(
            partition, "never_run", "the day is in the future" if future else "not queued so far by a schedule or a backfill"
        )
    if facts.running:
        return Gap(partition, "running", f"run {facts.run_id} is running{_last(facts)}")
    if facts.terminal is not None:
        return Gap(partition, "terminal", f"gave up: {facts.terminal}{_last(facts)}")
    if facts.paused is not None:
        return Gap(partition, "paused", f"paused: {facts.paused}{_last(facts)}")
    if facts.status == "failed":
        return Gap(partition, "failed", f"{_next(facts)}{_last(facts)}")
    return Gap(partition, "never_run", _next(facts))


def _next(facts: Facts) -> str:
    if facts.next_at is None:
        return "not retried automatically"
    return f"queued in lane {facts.lane}, due {facts.next_at.isoformat(timespec='seconds')}"


def _last(facts: Facts) -> str:
    if facts.last_verdict != "rejected":
        return ""
    said = (facts.error or "").strip().partition("\n")[0]
    return f"; attempt {facts.attempt_count} was rejected: {facts.reason or 'no reason given'}" + (f" ({said})" if said else "")
