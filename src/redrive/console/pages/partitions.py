"""Partitions: the heat map, the partitions of a day, and plans to extract them again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from fastapi import APIRouter, Response

from ...ops.partitions.calendar import Calendar
from ...ops.partitions.datasets import label
from ...ops.partitions.selection import (
    MARKED,
    SKIP_NAMES,
    STANDINGS,
    PartitionFilter,
    select_partitions,
)
from ...ops.plans.plan import Plan
from ..queries import CalendarQuery, CustomerQuery, PartitionQuery
from ..render.fragments import PLACEHOLDER, command
from ..render.heat_map import (
    LANE_CSS,
    STATUS_CSS,
    STATUS_NAMES,
    DayRange,
    customer_rows,
    dataset_rows,
    days_of,
    draw_cells,
    select_days,
)
from ..view import CurrentView, View
from .sweeps import confirm_plan

router = APIRouter()
MAX_CELLS = 6_000
"""Maximum of days times datasets on one page."""
MAX_BACKFILLS = 5
PARTITIONS_PER_PAGE = 50
PLANNED_ACTS = ("retry", "reprocess", "revalidate")
STEERING_ACTS = {
    "pause": ("Pause", "paused"),
    "unpause": ("Unpause", "no longer paused"),
    "mark_terminal": ("Give up", "given up"),
    "clear_terminal": ("Allow retries", "allowed to retry"),
}
"""Actions on one partition, with their label and their result."""


@router.get("/partitions")
def partitions(view: CurrentView) -> Response:
    """Show the heat map. from= and to= select days."""
    query, view.query_error = CalendarQuery.read_valid(view.query)
    operations = view.operator.partitions
    calendar = operations.calendar(query.since, query.until, source=query.source, query=query.query)
    selection = _read_day_range(view, calendar)
    rows, days = dataset_rows(calendar, selection), days_of(calendar)
    max_rows = max(1, MAX_CELLS // len(days))
    sweeps = view.operator.backfills.find(limit=20, acts=("backfill", *PLANNED_ACTS))
    open_sweeps = [each for each in sweeps if each.state in ("running", "paused", "halted")]
    reports = [view.operator.backfills.progress(sweep.id) for sweep in open_sweeps[:MAX_BACKFILLS]]
    is_running = any(sweep.state == "running" for sweep in open_sweeps)
    paused = [source for source in view.operator.sources.find() if source.paused]
    return view.render(
        "partitions.html",
        calendar=calendar,
        rows=rows[:max_rows],
        hidden_rows=max(0, len(rows) - max_rows),
        days=days,
        draw_cells=draw_cells,
        status_css=STATUS_CSS,
        status_names=STATUS_NAMES,
        lane_css=LANE_CSS,
        selection=selection,
        acts=PLANNED_ACTS,
        missing_worker=view.operator.workers.missing() if is_running else None,
        paused_sources=paused,
        other_sources=sorted({row.source for row in rows} - {each.source for each in paused}),
        backfills=[report for report in reports if report is not None],
        now=view.operator.now(),
    )


@router.get("/partitions/customers")
def customers(view: CurrentView) -> Response:
    """Show the customers of one dataset by day."""
    query, view.query_error = CustomerQuery.read_valid(view.query)
    if query.source is None or query.query is None:
        return view.redirect("/partitions")
    days = (query.since, query.until)
    operations, after = view.operator.partitions, query.after or ""
    try:
        grid = operations.customers(query.source, query.query, *days, after=after)
    except ValueError as error:
        view.query_error = str(error)
        grid = operations.customers(query.source, query.query, after=after)
    return view.render(
        "customers.html",
        grid=grid,
        query=query,
        days=days_of(grid),
        rows=customer_rows(grid),
        status_css=STATUS_CSS,
        status_names=STATUS_NAMES,
    )


@router.get("/partitions/day")
def day(view: CurrentView) -> Response:
    """Show the partitions of one or several days. key= opens one with its attempts."""
    query = view.read_query(PartitionQuery)
    try:
        selection = query.select()
    except ValueError as error:
        selection, view.query_error = PartitionFilter(), str(error)
    after, key = view.number("after", 0), view.text("key")
    operations = view.operator.partitions
    partitions = operations.inspect(selection, after=after, limit=PARTITIONS_PER_PAGE + 1)
    return view.render(
        "partition_day.html",
        selection=selection,
        partitions=partitions[:PARTITIONS_PER_PAGE],
        has_more=len(partitions) > PARTITIONS_PER_PAGE,
        key=key,
        history=None if key is None else operations.history(key),
        explained=None if key is None else operations.explain(key),
        acts=PLANNED_ACTS,
        steering_acts=STEERING_ACTS,
        statuses=("", *STANDINGS),
        status_names=STATUS_NAMES,
        now=view.operator.now(),
        filter=read_filter(view.query),
    )


@router.post("/partitions/steer")
def steer(view: CurrentView) -> Response:
    """Pause, unpause, give up or allow retries of one partition. Recorded in the audit log."""
    act, key = view.form.get("act", ""), view.form.get("key", "")
    if act not in STEERING_ACTS:
        raise ValueError(f"invalid action {act!r}: use {', '.join(STEERING_ACTS)}")
    operations = view.operator.partitions
    plan = operations.chosen(act, select_partitions([key]))  # type: ignore[arg-type]  # checked above
    if plan.left:
        problem = f"{key}: {', '.join(plan.left)}; use Retry and include given-up partitions"
        raise ValueError(f"{problem} without raw data. Nothing was changed")
    operations.steer(plan, because=view.form.get("because", ""))
    return _redirect_to_partition(view, key, STEERING_ACTS[act][1])


@router.post("/partitions/rollback")
def rollback(view: CurrentView) -> Response:
    """Make an earlier accepted run the current run."""
    key, run_id = view.form.get("key", ""), view.form.get("run_id") or None
    because = view.form.get("because", "")
    facts = view.operator.partitions.rollback(key, run_id, because=because)
    return _redirect_to_partition(view, key, f"the current run is {facts.current_run_id}")


def _redirect_to_partition(view: View, key: str, result: str) -> Response:
    filter_ = read_filter(view.form)
    return view.redirect("/partitions/day", **filter_, key=key, flash=f"{key}: {result}.")


@router.post("/partitions/share")
def share(view: CurrentView) -> Response:
    """Change the share of worker capacity of a backfill."""
    number, share = view.form.get("sweep", ""), read_share(view.form.get("share", ""))
    if not number.isdecimal():
        raise ValueError(f"invalid sweep id {number!r}: use a number")
    view.operator.backfills.set_share(int(number), share, because=view.form.get("because", ""))
    flash = f"Backfill {int(number)} now has {share:.0%} of worker capacity."
    return view.redirect("/partitions", flash=flash)


@router.post("/partitions/source")
def source(view: CurrentView) -> Response:
    """Pause or unpause a source."""
    name, because = view.form.get("source", ""), view.form.get("because", "")
    if view.form.get("act") == "unpause":
        view.operator.sources.unpause(name, because=because)
        return view.redirect("/partitions", flash=f"{name} is no longer paused.")
    view.operator.sources.pause(name, because=because)
    return view.redirect("/partitions", flash=f"{name} is paused.")


@router.get("/partitions/plan")
def plan(view: CurrentView) -> Response:
    """Preview which partitions would be processed and which skipped. Changes nothing."""
    return _render_plan(view, _make_plan(view))


@router.post("/partitions/apply")
def apply(view: CurrentView) -> Response:
    """Carry out the plan, if it has not changed and the number was typed."""
    plan = _make_plan(view)
    return confirm_plan(
        view,
        plan,
        _render_plan,
        must_type=plan.count > 1,
        numbers=("rate", "canary"),
        without_raw=view.form.get("without_raw") == "1",
    )


def _make_plan(view: View) -> Plan:
    act, clear_terminal = view.field("act"), view.field("clear_terminal") == "1"
    if act == "backfill":
        return _make_backfill(view, clear_terminal)
    if act not in PLANNED_ACTS:
        raise ValueError(f"invalid action {act!r}: use {', '.join(PLANNED_ACTS)}, backfill")
    operations, selection = view.operator.partitions, read_selection(view.fields)
    if act == "retry":
        include_marked = view.field("include_marked") == "1"
        return operations.retry(
            selection, clear_terminal=clear_terminal, include_marked=include_marked
        )
    if act == "reprocess":
        return operations.reprocess(selection)
    return operations.revalidate(selection)


def _make_backfill(view: View, clear_terminal: bool) -> Plan:
    """Plan a backfill of one dataset. ValueError: the range is incomplete."""
    filter_ = read_filter(view.fields)
    if not {"source", "query", "since", "until"} <= filter_.keys():
        raise ValueError("backfill: incomplete range; specify source, query, since and until")
    share = view.field("share")
    return view.operator.backfills.plan(
        label(filter_["source"], filter_["query"]),
        filter_["since"],
        filter_["until"],
        customers=[filter_["customer"]] if "customer" in filter_ else None,
        share=read_share(share) if share else None,
        clear_terminal=clear_terminal,
    )


def _render_plan(view: View, plan: Plan, error: str | None = None, status: int = 200) -> Response:
    return view.render(
        "partition_plan.html",
        status=status,
        plan=plan,
        details=plan.partitions,
        skipped=_skipped_counts(plan),
        filter=read_filter(view.fields),
        keys=view.field("keys"),
        clear_terminal=view.field("clear_terminal") == "1",
        include_marked=view.field("include_marked") == "1",
        has_marked=any(reason.startswith(MARKED) for reason in _skipped_counts(plan)),
        share=view.field("share"),
        error=error,
        command_line=_command_line(view, plan),
    )


def _skipped_counts(plan: Plan) -> dict[str, int]:
    left = {} if plan.partitions is None else plan.partitions.left
    return {SKIP_NAMES.get(reason, reason): count for reason, count in left.items()}


def _command_line(view: View, plan: Plan) -> str:
    """Return the equivalent command line."""
    filter_ = read_filter(view.fields)
    options: dict[str, Any] = {
        "clear_terminal": view.field("clear_terminal") == "1",
        "because": view.fields.get("because") or PLACEHOLDER,
    }
    if plan.act == "backfill":
        share = view.field("share")
        return command(
            "backfill",
            "apply",
            label(filter_["source"], filter_["query"]),
            since=filter_["since"],
            until=filter_["until"],
            customer_id=filter_.get("customer"),
            share=read_share(share) if share else None,
            **options,
        )
    names = {"query": "query_name", "customer": "customer_id"}
    renamed = {names.get(name, name): value for name, value in filter_.items()}
    if plan.act == "retry":
        options["include_marked"] = view.field("include_marked") == "1"
    return command("state", plan.act, *view.field("keys").splitlines(), **renamed, **options)


def _read_day_range(view: View, calendar: Calendar) -> DayRange | None:
    """Return the selected days of the URL. None: no selection, or an invalid one."""
    try:
        first, last = (date.fromisoformat(view.text(name) or "") for name in ("from", "to"))
    except ValueError:
        return None
    source = view.text("of_source") or view.text("source")
    query = view.text("of_query") or view.text("query")
    return select_days(calendar, source, query, min(first, last), max(first, last))


def read_filter(fields: Mapping[str, str], /) -> dict[str, str]:
    """Return the fields of a query or a form that select partitions."""
    texts = {name: fields.get(name, "").strip() for name in PartitionQuery.model_fields}
    return {name: text for name, text in texts.items() if text}


def read_selection(fields: Mapping[str, str], /) -> PartitionFilter:
    """Return the partitions that a query or a form selects. ValueError: it is invalid."""
    keys = fields.get("keys", "").strip()
    return select_partitions(keys.split("\n")) if keys else PartitionQuery.read(fields).select()


def read_share(text: str, /) -> float:
    """Read a share such as 15 or 15%. ValueError: it is not a number."""
    try:
        return float(text.strip().rstrip("%")) / 100
    except ValueError:
        raise ValueError(f"invalid share {text!r}: use a percentage such as 15") from None
