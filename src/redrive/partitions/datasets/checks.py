"""Checks of the data of a run. A function of yours can be a check like any of these."""

from __future__ import annotations

import json
import types
import typing
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from hashlib import blake2b
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from ...core.seconds import Seconds, positive, real, whole_number
from ...core.text import pluralise
from ...errors import Damaged
from ..model import Check, Finding
from ..raw.files import Raw

UTC = timezone.utc


class RowCheck(ABC):
    """A check of the rows of one run. Used by one thread."""

    @abstractmethod
    def row(self, row: dict[str, Any], /) -> None:
        """Check the next row."""

    @abstractmethod
    def finding(self) -> Finding:
        """Return the result."""

    def close(self) -> None:  # noqa: B027  # most checks have nothing to release
        """Release resources, also after an error."""


class RowCheckFactory:
    """A check of rows. Called, it reads the rows itself. Threads may share it.

    A validator reads the rows once for all such checks.
    """

    def __init__(
        self, name: str, begin: Callable[[Raw], RowCheck], /, *, final: bool = False
    ) -> None:
        """Prepare.

        Args:
            name: Name of the check.
            begin: Returns a check of the rows of a run.
            final: If it fails, another extraction would not help.
        """
        self.__name__ = name
        self.begin = begin
        self.final = final

    def __call__(self, raw: Raw, /) -> Finding:
        check = self.begin(raw)
        try:
            for row in raw.rows():
                check.row(row)
            return check.finding()
        finally:
            check.close()

    def __repr__(self) -> str:
        return f"<check {self.__name__}>"


# ---- the checks ----


def row_count(*, min: int = 0, max: int | None = None) -> Check:  # noqa: A002  # the plain word
    """Check the number of rows. No file is read.

    Args:
        min: Minimum number.
        max: Maximum number. None: no limit.

    Returns:
        The check.
    """
    least = whole_number("min", min, least=0)
    most = None if max is None else whole_number("max", max, least=0)
    if most is not None and most < least:
        raise ValueError(f"row_count: no number is at least {least} and at most {most}")
    limit = {"min": least} if most is None else {"min": least, "max": most}

    def check(raw: Raw) -> Finding:
        if all(file.rows is None for file in raw.files):
            return Finding(
                False, None, limit, "no file says how many rows it has: out.open(name, rows=...)"
            )
        ok = least <= raw.row_count and (most is None or raw.row_count <= most)
        wanted = f"at least {least:,}" if most is None else f"{least:,} to {most:,}"
        return Finding(
            ok, raw.row_count, limit, f"{pluralise(raw.row_count, 'row')}; {wanted} wanted"
        )

    return _with_name(check, "row_count")


def not_null(*columns: str) -> Check:
    """Check that every row has a value in these columns.

    Args:
        columns: Names of columns.

    Returns:
        The check.
    """
    names = _check_columns("not_null", columns)
    return RowCheckFactory(f"not_null({', '.join(names)})", lambda _: _NotNullCheck(names))


def unique(*columns: str) -> Check:
    """Check that no two rows have the same values in these columns.

    Memory is bounded: up to 250,000 rows use about 25 MB. More rows use temporary files of 16 bytes
    a row.

    Args:
        columns: Names of columns.

    Returns:
        The check.
    """
    names = _check_columns("unique", columns)
    return RowCheckFactory(f"unique({', '.join(names)})", lambda _: _UniqueCheck(names))


def schema(columns: Mapping[str, Any], /, *, extra: bool = True) -> Check:
    """Check that every row has these columns with these types.

    Types are those of JSON, and date and datetime, also as text. An integer is a valid float. A
    column that may be None may be missing. Data that does not fit is not extracted again: the
    partition gives up at once.

    Args:
        columns: Type of each column: `{"order_id": str, "amount": float, "note": str | None}`.
        extra: Whether other columns are allowed.

    Returns:
        The check.
    """
    expected = Schema(columns, extra=extra)
    return RowCheckFactory("schema", lambda _: _SchemaCheck(expected), final=True)


def freshness(column: str, /, *, within: Seconds) -> Check:
    """Check that the data reaches the end of the day.

    The newest timestamp may be at most `within` before the end of the day, or before the run was
    written if that was earlier. Timestamps are datetimes or ISO text. Without a zone they are UTC.
    A date counts to its end.

    Args:
        column: Name of the column.
        within: Maximum number of seconds, or a `timedelta`.

    Returns:
        The check.
    """
    name = _check_columns("freshness", (column,))[0]
    limit = positive("within", within)
    return RowCheckFactory(f"freshness({name})", lambda raw: _FreshnessCheck(name, limit, raw))


