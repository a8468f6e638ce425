"""Jobs, events, batches and idempotency records: list, show and change them."""

from __future__ import annotations

import json
from typing import get_args

from fastapi import APIRouter, Response

from ...core.text import pluralise
from ...errors import NotAllowed
from ...ops.dead_letters.model import Revealed
from ...ops.events import event_of
from ...ops.search import WORDS
from ..queries import (
    BatchItemQuery,
    EventQuery,
    JobQuery,
    JobState,
    KeyQuery,
    KeyStatus,
    SearchQuery,
)
from ..render.errors import require
from ..render.fragments import PLACEHOLDER, command
from ..view import CurrentView, RowId

router = APIRouter()


@router.get("/events")
def events(view: CurrentView) -> Response:
    """Show events, newest first."""
    query = view.read_query(EventQuery)
    return view.render(
        "events.html",
        events=view.operator.events.find(
            source=query.source, of_type=query.type, limit=query.limit
        ),
        query=query,
        now=view.operator.now(),
    )


@router.get("/events/show")
def event(view: CurrentView) -> Response:
    """Show one event. The id is in the query, because it may contain any character."""
    return _render_event(view, view.query.get("id", ""), view.text("source"))


@router.post("/events/replay")
def replay(view: CurrentView) -> Response:
    """Replay an event to its handlers."""
    event_id, source = view.form.get("id", ""), view.form.get("source") or None
    handlers = view.form.get("handlers", "").splitlines()
    try:
        because = view.reason()
        outcomes = view.operator.events.replay(
            event_id, because=because, source=source, handlers=handlers
        )
    except ValueError as error:
        return _render_event(view, event_id, source, str(error), 422)
    results = "; ".join(f"{handler}: {outcome}" for handler, outcome in outcomes.items())
    flash = results or "The event has no handlers."
    return view.redirect("/events/show", id=event_id, source=source, flash=flash)


def _render_event(
    view: CurrentView,
    event_id: str,
    source: str | None,
    error: str | None = None,
    status: int = 200,
) -> Response:
    missing = f"event {event_id!r} does not exist" + (f" in source {source}" if source else "")
    report = require(view.operator.events.get(event_id, source=source), missing)
    command_line = command(
        "events", "replay", event_id=event_id, source=report.event.source, because=PLACEHOLDER
    )
    return view.render(
        "event.html",
        status=status,
        report=report,
        event=report.event,
        handlers=report.handlers,
        now=report.now,
        error=error,
        command_line=command_line,
        revealed=None,
        reveal_command=None,
    )


@router.get("/search")
def search(view: CurrentView) -> Response:
    """Find jobs and dead letters by words."""
    query = view.read_query(SearchQuery)
    result, error = None, None
    if query.q is not None:
        try:
            result = view.operator.jobs.search(query.q, limit=query.limit)
        except ValueError as problem:
            error = str(problem)
    return view.render(
        "search.html",
        status=200 if error is None else 422,
        result=result,
        query=query,
        error=error,
        words=WORDS,
        now=view.operator.now(),
    )


@router.get("/jobs")
def jobs(view: CurrentView) -> Response:
    """Show jobs.

    Queued jobs are sorted by due time, and ended jobs latest first. Without a state, the newest
    jobs are first.
    """
    query = view.read_query(JobQuery)
    return view.render(
        "jobs.html",
        jobs=view.operator.jobs.find(query.to_filter(view.operator.jobs.parse), limit=query.limit),
        query=query,
        states=("", *get_args(JobState)),
        kinds=list(view.operator.jobs.counts()),
        tenants=None if query.kind is None else view.operator.jobs.tenants(query.kind, limit=20),
        now=view.operator.now(),
    )


@router.get("/jobs/{number}")
def job(view: CurrentView, number: RowId) -> Response:
    """Show one job."""
    return _render_job(view, number)


@router.post("/jobs/{number}/reveal")
def reveal(view: CurrentView, number: RowId) -> Response:
    """Show the payload with secrets once, and record that in the audit log."""
    because = view.form.get("because", "")
    return _render_job(view, number, view.operator.jobs.reveal(number, because=because))


