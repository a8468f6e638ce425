"""Partitions: days by dataset as a heat map; the customers of a day; one of them with its attempts; plans; backfills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response

from ...ops.plan import Plan, agreed
from ...ops.selection import STANDINGS, Selection, selected
from ..command import command
from ..heat import LETTERS, WORDS, days, lines
from ..view import Here, View

router = APIRouter()
MOST_CELLS = 6_000
"""Days times datasets on one page."""
ACTS = ("retry", "reprocess", "revalidate")
STEERS = ("pause", "unpause", "mark_terminal", "clear_terminal")
SHOWN = 50


@router.get("/partitions")
def partitions(view: Here) -> Response:
    """Days by dataset."""
    source, query = view.text("source"), view.text("query")
    desk = view.ops.partitions
    calendar = desk.calendar(view.text("since"), view.text("until"), source=source, query=query)
    drawn, every = lines(calendar), days(calendar)
    fit = max(1, MOST_CELLS // len(every))
    running = [one for one in desk.backfills(limit=20, acts=("backfill", *ACTS)) if one.state in ("running", "paused", "halted")]
    return view.page(
        "partitions.html", calendar=calendar, lines=drawn[:fit], more=max(0, len(drawn) - fit), days=every, letters=LETTERS,
        words=WORDS, paused=[one for one in desk.sources() if one.paused],
        backfills=[report for one in running[:5] if (report := desk.progress(one.id)) is not None],
        now=view.ops.now(),
    )  # fmt: skip


@router.get("/partitions/day")
def day(view: Here) -> Response:
    """The customers of a day, or of several; with customer= one of them, with its attempts."""
    chosen, wrong = _selection(view, view.query)
    after = view.number("after", 0)
    found = view.ops.partitions.inspect(chosen, after=after, limit=SHOWN + 1)
    key = view.text("key")
    one = None if key is None else view.ops.partitions.history(key)
    why = None if key is None else view.ops.partitions.explain(key)
    return view.page(
        "partition_day.html", chosen=chosen, wrong=wrong, found=found[:SHOWN], more=len(found) > SHOWN, key=key, one=one, why=why,
        acts=ACTS, steers=STEERS, statuses=("", *STANDINGS), words=WORDS, now=view.ops.now(), given=_given(view.query),
    )  # fmt: skip


@router.get("/partitions/plan")
def plan(view: Here) -> Response:
    """What would be tried again, and what would be left alone; nothing is changed by looking."""
    return _plan(view, view.query)


@router.post("/partitions/apply")
def apply(view: Here) -> Response:
    """Do what was planned, if it still is what was looked at and the number was typed."""
    form = view.form
    made = _made(view, form)
    try:
        if not form.get("because", "").strip():
            raise ValueError("say why: the audit will have it. Nothing was done")
        if made.count > 1 and not agreed(made, form.get("typed", "")):
            raise ValueError(f"type {made.count} to {made.act} them: nothing was done")
        if form.get("seen", "") != made.digest:
            raise ValueError("they have changed since you looked: this is how they are now. Nothing was done")
        sweep = view.ops.begin(made, because=form["because"], **_how(form))
    except ValueError as wrong:
        return _plan(view, form, said=str(wrong), status=422)
    next(iter(view.ops.carry_out(sweep.id)), None)
    return view.to(f"/sweeps/{sweep.id}")


@router.post("/partitions/steer")
def steer(view: Here) -> Response:
    """Pause, unpause, mark as terminal or clear one; in the audit."""
    act, key = view.form.get("act", ""), view.form.get("key", "")
    if act not in STEERS:
        raise ValueError(f"{act!r} is nothing that can be done to a partition: {', '.join(STEERS)}")
    desk = view.ops.partitions
    desk.steer(desk.chosen(act, selected([key])), because=view.form.get("because", ""))  # type: ignore[arg-type]  # it was checked
    return view.to("/partitions/day", **_back(view.form), key=key, said=f"{key}: {act.replace('_', ' ')}")


@router.post("/partitions/rollback")
def rollback(view: Here) -> Response:
    """Back to an earlier run that was accepted."""
    key, run_id = view.form.get("key", ""), view.form.get("run_id") or None
    facts = view.ops.partitions.rollback(key, run_id, because=view.form.get("because", ""))
    return view.to("/partitions/day", **_back(view.form), key=key, said=f"{key}: back to run {facts.current_run_id}")


@router.post("/partitions/share")
def share(view: Here) -> Response:
    """Another part of all work for a backfill."""
    number, text = view.form.get("sweep", ""), view.form.get("share", "").strip().rstrip("%")
    try:
        part, sweep = float(text) / 100, int(number)
    except ValueError:
        raise ValueError(f"a share is a number of percent, not {text!r}") from None
    view.ops.partitions.share(sweep, part, because=view.form.get("because", ""))
    return view.to("/partitions", said=f"backfill {sweep} has {part:.0%} of all work from now on")


@router.post("/partitions/source")
def source(view: Here) -> Response:
    """Hand out nothing of a source, or hand it out again."""
    name, desk = view.form.get("source", ""), view.ops.partitions
    if view.form.get("act") == "unpause":
        desk.unpause_source(name, because=view.form.get("because", ""))
        return view.to("/partitions", said=f"{name} is handed out again")
    desk.pause_source(name, because=view.form.get("because", ""))
    return view.to("/partitions", said=f"{name} is paused")


def _given(given: Mapping[str, str]) -> dict[str, str]:
    names = ("source", "query", "customer", "since", "until", "status", "error")
    return {name: value for name in names if (value := given.get(name, "").strip())}


def _back(form: Mapping[str, str]) -> dict[str, str]:
    return _given(form)


def _selection(view: View, given: Mapping[str, str]) -> tuple[Selection, str | None]:
    """Which partitions; and what is the matter with what was asked, if anything."""
    try:
        return _selected(given), None
    except ValueError as wrong:
        return Selection(), str(wrong)


def _selected(given: Mapping[str, str]) -> Selection:
    said: dict[str, Any] = _given(given)
    key = given.get("keys", "").strip()
    if key:
        return selected(key.split("\n"))
    status = said.pop("status", None)
    if status is not None and status not in STANDINGS:
        raise ValueError(f"no status {status!r}: {', '.join(STANDINGS)}")
    customer = said.pop("customer", None)
    return selected(**said, status=status, customers=() if customer is None else (customer,))


def _made(view: View, given: Mapping[str, str]) -> Plan:
    act = given.get("act", "")
    if act not in ACTS:
        raise ValueError(f"{act!r} is nothing that is planned for partitions: {', '.join(ACTS)}")
    if act == "retry":
        return view.ops.retry(_selected(given), clear_terminal=given.get("clear_terminal") == "1")
    return (view.ops.reprocess if act == "reprocess" else view.ops.revalidate)(_selected(given))


def _plan(view: View, given: Mapping[str, str], said: str | None = None, status: int = 200) -> Response:
    made = _made(view, given)
    told = _given(given)
    keys = given.get("keys", "").strip()
    options = {"query-name" if name == "query" else "customer-id" if name == "customer" else name: told[name] for name in told}
    words = keys.split("\n") if keys else ()
    clear = given.get("clear_terminal") == "1"
    line = command("state", made.act, *words, **options, clear_terminal=clear, because=given.get("because") or "...")
    return view.page(
        "partition_plan.html", code=status, plan=made, about=made.partitions, told=told, keys=keys, said=said, given=given,
        line=line, clear=clear,
    )  # fmt: skip


def _how(form: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"without_raw": form.get("without_raw") == "1"}
    for name, read in (("rate", float), ("canary", int)):
        text = form.get(name, "").strip()
        if text:
            try:
                found[name] = read(text)
            except ValueError:
                raise ValueError(f"{name} is a number, not {text!r}: nothing was done") from None
    return found
