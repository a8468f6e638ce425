"""Checks: what a run's data must be for it to be accepted. A function of yours is as good a check as any of these."""

from __future__ import annotations

import json
import types
import typing
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

from ...core.seconds import Seconds, positive, real, whole_number
from ...core.text import pluralise
from ...errors import Damaged
from ..model import Check, Finding
from ..raw.files import Raw
from .duplicates import Seen
from .row_check import Looking

UTC = timezone.utc


def row_count(*, min: int = 0, max: int | None = None) -> Check:  # noqa: A002  # as one says it
    """Check the number of rows. No file is read.

    Args:
        min: Minimum number.
        max: Maximum number. None: no limit.

    Returns:
        The check.
    """
    least, most = whole_number("min", min, least=0), None if max is None else whole_number("max", max, least=0)
    if most is not None and most < least:
        raise ValueError(f"row_count: no number is at least {least} and at most {most}")
    limit = {"min": least} if most is None else {"min": least, "max": most}

    def check(raw: Raw) -> Finding:
        if all(file.rows is None for file in raw.files):
            return Finding(False, None, limit, "no file says how many rows it has: out.open(name, rows=...)")
        ok = least <= raw.row_count and (most is None or raw.row_count <= most)
        wanted = f"at least {least:,}" if most is None else f"{least:,} to {most:,}"
        return Finding(ok, raw.row_count, limit, f"{pluralise(raw.row_count, 'row')}; {wanted} wanted")

    return _named(check, "row_count")


def not_null(*columns: str) -> Check:
    """Check that every row has a value in these columns.

    Args:
        columns: Names of columns.

    Returns:
        The check.
    """
    names = _columns("not_null", columns)
    return Looking(f"not_null({', '.join(names)})", lambda _: _NotNull(names))


def unique(*columns: str) -> Check:
    """Check that no two rows have the same values in these columns.

    Memory is bounded: up to 250,000 rows use about 25 MB. More rows use temporary files of 16 bytes
    a row.

    Args:
        columns: Names of columns.

    Returns:
        The check.
    """
    names = _columns("unique", columns)
    return Looking(f"unique({', '.join(names)})", lambda _: _Unique(names))


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
    told = Columns(columns, extra=extra)
    return Looking("schema", lambda _: _Fitting(told), final=True)


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
    name, limit = _columns("freshness", (column,))[0], positive("within", within)
    return Looking(f"freshness({name})", lambda raw: _Newest(name, limit, raw))


def drop(*, max: float) -> Check:  # noqa: A002  # as one says it
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
            return Finding(True, None, -most, "nothing to compare with; the current run has no rows")
        change = (raw.row_count - before.row_count) / before.row_count
        told = f"{pluralise(raw.row_count, 'row')}; the current run {before.run_id} has {before.row_count:,}"
        return Finding(change >= -most, round(change, 4), -most, told)

    return _named(check, "drop")


class _NotNull:
    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._rows = 0
        self._nulls: Counter[str] = Counter()
        self._first: dict[str, int] = {}

    def row(self, row: dict[str, Any], /) -> None:
        self._rows += 1
        for column in self._columns:
            value = row.get(column)
            if value is None or value != value:  # NaN is what Parquet has for nothing
                self._nulls[column] += 1
                self._first.setdefault(column, self._rows)

    def finding(self) -> Finding:
        told = [
            f"{name} is missing in {n:,} of {pluralise(self._rows, 'row')}, first in row {self._first[name]}"
            for name, n in self._nulls.items()
        ]
        return Finding(not self._nulls, sum(self._nulls.values()), 0, "; ".join(told))

    def close(self) -> None:
        pass


class _Unique:
    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._seen = Seen()
        self._rows = 0
        self._example: str | None = None

    def row(self, row: dict[str, Any], /) -> None:
        self._rows += 1
        value = json.dumps([row.get(column) for column in self._columns], sort_keys=True, default=repr)
        if self._seen.add(value.encode("utf-8", "surrogatepass")) and self._example is None:
            self._example = f"row {self._rows}: {value[1:-1]:.100}"

    def finding(self) -> Finding:
        many = self._seen.count()
        example = "" if self._example is None else f"; first {self._example}"
        repeat = f"{many:,} of {pluralise(self._rows, 'row')} {'repeats' if many == 1 else 'repeat'} an earlier one"
        return Finding(not many, many, 0, f"{repeat}{example}" if many else "")

    def close(self) -> None:
        self._seen.close()