def drop(*, max: float) -> Check:  # noqa: A002  # the plain word
    """Check that a run does not lose more than this part of the current run's rows.

    The first run of a partition passes.

    Args:
        max: Maximum part of rows to lose: with 0.3, a loss of 31 % is rejected.

    Returns:
        The check.
    """
    most = real("max", max)
    if not 0 <= most <= 1:
        raise ValueError(f"drop: max is a part of one, from 0 to 1, not {max!r}")

    def check(raw: Raw) -> Finding:
        try:
            before = raw.previous
        except Damaged as gone:
            return Finding(True, None, -most, f"nothing to compare with; {gone}")
        if before is None or before.row_count == 0:
            return Finding(
                True, None, -most, "nothing to compare with; the current run has no rows"
            )
        change = (raw.row_count - before.row_count) / before.row_count
        rows = pluralise(raw.row_count, "row")
        return Finding(
            change >= -most,
            round(change, 4),
            -most,
            f"{rows}; the current run {before.run_id} has {before.row_count:,}",
        )

    return _with_name(check, "drop")


# ---- checks of rows ----


class _NotNullCheck(RowCheck):
    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._rows = 0
        self._nulls: Counter[str] = Counter()
        self._first: dict[str, int] = {}

    def row(self, row: dict[str, Any], /) -> None:
        self._rows += 1
        for column in self._columns:
            value = row.get(column)
            if value is None or value != value:  # Parquet may have NaN for a missing value
                self._nulls[column] += 1
                self._first.setdefault(column, self._rows)

    def finding(self) -> Finding:
        rows = pluralise(self._rows, "row")
        problems = [
            f"{name} is missing in {count:,} of {rows}, first in row {self._first[name]}"
            for name, count in self._nulls.items()
        ]
        return Finding(not self._nulls, self._nulls.total(), 0, "; ".join(problems))


class _UniqueCheck(RowCheck):
    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._duplicates = DuplicateCounter()
        self._rows = 0
        self._example = ""

    def row(self, row: dict[str, Any], /) -> None:
        self._rows += 1
        values = [row.get(column) for column in self._columns]
        text = json.dumps(values, sort_keys=True, default=repr)
        if self._duplicates.add(text.encode("utf-8", "surrogatepass")) and not self._example:
            names = ", ".join(self._columns)
            self._example = f"; first in row {self._rows}: {names} = {text[1:-1]:.100}"

    def finding(self) -> Finding:
        count = self._duplicates.count()
        duplicates = "is a duplicate" if count == 1 else "are duplicates"
        problem = f"{count:,} of {pluralise(self._rows, 'row')} {duplicates}"
        return Finding(not count, count, 0, f"{problem}{self._example}" if count else "")

    def close(self) -> None:
        self._duplicates.close()


class DuplicateCounter:
    """Counts values that occurred before, in bounded memory. Used by one thread.

    Digests beyond a limit go to temporary files. One file at a time is read into memory at the end.
    A temporary table of SQLite was three times slower with 1.5 million rows.
    """

    MAX_IN_MEMORY = 250_000
    """Digests in memory: about 25 MB."""
    FILES = 64
    DIGEST_BYTES = 16
    """Enough that two different values practically never have the same digest."""

    def __init__(self, max_in_memory: int = MAX_IN_MEMORY, /) -> None:
        self._max_in_memory = max_in_memory
        self._digests: set[bytes] = set()
        self._files: list[BinaryIO] = []
        self._repeated = 0

    def add(self, value: bytes, /) -> bool:
        """Add a value. Return True if it is already known to be a duplicate."""
        digest = blake2b(value, digest_size=self.DIGEST_BYTES).digest()
        if digest in self._digests:
            self._repeated += 1
            return True
        if self._files:
            self._files[digest[0] % self.FILES].write(digest)
            return False
        self._digests.add(digest)
        if len(self._digests) > self._max_in_memory:
            self._move_to_files()
        return False

    def count(self) -> int:
        """Return the number of duplicates."""
        return self._repeated + sum(map(self._count_in_file, self._files))

    def _move_to_files(self) -> None:
        self._files = [TemporaryFile() for _ in range(self.FILES)]  # noqa: SIM115  # see close
        for digest in self._digests:
            self._files[digest[0] % self.FILES].write(digest)
        self._digests = set()

    def _count_in_file(self, file: BinaryIO) -> int:
        file.seek(0)
        digests: set[bytes] = set()
        total = 0
        while piece := file.read(self.DIGEST_BYTES * 4096):
            total += len(piece) // self.DIGEST_BYTES
            starts = range(0, len(piece), self.DIGEST_BYTES)
            digests.update(piece[start : start + self.DIGEST_BYTES] for start in starts)
        return total - len(digests)

    def close(self) -> None:
        """Delete the temporary files."""
        for file in self._files:
            file.close()


class _SchemaCheck(RowCheck):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._rows = self._wrong = 0
        self._first = ""

    def row(self, row: dict[str, Any], /) -> None:
        self._rows += 1
        problem = self._schema.problem(row)
        if problem is not None:
            self._wrong += 1
            self._first = self._first or f"row {self._rows}: {problem}"

    def finding(self) -> Finding:
        verb = "does" if self._wrong == 1 else "do"
        detail = f"{self._wrong:,} of {pluralise(self._rows, 'row')} {verb} not fit; {self._first}"
        return Finding(not self._wrong, self._wrong, 0, detail if self._wrong else "")


