"""Find jobs by a filter, in a time that does not grow with the number of jobs.

The most selective field of the filter is looked up in its index. It gives the ids of candidates,
newest first. They are then read by their ids, and checked against the whole filter. The number of
candidates is limited, so a search may be cut: then a narrower filter finds more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, exists, func, or_, select

from ...core.classification.signature import signature_of
from ..db.compiled import sql_int, sql_text
from ..db.job_tables import tag
from ..db.session import PerKind
from ..db.tables import (
    CURRENT,
    FAILED_JOBS,
    attempt,
    dead,
    failure,
    failure_delta,
    job,
    sweep_item,
)
from ..filters import JobFilter
from ..jobs.user_mentions import escape, is_key_of
from ..model import LEASED, Job
from ..stats.counters import counts
from ..tags import CORRELATION, USER, stored_name, tag_text
from . import jobs

MAX_CANDIDATES = 10_000
"""Jobs that a search checks one by one."""
MAX_COUNT = MAX_CANDIDATES
"""Jobs are counted up to this number."""
MAX_GROUPS = 50
"""Error groups whose jobs are searched, seen last first."""
MAX_TAG_NAMES = 100
MAX_DOMAINS = 100
"""First parts of job keys that are looked up for a user."""
MAX_OTHER_KEYS = 10
"""A job type with so many keys of another form, at the start of its keys, has no users."""
MAX_WINDOWS = 20
WINDOW_IDS = 50_000
"""Without a selective field, the newest ids are searched in windows of this size."""
CHUNK_JOBS = 500
"""Candidates that are checked by one statement."""
MAX_SKEW = timedelta(minutes=5)
"""Ids grow with the time of submission, except for transactions that were open for this long."""
LAST_CHARACTER = "\U0010ffff"


class JobPage(NamedTuple):
    """The result of a search."""

    jobs: list[Job]
    is_cut: bool
    """Whether there may be more: the limit was reached, or too many jobs had to be checked."""


def find(connection: Connection, wanted: JobFilter, /, *, limit: int) -> JobPage:
    """Return jobs without their content.

    With only a state or a job type, queued jobs are ordered by due time, and ended ones by end. In
    other selections the newest is first.
    """
    is_plain = wanted == JobFilter(kind=wanted.kind, state=wanted.state)
    # All jobs and done jobs are not indexed by job type.
    if is_plain and (wanted.kind is None or wanted.state not in (None, "done")):
        rows = jobs.in_display_state(connection, wanted.state, kind=wanted.kind, limit=limit)
        return JobPage(rows, len(rows) == limit)
    candidates = find_candidates(connection, wanted)
    rows = []
    for chunk in _chunks(candidates.ids):
        query = jobs.LINE.where(job.c.id.in_(chunk), *conditions(wanted))
        by_id = {each.id: each for each in jobs.read(connection, query)}
        rows += [by_id[id_] for id_ in chunk if id_ in by_id]
        if len(rows) >= limit:
            break
    is_cut = candidates.is_cut or len(rows) >= limit
    if wanted.state == "done":
        rows.sort(key=lambda each: (each.ended_at or each.created_at, each.id), reverse=True)
    return JobPage(rows[:limit], is_cut)


def count(connection: Connection, wanted: JobFilter, /, *, most: int = MAX_COUNT) -> int:
    """Count jobs, up to a number."""
    total = 0
    for chunk in _chunks(find_candidates(connection, wanted, most=max(most, MAX_COUNT)).ids):
        query = select(func.count()).where(job.c.id.in_(chunk), *conditions(wanted))
        total += connection.scalar(query.select_from(job)) or 0
        if total >= most:
            return most
    return total


def find_letters(connection: Connection, wanted: JobFilter, /) -> list[int]:
    """Return the ids of the dead letters of jobs, also of jobs that a replay has replaced."""
    letters: set[int] = set()
    for chunk in _chunks(find_candidates(connection, wanted).ids):
        where = conditions(wanted, with_replaced=True)
        query = select(job.c.id, job.c.dead_id).where(job.c.id.in_(chunk), *where)
        rows = connection.execute(query).all()
        letters.update(row.dead_id for row in rows if row.dead_id is not None)
        died = select(dead.c.id).where(dead.c.job_id.in_([row.id for row in rows]))
        letters.update(connection.execute(died).scalars())
    return sorted(letters)


def tag_names(connection: Connection, /) -> list[str]:
    """Return the names of declared tags that jobs have."""
    return [name for name in _tag_names(connection) if not name.startswith("@")]


def tags_of(connection: Connection, job_id: int, /) -> dict[str, str]:
    """Return the declared tags of a job, by name."""
    query = select(tag.c.name, tag.c.value).where(tag.c.job_id == job_id).order_by(tag.c.name)
    return {name: value for name, value in connection.execute(query) if not name.startswith("@")}


def sweeps_of(connection: Connection, job_id: int, sweep_ids: Sequence[int], /) -> set[int]:
    """Return which of these sweeps have changed a job."""
    query = select(sweep_item.c.sweep_id).where(
        sweep_item.c.sweep_id.in_(sweep_ids),
        sweep_item.c.job_id == job_id,
        sweep_item.c.outcome == "made",
    )
    return set(connection.execute(query).scalars())


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), CHUNK_JOBS):
        yield ids[start : start + CHUNK_JOBS]


# --- The whole filter, as conditions on the job table


def conditions(wanted: JobFilter, /, *, with_replaced: bool = False) -> list[ColumnElement[bool]]:
    """Return the conditions on the job table. `with_replaced`: also jobs that were replayed."""
    named = ((name, getattr(wanted, name)) for name in ("key", "kind", "tenant"))
    narrowed: list[Any] = [job.c[name] == value for name, value in named if value is not None]
    if wanted.ids:
        narrowed.append(job.c.id.in_(wanted.ids))
    elif wanted.state != "discarded" and not with_replaced:
        narrowed.append(CURRENT)
    if wanted.key_prefix is not None:
        narrowed += _in_prefix(wanted.key_prefix)
    if wanted.user is not None:
        narrowed.append(_is_of_user(wanted.user))
    if wanted.correlation_id is not None:
        narrowed.append(_has_tag((CORRELATION, USER), wanted.correlation_id))
    narrowed += [_has_tag((stored_name(name),), value) for name, value in wanted.tag_pairs]
    if wanted.error is not None:
        narrowed.append(_has_error(wanted.error))
    if wanted.worker is not None:
        narrowed.append(_is_of_worker(wanted.worker))
    if wanted.since is not None:
        narrowed.append(job.c.created_at >= wanted.since)
    if wanted.until is not None:
        narrowed.append(job.c.created_at < wanted.until)
    if wanted.state is not None:
        narrowed += jobs.CONDITIONS[wanted.state]
    if wanted.text is not None:
        has_value = exists().where(tag.c.job_id == job.c.id, tag.c.value == tag_text(wanted.text))
        in_key = _in_prefix(wanted.text)[0] & _in_prefix(wanted.text)[1]
        narrowed.append(or_(in_key, has_value, _is_of_user(wanted.text), _has_error(wanted.text)))
    return narrowed


def _in_prefix(prefix: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Return the range of keys. LIKE would not use the index on every database."""
    return job.c.key >= prefix, job.c.key < prefix + LAST_CHARACTER


