"""Jobs, events, batches and idempotency records: list, show and change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from ...ops.batches import Batch, GivenUp
from ...ops.dead_letters.model import Revealed
from ...ops.events import EventReport, ReceivedEvent
from ...ops.jobs import JobLine, JobReport, SearchResult, TenantReport
from ...ops.keys import HeldKey, KeyReport
from ...ops.timeline import SignalResult
from ..queries import BatchItemQuery, EventQuery, JobQuery, KeyQuery, SearchQuery, Since, Text
from ..render.errors import require
from ..view import CurrentView, RowId
from .schema import Because, Maximum, Words, check_maximum, problems

batches_router = APIRouter(prefix="/api/batches", tags=["batches"], responses=problems())


class ReopenBody(Because):
    """The items of a batch to reopen."""

    batch: Words
    items: Annotated[list[Words], Field(max_length=10_000)] = Field(default_factory=list)
    reason: Text = None
    since: Since = None
    limit: Annotated[int, Field(ge=1, le=100_000)] = 100
    max: Maximum | None = None
    """Change nothing if more items match. Required unless `items` names them."""


@dataclass(frozen=True, slots=True)
class ReopenResult:
    """Reopened items, and skipped items with the reason."""

    opened: tuple[str, ...]
    skipped: dict[str, str]


@batches_router.get("")
def batches(view: CurrentView) -> list[Batch]:
    """Count the items of every batch by state."""
    return view.operator.batches.find()


@batches_router.get("/giveups", responses=problems(422))
def giveups(view: CurrentView, query: Annotated[BatchItemQuery, Query()]) -> list[GivenUp]:
    """List given-up items, newest first."""
    return view.operator.batches.given_up(**dict(query))


@batches_router.post("/reopen", responses=problems(409, 422))
def reopen(view: CurrentView, body: ReopenBody) -> ReopenResult:
    """Reopen given-up items, so that they are sent again."""
    plan = view.operator.batches.plan_reopen(
        body.batch, items=body.items, reason=body.reason, since=body.since, limit=body.limit
    )
    check_maximum(plan.matched, body.max, named=body.items, limit=body.limit)
    opened: list[str] = []
    skipped = dict(plan.skipped)
    for step in view.operator.batches.reopen(plan, because=body.because):
        opened += step.done
        skipped |= step.skipped
    return ReopenResult(tuple(opened), skipped)


search_router = APIRouter(prefix="/api/search", tags=["jobs"], responses=problems())


@search_router.get("", responses=problems(422))
def search(view: CurrentView, query: Annotated[SearchQuery, Query()]) -> SearchResult:
    """Find jobs and dead letters by words, newest first."""
    return view.operator.jobs.search(query.q or "", limit=query.limit)


jobs_router = APIRouter(prefix="/api/jobs", tags=["jobs"], responses=problems())


@jobs_router.get("", responses=problems(422))
def jobs(view: CurrentView, query: Annotated[JobQuery, Query()]) -> list[JobLine]:
    """List jobs.

    Queued jobs are sorted by due time, and ended jobs latest first. Without a state, the newest
    jobs are first.
    """
    return view.operator.jobs.find(query.to_filter(view.operator.jobs.parse), limit=query.limit)


@jobs_router.get("/tenants", responses=problems(422))
def tenants(
    view: CurrentView,
    kind: Annotated[Words, Query()],
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> TenantReport:
    """Count queued and running jobs of each tenant of a job type, most queued first."""
    return view.operator.jobs.tenants(kind, limit=limit)


@jobs_router.get("/{number}", responses=problems(404, 422))
def job(view: CurrentView, number: RowId) -> JobReport:
    """Show one job, with secrets masked."""
    return require(view.operator.jobs.get(number), f"job {number} does not exist")


@jobs_router.post("/{number}/reveal", responses=problems(409, 422))
def reveal(view: CurrentView, number: RowId, body: Because) -> Revealed:
    """Return the payload with secrets, and record that in the audit log."""
    return view.operator.jobs.reveal(number, because=body.because)


class SignalBody(Because):
    """The signal to send."""

    name: Words
    payload: Any = None
    """Value that the job gets from `wait_for`."""


@jobs_router.post("/{number}/signal", responses=problems(409, 422))
def signal(view: CurrentView, number: RowId, body: SignalBody) -> SignalResult:
    """Send a signal to a job that waits, or will wait, for it."""
    return view.operator.jobs.signal(number, body.name, body.payload, because=body.because)


events_router = APIRouter(prefix="/api/events", tags=["events"], responses=problems())


class EventReplayBody(Because):
    """The event and the handlers to replay. No handlers: all handlers of the event."""

    id: Words
    source: Words | None = None
    handlers: Annotated[list[Words], Field(max_length=100)] = Field(default_factory=list)


@events_router.get("", responses=problems(422))
def events(view: CurrentView, query: Annotated[EventQuery, Query()]) -> list[ReceivedEvent]:
    """List events, newest first."""
    return view.operator.events.find(source=query.source, of_type=query.type, limit=query.limit)


@events_router.get("/one", responses=problems(404, 409, 422))
def event(
    view: CurrentView,
    id: Annotated[Words, Query()],  # noqa: A002  # the name in the URL
    source: Annotated[Text, Query()] = None,
) -> EventReport:
    """Show one event with the results of its handlers, and with secrets masked."""
    return require(view.operator.events.get(id, source=source), f"event {id!r} does not exist")


@events_router.post("/replay", responses=problems(409, 422))
def replay(view: CurrentView, body: EventReplayBody) -> dict[str, str]:
    """Replay an event. Returns the outcome for each handler."""
    return view.operator.events.replay(
        body.id, because=body.because, source=body.source, handlers=body.handlers
    )


keys_router = APIRouter(prefix="/api/keys", tags=["idempotency records"], responses=problems())


class ReleaseBody(Because):
    """The key to release."""

    key: Words
    force: bool = False
    """Release the key also while an operation is in progress."""


@keys_router.get("", responses=problems(422))
def keys(view: CurrentView, query: Annotated[KeyQuery, Query()]) -> list[HeldKey]:
    """List idempotency records by domain, user and key."""
    return view.operator.keys.find(**query.arguments())


@keys_router.get("/one", responses=problems(404, 422))
def key(view: CurrentView, key: Annotated[Words, Query()]) -> KeyReport:
    """Show one idempotency record, with secrets masked."""
    return require(view.operator.keys.get(key), f"idempotency record {key!r} does not exist")


@keys_router.post("/release", responses=problems(409, 422))
def release(view: CurrentView, body: ReleaseBody) -> HeldKey:
    """Delete the stored result, so that the next caller runs the operation again.

    Returns the deleted record.
    """
    return view.operator.keys.release(body.key, because=body.because, force=body.force)
