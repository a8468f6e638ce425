"""Dead letters: list, group, show, plan by filter, and replay or discard once the plan is confirmed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, get_args

from fastapi import APIRouter, Response

from ...errors import Drift
from ...ops.dead_letters.model import GROUPED, DeadLetterFilter
from ...ops.defaults import MAX_REPLAYS
from ...ops.plans.plan import Plan, is_confirmed
from ..render.command import command
from ..render.problem import missing
from ..view import Here, Id, View

router = APIRouter()
Status = Literal["pending", "replaying", "replayed", "discarded", "all"]
ACTS = ("replay", "discard")
NAMED = {"rate": "rate", "canary": "canary size", "max_replays": "maximum of replays"}
"""Fields of the form as the page labels them."""
LIMIT = 1000
"""Maximum number of dead letters in a plan, by default."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The dead letters that the query of a page selects."""

    kind: str | None
    error: str | None
    reason: str | None
    since: datetime | None
    status: Status
    wrong: str | None
    """The problem with the filter, if it is invalid."""

    @classmethod
    def of(cls, view: View, /) -> Filter:
        """From the query."""
        wrong, since = None, None
        try:
            since = view.since()
        except ValueError as said:
            wrong = str(said)
        status = view.text("status")
        known: Status = status if status in get_args(Status) else "pending"  # type: ignore[assignment]  # mypy misses `in`
        return cls(view.text("kind"), view.text("error"), view.text("reason"), since, known, wrong)

    @property
    def selects(self) -> DeadLetterFilter:
        """For the operator."""
        return DeadLetterFilter(kind=self.kind, error=self.error, reason=self.reason, since=self.since)

    @property
    def narrowed(self) -> bool:
        """Whether it selects a subset. A plan needs one."""
        return not self.selects.selects_all


@router.get("/dead")
def dead(view: Here) -> Response:
    """Show the list, or the error groups."""
    chosen, by_cause = Filter.of(view), view.text("by") == "cause"
    status = None if chosen.status == "all" else chosen.status
    limit = view.number("limit", 50, most=500)
    groups = view.ops.dead_letters.groups(chosen.selects, status=status) if by_cause else []
    before = view.number("before", 0) or None
    which = replace(chosen.selects, limit=limit + 1)
    letters = [] if by_cause else view.ops.dead_letters.find(which, status=status, before=before)
    return view.page(
        "dead.html", chosen=chosen, by_cause=by_cause, groups=groups, letters=letters[:limit], more=len(letters) > limit,
        before=before, counts=view.ops.jobs.counts(), now=view.ops.now(), most=GROUPED,
    )  # fmt: skip


@router.get("/dead/plan")
def plan(view: Here) -> Response:
    """Preview a replay or a discard, with the form that confirms it."""
    return _plan(view, view.query)


@router.post("/dead/apply")
def apply(view: Here) -> Response:
    """Carry out the plan, if it has not changed and the number was typed."""
    form = view.form
    made = _made(view, form)
    named = bool(made.selection.ids)
    try:
        if not form.get("because", "").strip():
            raise ValueError("enter a reason for the audit log; nothing was changed")
        if not named and not is_confirmed(made.count, form.get("typed", "")):
            raise ValueError(f"type {made.count} to confirm; nothing was changed")
        sweep = view.ops.begin(made, because=form.get("because", ""), seen=form.get("seen", ""), **_how(form, made.act))
    except (ValueError, Drift) as wrong:
        return _plan(view, form, said=str(wrong), status=409 if isinstance(wrong, Drift) else 422)
    # Carry out the first step here: small operations end at once, and workers continue large ones.
    next(iter(view.ops.carry_out(sweep.id)), None)
    return view.to(f"/sweeps/{sweep.id}")


@router.get("/dead/{number}")
def letter(view: Here, number: Id) -> Response:
    """Show one dead letter."""
    report = view.ops.dead_letters.get(number)
    if report is None:
        raise missing(f"dead letter {number} does not exist")
    return view.page("letter.html", report=report, one=report.letter, revealed=None)


@router.post("/dead/{number}/reveal")
def reveal(view: Here, number: Id) -> Response:
    """Show the payload with secrets once, and record that in the audit log."""
    revealed = view.ops.dead_letters.reveal(number, because=view.form.get("because", ""))
    report = view.ops.dead_letters.get(number)
    if report is None:
        raise missing(f"dead letter {number} does not exist")
    return view.page("letter.html", report=report, one=report.letter, revealed=revealed)


def _made(view: View, given: Any) -> Plan:
    """Make the plan that a query or a form asks for. ValueError: the selection is empty or invalid."""
    act = given.get("act", "")
    if act not in ACTS:
        raise ValueError(f"invalid action {act!r}: use replay or discard")
    words = {name: given.get(name, "").strip() or None for name in ("kind", "error", "reason")}
    ids = numbers(" ".join(given.getlist("ids")) if hasattr(given, "getlist") else given.get("ids", ""))
    since = given.get("since", "").strip()
    limit = max(_number(given.get("limit", ""), LIMIT), len(ids))
    upto = _number(given.get("upto", ""), 0) or None
    planned = view.ops.dead_letters.replay if act == "replay" else view.ops.dead_letters.discard
    times = view.moment(since) if since else None
    return planned(DeadLetterFilter(ids=tuple(ids), since=times, limit=limit, upto=upto, **words))


def _plan(view: View, given: Any, said: str | None = None, status: int = 200) -> Response:
    made = _made(view, given)
    of = made.selection
    told = {"kind": of.kind, "error": of.error, "reason": of.reason, "since": of.since and of.since.isoformat()}
    limit = None if of.ids else of.limit
    line = command("dead", made.act, *of.ids, **told, limit=limit, because=given.get("because") or "...", detach=True)
    return view.page(
        "plan.html", code=status, plan=made, told=told, limit=limit, line=line, said=said, given=given,
        upto=of.upto or (made.ids[-1] if made.ids else None), max_replays=MAX_REPLAYS,
    )  # fmt: skip


def _how(form: Any, act: str) -> dict[str, Any]:
    """Read rate, canary and maximum replays. ValueError names the one that is not a number."""
    found: dict[str, Any] = {}
    for name, read in (("rate", float), ("canary", int), ("max_replays", int)):
        text = form.get(name, "").strip()
        if not text or (act == "discard" and name != "rate"):
            continue
        try:
            found[name] = read(text)
        except ValueError:
            raise ValueError(f"invalid {NAMED[name]} {text!r}: use a number; nothing was changed") from None
    if found.get("max_replays") == 0:
        found["max_replays"] = None
    return found


def numbers(text: str, /) -> tuple[int, ...]:
    """Read numbers separated by spaces or commas. ValueError names the first invalid one."""
    words = text.replace(",", " ").split()
    for word in words:
        if not (word.isdecimal() and word.isascii() and len(word) < 19):
            raise ValueError(f"invalid dead letter id {word!r}: use a number")
    return tuple(map(int, words))


def _number(text: str, default: int) -> int:
    text = text.strip().replace(",", "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else default