def _is_of_user(user: str) -> ColumnElement[bool]:
    return or_(is_key_of(job, user), _has_tag((USER,), user))


def _has_tag(names: Sequence[str], value: str) -> ColumnElement[bool]:
    is_tag = (tag.c.name.in_(names), tag.c.value == tag_text(value))
    return exists().where(*is_tag, tag.c.job_id == job.c.id)


def _has_error(error: str) -> ColumnElement[bool]:
    return job.c.error.icontains(error, autoescape=True) | (job.c.signature == error)


def _is_of_worker(worker: str) -> ColumnElement[bool]:
    has_failed = exists().where(attempt.c.job_id == job.c.id, attempt.c.worker == worker)
    return or_((job.c.worker == worker) & (job.c.state == sql_int(LEASED)), has_failed)


# --- Candidates, each through an index


class Candidates(NamedTuple):
    """Ids of jobs that may match, in the order of the result."""

    ids: list[int]
    is_cut: bool = False


def find_candidates(
    connection: Connection, wanted: JobFilter, /, *, most: int = MAX_CANDIDATES
) -> Candidates:
    """Return the ids of jobs that may match, by the most selective field of the filter."""
    if wanted.ids:
        return Candidates(sorted(set(wanted.ids), reverse=True))
    sources: tuple[tuple[object, Callable[[Any], Iterator[Select[Any] | None]]], ...] = (
        (wanted.key, lambda key: _by_key(connection, wanted.kind, key)),
        (wanted.tag_pairs, lambda pairs: _by_tag((stored_name(pairs[0][0]),), pairs[0][1])),
        (wanted.correlation_id, lambda value: _by_tag((CORRELATION, USER), value)),
        (wanted.user, lambda user: _by_user(connection, wanted.kind, user)),
        (wanted.worker, _by_worker),
        (wanted.text, lambda text: _by_text(connection, wanted.kind, text)),
        (wanted.error, lambda error: _by_error(connection, wanted.kind, error)),
    )
    for value, queries in sources:
        if value:
            candidates = _merge(connection, queries(value), most)
            if candidates.is_cut and value is wanted.user:
                break  # in the order of their keys: a frequent user is found in the newest jobs
            return candidates
    if wanted.kind is not None and _has_few_jobs(connection, wanted.kind):
        return _merge(connection, _of_kind(wanted.kind), most)
    if wanted.state is not None and wanted.state not in ("queued", "done"):
        lines = jobs.in_display_state(connection, wanted.state, kind=wanted.kind, limit=most)
        return Candidates([each.id for each in lines], len(lines) == most)
    if wanted.key_prefix:
        return _merge(connection, _by_prefix(connection, wanted.kind, wanted.key_prefix), most)
    return _newest(connection, wanted, most)


