"""Monitoring: overview, failures, log records, workers, schedules and retry layers."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Response

from ...ops.health.overview_rules import OverviewFinding
from ..queries import ActivityQuery, FailureQuery, JournalQuery, RecordType
from ..render.charts import (
    activity_charts,
    cause_rows,
    duration_charts,
    point_rows,
    throughput_chart,
)
from ..render.errors import require
from ..view import CurrentView

router = APIRouter()
MAX_JOB_TYPES, MAX_DATASETS, MAX_WORKERS = 100, 20, 100
MAX_BUSY_TYPES = 40
RANGES = {"1h": "1 hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}
"""Ranges of the charts, by the value of since= in the URL."""
DEFAULT_RANGE = "24h"
TOTALS = (
    *("first_attempts", "running", "retry_wait", "suspended", "dead", "blocked", "cancelled"),
)


@router.get("/")
def overview(view: CurrentView) -> Response:
    """Show problems, counts by job type, sources and datasets."""
    report = view.operator.overview.summary(busy=False)  # fewer queries
    totals = {name: sum(getattr(kind, name) for kind in report.kinds) for name in TOTALS}
    totals["failed"] = sum(kind.failed.hour for kind in report.kinds)
    day = view.operator.overview.activity(with_details=False, now=report.now)
    return view.render(
        "overview.html",
        report=report,
        totals=totals,
        has_more_retries=any(kind.retry_more for kind in report.kinds),
        charts=[] if day.is_empty else [throughput_chart(day), *duration_charts(day)],
        kinds=report.kinds[:MAX_JOB_TYPES],
        datasets=[
            dataset
            for dataset in report.datasets
            if dataset.wrong or dataset.queued or dataset.running
        ][:MAX_DATASETS],
        problems=[(problem, _url_of(view, problem)) for problem in report.findings],
    )


def _url_of(view: CurrentView, problem: OverviewFinding) -> str:
    """Return the URL of the page that shows the problem in detail."""
    if problem.name in ("no workers", "dangling leases"):
        return view.url("/workers")
    if problem.name in ("paused by hand", "parked"):
        return view.url("/controls")
    if problem.name == "source paused":
        return view.url("/partitions")
    if problem.name == "items given up":
        return view.url("/batches", since="1h")
    if problem.name == "sweep halted":
        return view.url("/sweeps")
    if problem.name in ("late", "unregistered"):
        return view.url("/jobs", kind=problem.kind, state="queued")
    return view.url("/failures", kind=problem.kind)


@router.get("/activity")
def activity(view: CurrentView) -> Response:
    """Show throughput, queue wait, run time and failures by cause. since= and until= are the range.

    An invalid range shows the last 24 hours.
    """
    query, view.query_error = ActivityQuery.read_valid(view.query)
    operations = view.operator.overview
    try:
        report = operations.activity(**dict(query))
    except ValueError as error:
        view.query_error = str(error)
        report = operations.activity(kind=query.kind)
    charts = activity_charts(report, partial(_cause_url, view))
    known = list(view.operator.jobs.counts())
    names = {*known, *(line.kind for line in report.kinds)} | ({query.kind} - {None})
    since = view.text("since") or DEFAULT_RANGE
    return view.render(
        "activity.html",
        report=report,
        query=query,
        charts=charts,
        point_rows=point_rows(report),
        cause_rows=cause_rows(charts[-1]),
        ranges=RANGES,
        range=since if since in RANGES and query.until is None else None,
        kinds=sorted(names),
        known=bool(known),
        max_kinds=MAX_BUSY_TYPES,
    )


def _cause_url(view: CurrentView, kind: str, signature: str) -> str:
    return f"{view.url('/failures')}?{urlencode({'kind': kind, 'signature': signature})}"


@router.get("/failures")
def failures(view: CurrentView) -> Response:
    """Show error groups, or the one of kind= and signature=."""
    query = view.read_query(FailureQuery, limit=30, max_limit=200)
    if query.kind is not None and "signature" in view.query:
        return _failure(view, query.kind, view.query["signature"])
    common: dict[str, Any] = {"since": query.since, "until": query.until, "limit": query.limit}
    return view.render(
        "failures.html",
        failures=view.operator.overview.failures(kind=query.kind, **common),
        rejections=view.operator.overview.rejections(dataset=query.kind, **common),
        query=query,
        now=view.operator.now(),
    )


def _failure(view: CurrentView, kind: str, signature: str) -> Response:
    missing = f"{kind}: no stored failure matches {signature!r}; groups are kept for 31 days"
    report = require(view.operator.overview.failure(kind, signature), missing)
    return view.render("failure.html", report=report, failure=report.failure, now=report.now)


@router.get("/journal")
def journal(view: CurrentView) -> Response:
    """Show log records, newest first."""
    query = view.read_query(JournalQuery, limit=100, max_limit=200)
    events = () if query.event is None else (query.event,)
    records = view.operator.overview.journal(
        kind=query.kind, events=events, since=query.since, limit=query.limit
    )
    return view.render(
        "journal.html",
        records=records,
        record_types=("", *get_args(RecordType)),
        query=query,
        now=view.operator.now(),
    )


@router.get("/workers")
def workers(view: CurrentView) -> Response:
    """Show workers with a recent heartbeat. all= adds the stopped ones."""
    report, shows_stopped = view.operator.workers.find(), view.text("all") is not None
    running = [worker for worker in report.workers if worker.presence != "ended"]
    return view.render(
        "workers.html",
        report=report,
        workers=(report.workers if shows_stopped else running)[:MAX_WORKERS],
        stopped=len(report.workers) - len(running),
        shows_stopped=shows_stopped,
    )


@router.get("/schedules")
def schedules(view: CurrentView) -> Response:
    """Show all schedules."""
    entries = view.operator.overview.schedules()
    has_datasets = any(entry.of == "dataset" for entry in entries)
    return view.render(
        "schedules.html",
        schedules=entries,
        missing_worker=view.operator.workers.missing() if has_datasets else None,
        now=view.operator.now(),
    )


@router.get("/layers")
def layers(view: CurrentView) -> Response:
    """Show the retry layers of every job type, with attempts and worst-case durations."""
    return view.render("layers.html", stacks=view.operator.retry_stacks())