class _Fitting:
    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._rows = self._bad = 0
        self._first = ""

    def row(self, row: dict[str, Any], /) -> None:
        self._rows += 1
        wrong = self._columns.problem(row)
        if wrong is not None:
            self._bad += 1
            self._first = self._first or f"row {self._rows}: {wrong}"

    def finding(self) -> Finding:
        told = (
            f"{self._bad:,} of {pluralise(self._rows, 'row')} {'does' if self._bad == 1 else 'do'} not fit; {self._first}"
            if self._bad
            else ""
        )
        return Finding(not self._bad, self._bad, 0, told)

    def close(self) -> None:
        pass


class _Newest:
    def __init__(self, column: str, within: float, raw: Raw) -> None:
        self._column, self._within = column, within
        over = datetime.combine(raw.partition.logical_date + timedelta(days=1), time(), UTC)
        self._end = min(over, raw.written_at)
        self._newest: datetime | None = None

    def row(self, row: dict[str, Any], /) -> None:
        value = row.get(self._column)
        if value is not None:
            found = _moment(self._column, value)
            if self._newest is None or found > self._newest:
                self._newest = found

    def finding(self) -> Finding:
        if self._newest is None:
            return Finding(False, None, self._within, f"no row has a timestamp in {self._column}")
        age = (self._end - self._newest).total_seconds()
        told = f"the newest {self._column} is {self._newest.isoformat()}, {age:,.0f} s before {self._end.isoformat()}"
        return Finding(age <= self._within, age, self._within, told)

    def close(self) -> None:
        pass


def _moment(column: str, value: Any) -> datetime:
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"freshness: {column} is {value!r:.60}, not a timestamp in ISO form") from None
        value = found.date() if len(value) <= 10 else found
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime.combine(value + timedelta(days=1), time(), UTC)
    raise ValueError(f"freshness: {column} is {type(value).__name__} {value!r:.60}, not a timestamp")


def _columns(check: str, columns: tuple[str, ...]) -> tuple[str, ...]:
    if not columns:
        raise TypeError(f'{check}() needs column names, as in {check}("order_id")')
    for name in columns:
        if not isinstance(name, str) or not name:
            raise TypeError(f"{check}: a column name is a string, not {name!r}")
    return columns


def _named(check: Check, name: str) -> Check:
    check.__name__ = name
    return check


Fits = Callable[[Any], bool]


def _dated(value: Any) -> bool:
    if isinstance(value, str):
        try:
            date.fromisoformat(value)
        except ValueError:
            return False
        return True
    return isinstance(value, date) and not isinstance(value, datetime)


def _timed(value: Any) -> bool:
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return False
        return True
    return isinstance(value, datetime)


FITS: dict[Any, Fits] = {
    str: lambda value: isinstance(value, str),
    int: lambda value: isinstance(value, int) and not isinstance(value, bool),
    float: lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    bool: lambda value: isinstance(value, bool),
    list: lambda value: isinstance(value, list),
    dict: lambda value: isinstance(value, dict),
    date: _dated,
    datetime: _timed,
    type(None): lambda value: value is None,
    None: lambda value: value is None,
    Any: lambda _: True,
    object: lambda _: True,
}
"""Of JSON, and dates and moments, which JSON has as text."""


class Columns:
    """Columns by name, each with the types that its values may have. Immutable: threads may share it."""

    def __init__(self, told: Mapping[str, Any], /, *, extra: bool) -> None:
        """extra: a row may have columns that are not told."""
        if not told:
            raise ValueError('schema() says what a row has: schema({"order_id": str, "amount": float, "note": str | None})')
        self._fits = {name: _either(name, kind) for name, kind in told.items()}
        self._shown = {name: shown(kind) for name, kind in told.items()}
        self._extra = extra

    def problem(self, row: dict[str, Any], /) -> str | None:
        """What is wrong with a row; None where it fits."""
        for name, fits in self._fits.items():
            value = row.get(name)
            if not any(fit(value) for fit in fits):
                if name not in row:
                    return f"{name} is missing"
                return f"{name} is {type(value).__name__}, and {self._shown[name]} is wanted"
        if not self._extra:
            for name in row:
                if name not in self._fits:
                    return f"{name} is not in the schema"
        return None

    def __str__(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self._shown.items())


def shown(kind: Any, /) -> str:
    """A type, for people."""
    if isinstance(kind, tuple):
        return " | ".join(map(shown, kind))
    if kind is None or kind is type(None):
        return "None"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _either(name: str, kind: Any) -> list[Fits]:
    if not isinstance(name, str):
        raise TypeError(f"a column name is a string, not {name!r}")
    if isinstance(kind, tuple):
        return [fit for each in kind for fit in _either(name, each)]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [fit for each in typing.get_args(kind) for fit in _either(name, each)]
    found = FITS.get(typing.get_origin(kind) or kind)
    if found is None:
        known = ", ".join(shown(one) for one in FITS if one is not None)
        raise TypeError(f"schema: the column {name!r} cannot be of {kind!r}; known: {known}, or several: str | None")
    return [found]