def _merge(connection: Connection, queries: Iterator[Select[Any] | None], most: int) -> Candidates:
    """Return the ids of all queries, newest first. `None` says that not all were found."""
    ids: set[int] = set()
    is_cut = False
    for query in queries:
        if query is None:
            is_cut = True
            continue
        rows = connection.execute(query.limit(sql_int(most))).scalars().all()
        ids.update(id_ for id_ in rows if id_ is not None)
        is_cut = is_cut or len(rows) == most
        if len(ids) >= most:
            is_cut = True
            break
    return Candidates(sorted(ids, reverse=True)[:most], is_cut)


def _kinds(connection: Connection, kind: str | None) -> list[str]:
    return list(counts(connection)) if kind is None else [kind]


def _has_few_jobs(connection: Connection, kind: str) -> bool:
    """Return whether all jobs of a type can be candidates. Then its index is enough."""
    tally = counts(connection).get(kind)
    return tally is None or tally.submitted <= MAX_CANDIDATES


def _by_key(connection: Connection, kind: str | None, key: str) -> Iterator[Select[Any]]:
    kinds = _kinds(connection, kind)
    yield select(job.c.id).where(job.c.kind.in_(kinds), job.c.key == key, CURRENT)


def _by_prefix(connection: Connection, kind: str | None, prefix: str) -> Iterator[Select[Any]]:
    for each in _kinds(connection, kind):
        in_range = (job.c.kind == each, *_in_prefix(prefix))
        yield select(job.c.id).where(*in_range, CURRENT).order_by(job.c.key)


def _of_kind(kind: str) -> Iterator[Select[Any]]:
    # By the order of the index: the newest few would be searched through the primary key.
    yield select(job.c.id).where(job.c.kind == kind, CURRENT).order_by(job.c.key)


def _by_tag(names: Sequence[str], value: str) -> Iterator[Select[Any]]:
    for name in names:
        is_tag = (tag.c.name == name, tag.c.value == tag_text(value))
        yield select(tag.c.job_id).where(*is_tag).order_by(tag.c.job_id.desc())


# An index by user would cost each job three entries. Keys begin with one of few domains, so the
# index of keys is searched once for each.
_FIRST_KEY = PerKind(
    lambda _sqlite: (
        """look.kind, (SELECT key FROM redrive_job
WHERE kind = look.kind AND key >= :start AND current ORDER BY key LIMIT 1) AS key"""
    )
)


def _by_user(connection: Connection, kind: str | None, user: str) -> Iterator[Select[Any] | None]:
    for number, (domain, kinds) in enumerate(_domains(connection, _kinds(connection, kind))):
        if number == MAX_DOMAINS:
            yield None
            break
        in_range = _in_prefix(f"{domain}:{escape(user)}:")
        keys = select(job.c.id, job.c.kind, job.c.key).where(job.c.kind.in_(kinds), *in_range)
        first_keys = keys.where(CURRENT).order_by(job.c.kind, job.c.key)
        few = first_keys.limit(sql_int(MAX_CANDIDATES)).subquery()
        yield select(few.c.id).where(is_key_of(few, user))
    yield from _by_tag((USER,), user)


