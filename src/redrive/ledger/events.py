"""Events on their way into the ledger, with the jobs of their handlers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from .model import Lease, Settlement
from .tags import id_tags

SOURCE = "redrive-source"
SOURCE_ID = "redrive-source-id"
"""Headers of a handler's job. A dead letter stores their values in its own columns."""


def read_origin(headers: str | None, /) -> tuple[str | None, str | None]:
    """Return the source of a message and its id there, from the stored headers of its job."""
    if not headers or SOURCE not in headers:
        return None, None
    values = json.loads(headers)
    return values.get(SOURCE), values.get(SOURCE_ID)


class HandlerJob(NamedTuple):
    """The job of one handler of an event."""

    kind: str
    key: str
    max_attempts: int | None


class IncomingEvent(NamedTuple):
    """An event to store."""

    source: str
    event_id: str
    type: str
    payload: bytes
    headers: str | None
    """JSON."""
    ids: str | None
    """Correlation ids of the handlers' jobs, JSON."""
    extra_ids: str | None
    """The correlation ids without the event's id, type and source, which have columns. JSON."""
    job_headers: str | None
    """Headers of the handlers' jobs, JSON."""
    source_id: str | None
    at: datetime | None
    handlers: int
    """Number of handlers of the event."""
    jobs: tuple[HandlerJob, ...]
    """The handlers' jobs that are stored."""
    job_context: tuple[Mapping[str, str], Mapping[str, str]]
    """Correlation ids and headers of the jobs before they were serialized, for `Lease`."""


EventJob: TypeAlias = tuple[IncomingEvent, HandlerJob]


def event_tags(event: IncomingEvent, /) -> set[tuple[str, str]]:
    """Return the tags of the jobs of an event: its correlation ids, without its own id.

    The key of a job has the id of its event, so most events need no tags.
    """
    if event.extra_ids is None:
        return set()
    ids = event.job_context[0]
    return set(id_tags({name: ids[name] for name in ids if name != "event_id"}))


class StartQuota(NamedTuple):
    """How many of the handlers' jobs the worker starts at once. These are stored as leased."""

    worker: str | None = None
    seconds: float = 0.0
    """Duration of the leases."""
    kinds: Mapping[str, int] = {}
    token: int = 0
    """Token of the leases, see `new_token`."""


NO_QUOTA = StartQuota()
"""All jobs are stored as ready."""


class StoreResult(NamedTuple):
    """Which events are new, the leases of the jobs that were started, and late settlements."""

    are_new: list[bool]
    leases: list[Lease]
    late: Sequence[Settlement] = ()
    cancelled: Sequence[Settlement] = ()
    """Settlements whose jobs are cancelled."""


def deduplicate(events: Sequence[IncomingEvent], /) -> list[IncomingEvent]:
    """Return the first of each event, sorted, so that concurrent writers cannot deadlock."""
    first = {(event.source, event.event_id): event for event in reversed(events)}
    return [first[name] for name in sorted(first)]


def new_flags(events: Sequence[IncomingEvent], created: set[tuple[str, str]], /) -> list[bool]:
    """Return for each event whether it is new. Of duplicates, only the first is.

    Args:
        events: The events, with duplicates.
        created: Source and id of the events that were stored. Emptied by the call.
    """
    flags = []
    for event in events:
        name = (event.source, event.event_id)
        flags.append(name in created)
        created.discard(name)
    return flags


def started_leases(
    jobs: Iterable[EventJob], job_ids: Iterable[int], due: int | datetime, token: int, /
) -> list[Lease]:
    """Return the leases of jobs that were started when they were stored."""
    rows = [
        (
            *(job_id, 1, job.kind, job.key, 1, 0, job.max_attempts, 1, None, due, None),
            *(*event.job_context, event.payload, due, None, token),
        )
        for (event, job), job_id in zip(jobs, job_ids, strict=True)
    ]
    return list(map(Lease._make, rows))