class _FreshnessCheck(RowCheck):
    def __init__(self, column: str, within: float, raw: Raw) -> None:
        self._column, self._within = column, within
        day_end = datetime.combine(raw.partition.logical_date + timedelta(days=1), time(), UTC)
        self._end = min(day_end, raw.written_at)
        self._newest: datetime | None = None

    def row(self, row: dict[str, Any], /) -> None:
        value = row.get(self._column)
        if value is not None:
            at = _timestamp(self._column, value)
            if self._newest is None or at > self._newest:
                self._newest = at

    def finding(self) -> Finding:
        if self._newest is None:
            return Finding(False, None, self._within, f"no row has a timestamp in {self._column}")
        age = (self._end - self._newest).total_seconds()
        newest = f"the newest {self._column} is {self._newest.isoformat()}"
        detail = f"{newest}, {age:,.0f} s before {self._end.isoformat()}"
        return Finding(age <= self._within, age, self._within, detail)


def _timestamp(column: str, value: Any) -> datetime:
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"freshness: {column} is {value!r:.60}, not a timestamp in ISO form"
            ) from None
        value = parsed.date() if len(value) <= 10 else parsed
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime.combine(value + timedelta(days=1), time(), UTC)
    raise ValueError(
        f"freshness: {column} is {type(value).__name__} {value!r:.60}, not a timestamp"
    )


def _check_columns(check: str, columns: tuple[str, ...]) -> tuple[str, ...]:
    if not columns:
        raise TypeError(f'{check}() needs column names, as in {check}("order_id")')
    for name in columns:
        if not isinstance(name, str) or not name:
            raise TypeError(f"{check}: a column name is a string, not {name!r}")
    return columns


def _with_name(check: Check, name: str) -> Check:
    check.__name__ = name
    return check


# ---- types of columns ----


def _is_date(value: Any) -> bool:
    if isinstance(value, str):
        return _is_iso(date.fromisoformat, value)
    return isinstance(value, date) and not isinstance(value, datetime)


def _is_datetime(value: Any) -> bool:
    if isinstance(value, str):
        return _is_iso(datetime.fromisoformat, value)
    return isinstance(value, datetime)


def _is_iso(parse: Callable[[str], object], value: str) -> bool:
    try:
        parse(value)
    except ValueError:
        return False
    return True


TypeTest = Callable[[Any], bool]
TYPE_TESTS: dict[Any, TypeTest] = {
    str: lambda value: isinstance(value, str),
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    bool: lambda value: isinstance(value, bool),
    list: lambda value: isinstance(value, list),
    dict: lambda value: isinstance(value, dict),
    date: _is_date,
    datetime: _is_datetime,
    type(None): lambda value: value is None,
    None: lambda value: value is None,
    Any: lambda _: True,
    object: lambda _: True,
}
"""Types of JSON, and dates and datetimes, which JSON has as text."""


class Schema:
    """Columns with the types of their values. Immutable: threads may share it."""

    def __init__(self, columns: Mapping[str, Any], /, *, extra: bool) -> None:
        """Check the types.

        Args:
            columns: Types by column.
            extra: Whether a row may have other columns.
        """
        if not columns:
            raise ValueError(
                "schema() says what a row has: "
                'schema({"order_id": str, "amount": float, "note": str | None})'
            )
        self._tests = {name: _type_tests(name, kind) for name, kind in columns.items()}
        self._labels = {name: type_label(kind) for name, kind in columns.items()}
        self._extra = extra

    def problem(self, row: dict[str, Any], /) -> str | None:
        """Return the problem of a row. None: it fits."""
        for name, tests in self._tests.items():
            value = row.get(name)
            if not any(test(value) for test in tests):
                if name not in row:
                    return f"{name} is missing"
                return f"{name}: expected {self._labels[name]}, not {type(value).__name__}"
        if not self._extra:
            for name in row:
                if name not in self._tests:
                    return f"{name} is not in the schema"
        return None


def type_label(kind: Any, /) -> str:
    """Return a type for messages."""
    if isinstance(kind, tuple):
        return " | ".join(map(type_label, kind))
    if kind is None or kind is type(None):
        return "None"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _type_tests(name: str, kind: Any) -> list[TypeTest]:
    if not isinstance(name, str):
        raise TypeError(f"a column name is a string, not {name!r}")
    parts = kind if isinstance(kind, tuple) else None
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        parts = typing.get_args(kind)
    if parts is not None:
        return [test for part in parts for test in _type_tests(name, part)]
    test = TYPE_TESTS.get(typing.get_origin(kind) or kind)
    if test is None:
        known = ", ".join(type_label(each) for each in TYPE_TESTS if each is not None)
        raise TypeError(
            f"schema: the column {name!r} cannot be of {kind!r}; "
            f"known: {known}, or several: str | None"
        )
    return [test]