def _domains(connection: Connection, kinds: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the first parts of keys, each with the job types that have such keys."""
    keys: dict[str, str] = {}
    other_keys: Counter[str] = Counter()
    start, passed = "", kinds
    while True:
        rows = _FIRST_KEY.execute(connection, passed, start=start) if passed else ()
        keys |= {kind: key for kind, key in rows if key is not None}
        if not keys:
            return
        first_key = min(keys.values())
        domain, colon, _ = first_key.partition(":")
        start = f"{domain};" if colon else f"{first_key}\x01"
        passed = [kind for kind, key in keys.items() if key < start]
        if colon:
            yield domain, passed
        else:
            other_keys.update(passed)
        for kind in passed:
            del keys[kind]
        passed = [kind for kind in passed if other_keys[kind] < MAX_OTHER_KEYS]


def _by_worker(worker: str) -> Iterator[Select[Any]]:
    yield select(job.c.id).where(job.c.state == sql_int(LEASED), job.c.worker == worker)
    failed = select(attempt.c.job_id).where(attempt.c.worker == worker)
    yield failed.order_by(attempt.c.ended_at.desc())


def _by_error(connection: Connection, kind: str | None, error: str) -> Iterator[Select[Any]]:
    """Look up the error groups that the text may be of, then their jobs and dead letters."""
    for group in _error_groups(connection, kind, error):
        of_group = (job.c.kind == group[0], job.c.signature == group[1], FAILED_JOBS)
        yield select(job.c.id).where(*of_group).order_by(job.c.id.desc())
        # Jobs that died before they had a signature are found by their dead letters.
        died = (dead.c.kind == group[0], dead.c.status == sql_text("pending"))
        same = dead.c.signature == group[1] if group[1] else dead.c.signature.is_(None)
        yield select(dead.c.job_id).where(*died, same).order_by(dead.c.id.desc())


def _error_groups(connection: Connection, kind: str | None, error: str) -> list[tuple[str, str]]:
    """Return the groups whose signature or sample may contain the text.

    A signature has no numbers, ids and quoted words, so the text is reduced as an error is.
    """
    reduced = signature_of("", error).removeprefix(":").strip()
    groups: dict[tuple[str, str], None] = {}
    for table, last in ((failure_delta, failure_delta.c.at), (failure, failure.c.last_at)):
        texts = [table.c.signature.icontains(error, autoescape=True)]
        texts.append(table.c.error.icontains(error, autoescape=True))
        if reduced.strip("#… "):
            texts.append(table.c.signature.icontains(reduced, autoescape=True))
        query = select(table.c.kind, table.c.signature).where(or_(*texts)).order_by(last.desc())
        if kind is not None:
            query = query.where(table.c.kind == kind)
        groups |= {(row[0], row[1]): None for row in connection.execute(query.limit(MAX_GROUPS))}
    return list(groups)[:MAX_GROUPS]


def _by_text(connection: Connection, kind: str | None, text: str) -> Iterator[Select[Any] | None]:
    """Look a text up in all places, the most likely ones first."""
    yield from _by_key(connection, kind, text)
    for name in _tag_names(connection):
        yield from _by_tag((name,), text)
    yield from _by_user(connection, kind, text)
    yield from _by_prefix(connection, kind, text)
    yield from _by_error(connection, kind, text)


def _tag_names(connection: Connection) -> Iterator[str]:
    """Yield the names of tags, by one index lookup for each: they are few, and the tags many."""
    name = ""
    for _name in range(MAX_TAG_NAMES):
        next_name = connection.scalar(select(func.min(tag.c.name)).where(tag.c.name > name))
        if next_name is None:
            return
        yield next_name
        name = next_name


def _newest(connection: Connection, wanted: JobFilter, most: int) -> Candidates:
    """Search the newest ids, within the times of the filter, in windows."""
    first, last = _id_range(connection, wanted.since, wanted.until)
    narrowed = conditions(wanted)
    ids: list[int] = []
    for _window in range(MAX_WINDOWS):
        if last < first:
            return Candidates(ids)
        start = max(first, last - WINDOW_IDS + 1)
        in_window = (job.c.id >= start, job.c.id <= last)
        query = select(job.c.id).where(*in_window, *narrowed).order_by(job.c.id.desc())
        ids += connection.execute(query.limit(sql_int(most - len(ids)))).scalars()
        if len(ids) >= most:
            return Candidates(ids, True)
        last = start - 1
    return Candidates(ids, last >= first)


def _id_range(
    connection: Connection, since: datetime | None, until: datetime | None
) -> tuple[int, int]:
    """Return the first and the last id that may have been submitted in a time."""
    # Not in one statement: SQLite would read all ids.
    lowest = connection.scalar(select(func.min(job.c.id)))
    highest = connection.scalar(select(func.max(job.c.id)))
    if lowest is None or highest is None:
        return 1, 0
    first = lowest if since is None else _first_since(connection, since - MAX_SKEW, lowest, highest)
    if until is not None:
        highest = _first_since(connection, until + MAX_SKEW, lowest, highest)
    return first, highest


def _first_since(connection: Connection, time: datetime, lowest: int, highest: int) -> int:
    """Return about the first id that was submitted at a time or later, by bisection."""
    while lowest < highest:
        middle = (lowest + highest) // 2
        at_or_after = select(job.c.id, job.c.created_at).where(job.c.id >= middle)
        id_, created_at = connection.execute(at_or_after.order_by(job.c.id).limit(sql_int(1))).one()
        if created_at < time:
            lowest = id_ + 1
        else:
            highest = middle
    return lowest