@router.post("/jobs/{number}/signal")
def signal(view: CurrentView, number: RowId) -> Response:
    """Send a signal to a job."""
    text = view.form.get("payload", "").strip()
    try:
        payload = json.loads(text) if text else None
    except ValueError:
        raise NotAllowed(
            f"signal: invalid payload {text[:60]!r}: use JSON; nothing was changed"
        ) from None
    name = view.form.get("name", "").strip()
    sent = view.operator.jobs.signal(number, name, payload, because=view.reason())
    flash = f"Signal {name!r} sent." if sent.stored else f"Signal {name!r} was sent before."
    return view.redirect(f"/jobs/{number}", flash=flash)


def _render_job(view: CurrentView, number: int, revealed: Revealed | None = None) -> Response:
    missing = f"job {number} does not exist; old finished jobs are deleted"
    report = require(view.operator.jobs.get(number), missing)
    event = event_of(report.job.key)
    return view.render(
        "job.html",
        report=report,
        job=report.job,
        now=report.now,
        revealed=revealed,
        reveal_command=command("jobs", "show", number, raw=True, because=PLACEHOLDER),
        event_report=None if event is None else view.operator.events.get(event[1], source=event[0]),
    )


@router.get("/batches")
def batches(view: CurrentView) -> Response:
    """Show the items of every batch by state, and the given-up items."""
    query = view.read_query(BatchItemQuery, limit=100, max_limit=200)
    return view.render(
        "batches.html",
        batches=view.operator.batches.find(),
        items=view.operator.batches.given_up(**dict(query)),
        query=query,
        now=view.operator.now(),
    )


@router.get("/batches/reopen")
def plan(view: CurrentView) -> Response:
    """Preview which items would be reopened. Changes nothing."""
    query = BatchItemQuery.read(view.query)
    batch = _require_batch(query.batch)
    limit = view.number("limit", 1000, maximum=10_000)
    plan = view.operator.batches.plan_reopen(
        batch, reason=query.reason, since=query.since, limit=limit
    )
    return view.render("reopen.html", plan=plan, batch=batch)


@router.post("/batches/reopen")
def reopen(view: CurrentView) -> Response:
    """Reopen the previewed items. The form names them, so that newer items are not affected."""
    batch = _require_batch(view.form.get("batch"))
    items = [item for item in view.form.get("items", "").splitlines() if item]
    plan = view.operator.batches.plan_reopen(batch, items=items, limit=len(items) or 1)
    steps = view.operator.batches.reopen(plan, because=view.form.get("because", ""))
    count = sum(len(step.done) for step in steps)
    return view.redirect("/batches", batch=batch, flash=f"{pluralise(count, 'item')} reopened.")


def _require_batch(batch: str | None) -> str:
    if not batch:
        raise ValueError("batch: missing; specify the name of a batch")
    return batch


@router.get("/keys")
def keys(view: CurrentView) -> Response:
    """Show idempotency records by domain, user and key. key= opens one."""
    key = view.text("key")
    if key is not None:
        return view.redirect("/keys/show", key=key)
    query = view.read_query(KeyQuery)
    arguments = query.arguments()
    return view.render(
        "keys.html",
        keys=view.operator.keys.find(**arguments),
        query=query,
        arguments=arguments,
        statuses=("", *get_args(KeyStatus)),
        now=view.operator.now(),
    )


@router.get("/keys/show")
def key(view: CurrentView) -> Response:
    """Show one idempotency record."""
    return _render_key(view, view.query.get("key", ""))


@router.post("/keys/release")
def release(view: CurrentView) -> Response:
    """Delete the stored result, so that the next caller runs the operation again."""
    name, force = view.form.get("key", ""), bool(view.form.get("force"))
    try:
        because = view.reason()
    except ValueError as error:
        return _render_key(view, name, str(error), 422)
    try:
        view.operator.keys.release(name, because=because, force=force)
    except NotAllowed as error:
        return _render_key(view, name, str(error), 409)
    flash = f"{name} released. The next caller runs the operation again."
    return view.redirect("/keys", flash=flash)


def _render_key(
    view: CurrentView, name: str, error: str | None = None, status: int = 200
) -> Response:
    report = require(view.operator.keys.get(name), f"idempotency record {name} does not exist")
    return view.render(
        "key.html", status=status, report=report, key=report.key, now=report.now, error=error
    )
