"""Batches: the state of their items, the given-up items with their errors, and reopening them."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ...core.text import pluralise
from ..queries import BatchItemQuery
from ..view import CurrentView

router = APIRouter()


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
