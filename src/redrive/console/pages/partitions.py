"""Partitions: the heat map of days by dataset, the customers of a day, one partition with its attempts, and backfills."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from fastapi import APIRouter, Response

from ...ops.partitions.calendar import Calendar
from ...ops.partitions.selection import STANDINGS, Selection, selected
from ..render.heat_map import LANES, LETTERS, WORDS, Pick, days, lines, picked
from ..view import Here, View

router = APIRouter()
MOST_CELLS = 6_000
"""Maximum of days times datasets on one page."""
ACTS = ("retry", "reprocess", "revalidate")
STEERS = {"pause": "Pause", "unpause": "Unpause", "mark_terminal": "Give up", "clear_terminal": "Allow retries"}
"""Actions on one partition, with their labels."""
STEERED = {
    "pause": "paused",
    "unpause": "no longer paused",
    "mark_terminal": "given up",
    "clear_terminal": "retried again",
}
SHOWN = 50


@router.get("/partitions")
def partitions(view: Here) -> Response:
    """Show the heat map. from= and to= select days."""
    source, query = view.text("source"), view.text("query")
    desk = view.ops.partitions
    calendar = desk.calendar(view.text("since"), view.text("until"), source=source, query=query)
    pick = _picked(view, calendar)
    drawn, every = lines(calendar, pick), days(calendar)
    fit = max(1, MOST_CELLS // len(every))
    running = [
        one for one in view.ops.backfills.find(limit=20, acts=("backfill", *ACTS)) if one.state in ("running", "paused", "halted")
    ]
    nobody = view.ops.workers.missing() if any(one.state == "running" for one in running) else None
    chosen = {} if pick is None else {"source": pick.source, "query": pick.query, "since": pick.first, "until": pick.last}
    paused = [one for one in view.ops.sources.find() if one.paused]
    others = sorted({line.source for line in drawn} - {one.source for one in paused})
    return view.page(
        "partitions.html", calendar=calendar, lines=drawn[:fit], more=max(0, len(drawn) - fit), days=every, letters=LETTERS,
        words=WORDS, lanes=LANES, pick=pick, chosen=chosen, acts=ACTS, nobody=nobody,
        paused=paused, sources=others,
        backfills=[report for one in running[:5] if (report := view.ops.backfills.progress(one.id)) is not None],
        now=view.ops.now(),
    )  # fmt: skip


@router.get("/partitions/day")
def day(view: Here) -> Response:
    """Show the partitions of one or several days. key= opens one with its attempts."""
    chosen, wrong = _selection(view, view.query)
    after = view.number("after", 0)
    found = view.ops.partitions.inspect(chosen, after=after, limit=SHOWN + 1)
    key = view.text("key")
    one = None if key is None else view.ops.partitions.history(key)
    why = None if key is None else view.ops.partitions.explain(key)
    return view.page(
        "partition_day.html", chosen=chosen, wrong=wrong, found=found[:SHOWN], more=len(found) > SHOWN, key=key, one=one, why=why,
        acts=ACTS, steers=STEERS, statuses=("", *STANDINGS), words=WORDS, now=view.ops.now(), given=given_of(view.query),
    )  # fmt: skip


@router.post("/partitions/steer")
def steer(view: Here) -> Response:
    """Pause, unpause, give up or allow retries of one partition. Recorded in the audit log."""
    act, key = view.form.get("act", ""), view.form.get("key", "")
    if act not in STEERS:
        raise ValueError(f"invalid action {act!r}: use {', '.join(STEERS)}")
    desk = view.ops.partitions
    desk.steer(desk.chosen(act, selected([key])), because=view.form.get("because", ""))  # type: ignore[arg-type]  # it was checked
    return view.to("/partitions/day", **given_of(view.form), key=key, said=f"{key}: {STEERED[act]}.")


@router.post("/partitions/rollback")
def rollback(view: Here) -> Response:
    """Make an earlier accepted run the current run."""
    key, run_id = view.form.get("key", ""), view.form.get("run_id") or None
    facts = view.ops.partitions.rollback(key, run_id, because=view.form.get("because", ""))
    return view.to("/partitions/day", **given_of(view.form), key=key, said=f"{key}: the current run is {facts.current_run_id}.")


@router.post("/partitions/share")
def share(view: Here) -> Response:
    """Change the share of worker capacity of a backfill."""
    number, part = view.form.get("sweep", ""), percent(view.form.get("share", ""))
    if not number.isdecimal():
        raise ValueError(f"invalid sweep id {number!r}: use a number")
    sweep = int(number)
    view.ops.backfills.set_share(sweep, part, because=view.form.get("because", ""))
    return view.to("/partitions", said=f"Backfill {sweep} now has {part:.0%} of worker capacity.")


@router.post("/partitions/source")
def source(view: Here) -> Response:
    """Pause or unpause a source."""
    name = view.form.get("source", "")
    if view.form.get("act") == "unpause":
        view.ops.sources.unpause(name, because=view.form.get("because", ""))
        return view.to("/partitions", said=f"{name} is no longer paused.")
    view.ops.sources.pause(name, because=view.form.get("because", ""))
    return view.to("/partitions", said=f"{name} is paused.")


def _picked(view: View, calendar: Calendar) -> Pick | None:
    """Return the selected days of the URL. None: no selection, or an invalid one."""
    try:
        first, last = (date.fromisoformat(view.text(name) or "") for name in ("from", "to"))
    except ValueError:
        return None
    source, query = view.text("of_source") or view.text("source"), view.text("of_query") or view.text("query")
    return picked(calendar, source, query, min(first, last), max(first, last))


def given_of(given: Mapping[str, str], /) -> dict[str, str]:
    """Return the fields of a query or a form that select partitions."""
    names = ("source", "query", "customer", "since", "until", "status", "error")
    return {name: value for name in names if (value := given.get(name, "").strip())}


def _selection(view: View, given: Mapping[str, str]) -> tuple[Selection, str | None]:
    """Return the selection, and the error if it is invalid."""
    try:
        return selected_of(given), None
    except ValueError as wrong:
        return Selection(), str(wrong)


def selected_of(given: Mapping[str, str], /) -> Selection:
    """Return the partitions that a query or a form selects. ValueError: it is invalid."""
    said: dict[str, Any] = given_of(given)
    key = given.get("keys", "").strip()
    if key:
        return selected(key.split("\n"))
    status = said.pop("status", None)
    if status is not None and status not in STANDINGS:
        raise ValueError(f"invalid status {status!r}: use {', '.join(STANDINGS)}")
    customer = said.pop("customer", None)
    return selected(**said, status=status, customers=() if customer is None else (customer,))


def percent(text: str, /) -> float:
    """Read a share such as 15 or 15%. ValueError: it is not a number."""
    try:
        return float(text.strip().rstrip("%")) / 100
    except ValueError:
        raise ValueError(f"invalid share {text!r}: use a percentage such as 15") from None
