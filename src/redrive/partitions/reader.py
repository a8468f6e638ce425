"""Reader: returns accepted data to consumers, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from ..core.context import clock_around
from ..core.text import pluralise
from ..errors import Damaged, Incomplete
from ..storage.store import Store
from .key import Day, Partition, check_name, days_between, parse_range
from .model import PartitionView
from .queries import PartitionQueries
from .raw.arrow import import_library, read_batches, read_table
from .raw.files import File, Raw, load_raw

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

MAX_READERS = 8
"""Manifests that are read at the same time."""
MAX_DAYS = 36_600
"""Days of one reading: a hundred years."""


class Reader:
    """Reads a dataset: its state from the ledger, its data from the store. Threads may share it."""

    def __init__(
        self,
        source: str,
        query_name: str,
        queries: Callable[[], PartitionQueries],
        store: Callable[[], Store],
        /,
    ) -> None:
        self._source = source
        self._query = query_name
        self._queries = queries
        self._store = store

    def read(self, customer_id: str, since: Day, until: Day | None = None, /) -> Reading:
        """Return the accepted data of a range of days, both ends included.

        Accepted data that is not in the store is missing, with the reason.
        """
        customer = check_name("customer", customer_id)
        first, last = parse_range(since, until)
        if (last - first).days >= MAX_DAYS:
            raise ValueError(f"{first} to {last} is more than a hundred years: read it in parts")
        views = self._queries().days(self._source, self._query, customer, first, last)
        files: list[File] = []
        missing: list[Gap] = []
        keys = [
            Partition(self._source, customer, self._query, day) for day in days_between(first, last)
        ]
        for part in self._read_days(keys, views):
            if isinstance(part, Gap):
                missing.append(part)
            else:
                files += part.files
        return Reading(files, missing)

    def _read_days(
        self, keys: Sequence[Partition], views: Mapping[date, PartitionView]
    ) -> list[Raw | Gap]:
        readable = [
            key
            for key in keys
            if key.logical_date in views and views[key.logical_date].current_run_id is not None
        ]

        def load(key: Partition) -> Raw | Gap:
            return self._load(key, views[key.logical_date])

        if len(readable) > 1:
            with ThreadPoolExecutor(min(MAX_READERS, len(readable)), "redrive-read") as threads:
                loaded = dict(zip(readable, threads.map(load, readable), strict=True))
        else:
            loaded = {key: load(key) for key in readable}
        today = clock_around().now().date()
        return [
            loaded[key] if key in loaded else explain_gap(key, views.get(key.logical_date), today)
            for key in keys
        ]

    def _load(self, key: Partition, view: PartitionView) -> Raw | Gap:
        run_id = view.current_raw_id or view.current_run_id
        assert run_id is not None
        try:
            raw = load_raw(self._store(), key, run_id)
        except Damaged as damage:
            return Gap(
                key,
                "lost",
                f"the data of the current run {view.current_run_id} cannot be read: {damage}",
            )
        if view.record_count not in (None, raw.row_count):
            rows = pluralise(raw.row_count, "row")
            accepted = pluralise(view.record_count or 0, "was", "were")
            detail = f"the manifest says {rows}, but {accepted} accepted; it was changed"
            return Gap(key, "lost", f"current run {view.current_run_id}: {detail}")
        return raw


class Reading:
    """Accepted data of a range of days, and the gaps. Threads may share it.

    It describes the moment of reading. Runs do not change.

    Attributes:
        files: The files, ordered by day.
        missing: The gaps.
    """

    def __init__(self, files: Sequence[File], missing: Sequence[Gap]) -> None:
        self.files: Sequence[File] = tuple(files)
        """Ordered by day."""
        self.missing: Sequence[Gap] = tuple(missing)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all files: JSON Lines, or Parquet with pyarrow.

        Yields:
            The rows.
        """
        for file in self.files:
            yield from file.read()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files as Arrow record batches, in bounded memory.

        Each batch has the columns and types of its own rows.

        Yields:
            The batches, ordered by day.

        Raises:
            ImportError: pyarrow is not installed. The message says how to install it.
        """
        return read_batches(self.files, "batches")

    def to_arrow(self) -> pa.Table:
        """Return the rows of all files as one Arrow table, in memory.

        Values are those of `rows`: text in JSON stays text. A column that a file lacks is null.

        Returns:
            The table.

        Raises:
            ImportError: pyarrow is not installed. The message says how to install it.
            TypeError: A column has values that do not fit one type.
        """
        return read_table(self.files, "to_arrow")

    def to_polars(self) -> pl.DataFrame:
        """Return the rows of all files as a Polars frame.

        Returns:
            The frame.

        Raises:
            ImportError: polars or pyarrow is not installed.
        """
        polars = import_library("polars", "to_polars")
        frame: pl.DataFrame = polars.from_arrow(read_table(self.files, "to_polars"))
        return frame

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows of all files as a pandas frame.

        Returns:
            The frame.

        Raises:
            ImportError: pandas or pyarrow is not installed.
        """
        import_library("pandas", "to_pandas")
        return read_table(self.files, "to_pandas").to_pandas()

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, /
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows of all files as a DuckDB relation, for SQL.

        Args:
            connection: The connection. Default: the default connection of duckdb.

        Returns:
            The relation.

        Raises:
            ImportError: duckdb or pyarrow is not installed.
            ValueError: No file has a column, so that there is nothing to query.
        """
        library = import_library("duckdb", "to_duckdb")
        table = read_table(self.files, "to_duckdb")
        if not table.num_columns:
            raise ValueError("to_duckdb(): the reading has no rows; check reading.missing")
        relation: duckdb.DuckDBPyRelation = (connection or library).from_arrow(table)
        return relation

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
        counts = Counter(gap.why for gap in self.missing)
        reasons = ", ".join(f"{count} {why.replace('_', ' ')}" for why, count in counts.items())
        days = pluralise(len(self.missing), "day is", "days are")
        raise Incomplete(
            f"{days} missing ({reasons}); first {first.partition}: {first.detail}",
            gaps=list(self.missing),
        )

    def __repr__(self) -> str:
        files, days = pluralise(len(self.files), "file"), pluralise(len(self.missing), "day")
        return f"<Reading: {files}, {days} missing>"


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


def explain_gap(key: Partition, view: PartitionView | None, today: date, /) -> Gap:
    """Return why a day has no accepted data."""
    if view is None:
        is_future = key.logical_date > today
        never = "not queued so far by a schedule or a backfill"
        return Gap(key, "never_run", "the day is in the future" if is_future else never)
    if view.running:
        return Gap(key, "running", f"run {view.run_id} is running{_last_rejection(view)}")
    if view.terminal is not None:
        return Gap(key, "terminal", f"gave up: {view.terminal}{_last_rejection(view)}")
    if view.paused is not None:
        return Gap(key, "paused", f"paused: {view.paused}{_last_rejection(view)}")
    if view.status == "failed":
        return Gap(key, "failed", f"{_next_attempt(view)}{_last_rejection(view)}")
    return Gap(key, "never_run", _next_attempt(view))


def _next_attempt(view: PartitionView) -> str:
    if view.next_at is None:
        return "not retried automatically"
    return f"queued in lane {view.lane}, due {view.next_at.isoformat(timespec='seconds')}"


def _last_rejection(view: PartitionView) -> str:
    if view.last_verdict != "rejected":
        return ""
    error = (view.error or "").strip().partition("\n")[0]
    reason = view.reason or "no reason given"
    rejection = f"; attempt {view.attempt_count} was rejected: {reason}"
    return f"{rejection} ({error})" if error else rejection
