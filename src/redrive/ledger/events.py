"""Origin: where a message came from, in headers of its jobs, so that a dead letter says so in columns of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from .record import Lease, Settlement

SOURCE = "redrive-source"
SOURCE_ID = "redrive-source-id"


def origin(headers: str | None, /) -> tuple[str | None, str | None]:
    """The source, and the id there, of a job with these stored headers."""
    if not headers or SOURCE not in headers:
        return None, None
    found = json.loads(headers)
    return found.get(SOURCE), found.get(SOURCE_ID)


class Part(NamedTuple):
    """What one handler has to do with an event."""

    kind: str
    key: str
    max_attempts: int | None


class Arriving(NamedTuple):
    """An event, as it is stored."""

    source: str
    event_id: str
    type: str
    payload: bytes
    headers: str | None
    """JSON."""
    ids: str | None
    """Of its handlers' jobs, JSON."""
    more: str | None
    """Those of them that are not its own: its id, type and source have columns."""
    carried: str | None
    """The headers of its handlers' jobs, JSON."""
    source_id: str | None
    at: datetime | None
    handlers: int
    """How many have it to handle."""
    parts: tuple[Part, ...]
    """What is to be written for them."""
    opened: tuple[Mapping[str, str], Mapping[str, str]]
    """Ids and headers of the jobs as they were before: who begins one at once need not read them."""


Task: TypeAlias = tuple[Arriving, Part]
"""What one handler has to do with one event: a job."""


class Grant(NamedTuple):
    """Who writes events down, and how many of each kind of their jobs it begins at once: these are never ready, but leased."""

    worker: str | None = None
    seconds: float = 0.0
    """How long it holds them."""
    kinds: Mapping[str, int] = {}
    token: int = 0
    """Of their leases, see `new_token`."""


NOTHING = Grant()
"""All jobs are ready, for whoever claims them."""


class Received(NamedTuple):
    """What became of events: which were new, which of their jobs are begun; and settlements that came too late."""

    fresh: list[bool]
    leases: list[Lease]
    late: Sequence[Settlement] = ()


def distinct(events: Sequence[Arriving], /) -> list[Arriving]:
    """Each once, the first of those that are the same; in one order for everybody, so that two who store the same never wait
    for each other."""
    found = {(one.source, one.event_id): one for one in reversed(events)}
    return [found[name] for name in sorted(found)]


def marked(events: Sequence[Arriving], created: set[tuple[str, str]], /) -> list[bool]:
    """Which are new; of those that are the same the first one is."""
    fresh = []
    for one in events:
        name = (one.source, one.event_id)
        fresh.append(name in created)
        created.discard(name)
    return fresh


def begun(tasks: Iterable[Task], job_ids: Iterable[int], due: int | datetime, token: int, /) -> list[Lease]:
    """The leases of jobs that were begun when they were written."""
    rows = [
        (job_id, 1, part.kind, part.key, 1, 0, part.max_attempts, 1, None, due, None, *event.opened, event.payload, due, token)
        for (event, part), job_id in zip(tasks, job_ids, strict=True)
    ]
    return list(map(Lease._make, rows))
