"""Dead letters: list, group, show, plan by filter, and replay or discard after confirmation."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ...ops.context import MAX_REPLAYS
from ...ops.dead_letters.model import REPLAY_NOTES, DeadLetterFilter, Revealed
from ...ops.plans.plan import Plan
from ..queries import DeadLetterListQuery, DeadLetterQuery
from ..render.errors import require
from ..render.fragments import PLACEHOLDER, command
from ..view import CurrentView, RowId, View, read_number
from .sweeps import confirm_plan

router = APIRouter()
ACTS = ("replay", "discard")
GROUPS_PER_PAGE = 100
PLAN_LIMIT = 1000
"""Maximum number of dead letters in a plan, by default."""


@router.get("/dead")
def dead_letters(view: CurrentView) -> Response:
    """Show the list, or the error groups."""
    query = view.read_query(DeadLetterListQuery)
    is_grouped, limit = view.text("by") == "cause", query.limit
    before = view.number("before", 0) or None
    operations, status = view.operator.dead_letters, query.stored_status
    filter_ = query.to_filter(view.operator.jobs.parse, limit=limit + 1)
    groups = operations.groups(filter_, status=status) if is_grouped else []
    letters = [] if is_grouped else operations.find(filter_, status=status, before=before)
    return view.render(
        "dead_letters.html",
        query=query,
        is_narrowed=not filter_.selects_all,
        is_grouped=is_grouped,
        groups=groups[:GROUPS_PER_PAGE],
        letters=letters[:limit],
        has_more=len(letters) > limit,
        before=before,
        kinds=list(view.operator.jobs.counts()),
        now=view.operator.now(),
        max_groups=GROUPS_PER_PAGE,
    )


@router.get("/dead/plan")
def plan(view: CurrentView) -> Response:
    """Preview a replay or a discard, with the form that confirms it."""
    return _render_plan(view, _make_plan(view))


@router.post("/dead/apply")
def apply(view: CurrentView) -> Response:
    """Carry out the plan, if it has not changed and the number was typed."""
    plan = _make_plan(view)
    numbers = ("rate", "canary", "max_replays") if plan.act == "replay" else ("rate",)
    must_type = not plan.selection.ids
    options = {"fresh": True} if plan.act == "replay" and view.field("fresh") else {}
    return confirm_plan(view, plan, _render_plan, must_type=must_type, numbers=numbers, **options)


@router.get("/dead/{number}")
def dead_letter(view: CurrentView, number: RowId) -> Response:
    """Show one dead letter."""
    return _render_letter(view, number)


@router.post("/dead/{number}/reveal")
def reveal(view: CurrentView, number: RowId) -> Response:
    """Show the payload with secrets once, and record that in the audit log."""
    because = view.form.get("because", "")
    return _render_letter(view, number, view.operator.dead_letters.reveal(number, because=because))


def _render_letter(view: View, number: int, revealed: Revealed | None = None) -> Response:
    report = require(view.operator.dead_letters.get(number), f"dead letter {number} does not exist")
    return view.render(
        "dead_letter.html",
        report=report,
        letter=report.letter,
        replay_note=REPLAY_NOTES.get(report.letter.reason),
        now=report.now,
        revealed=revealed,
        reveal_command=command("dead", "export", number, raw=True, because=PLACEHOLDER),
    )


def _make_plan(view: View) -> Plan:
    """Make the plan of a query or a form. ValueError: the selection is empty or invalid."""
    act = view.field("act")
    if act not in ACTS:
        raise ValueError(f"invalid action {act!r}: use replay or discard")
    query = DeadLetterQuery.read(view.fields)
    ids = read_ids(view.field("ids"))
    limit = read_number(view.field("limit"))
    filter_ = query.to_filter(
        view.operator.jobs.parse,
        ids=ids,
        limit=max(PLAN_LIMIT if limit is None else limit, len(ids)),
        upto=read_number(view.field("upto")) or None,
    )
    letters = view.operator.dead_letters
    if act == "replay":
        return letters.replay(filter_, as_kind=view.field("as_kind") or None)
    return letters.discard(filter_)


def _render_plan(view: View, plan: Plan, error: str | None = None, status: int = 200) -> Response:
    selection = plan.selection
    assert isinstance(selection, DeadLetterFilter)
    # The words are parsed again with each request, and would be in both.
    query = DeadLetterQuery.read(view.fields)
    filter_ = {
        "q": query.q,
        "kind": query.kind,
        "error": query.error,
        "reason": query.reason,
        "since": query.since and query.since.isoformat(),
        "until": query.until and query.until.isoformat(),
    }
    limit = None if selection.ids else selection.limit
    because = view.fields.get("because") or PLACEHOLDER
    command_line = command(
        *("dead", plan.act, *selection.ids),
        **{"search" if name == "q" else name: value for name, value in filter_.items()},
        limit=limit,
        because=because,
        detach=True,
        **({"as": plan.as_kind} if plan.as_kind else {}),
    )
    return view.render(
        "dead_letter_plan.html",
        status=status,
        plan=plan,
        filter=filter_,
        limit=limit,
        command_line=command_line,
        error=error,
        upto=selection.upto or (plan.ids[-1] if plan.ids else None),
        max_replays=MAX_REPLAYS,
    )


def read_ids(text: str, /) -> tuple[int, ...]:
    """Read ids separated by spaces or commas. ValueError names the first invalid one."""
    ids = []
    for word in text.replace(",", " ").split():
        number = read_number(word)
        if number is None:
            raise ValueError(f"invalid dead letter id {word!r}: use a number")
        ids.append(number)
    return tuple(ids)
