"""Batches: the state of their items, the given-up items with their errors, and reopening them."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ...core.text import pluralise
from ..view import Here

router = APIRouter()


@router.get("/batches")
def batches(view: Here) -> Response:
    """Show the items of every batch by state, and the given-up items."""
    batch, reason = view.text("batch"), view.text("reason")
    limit = view.number("limit", 100, most=200)
    given_up = view.ops.batches.given_up(batch=batch, reason=reason, since=view.since(), limit=limit)
    return view.page(
        "batches.html", found=view.ops.batches.find(), given_up=given_up, batch=batch, reason=reason, limit=limit,
        now=view.ops.now(),
    )  # fmt: skip


@router.get("/batches/reopen")
def plan(view: Here) -> Response:
    """Preview which items would be reopened. Changes nothing."""
    batch = _named(view.text("batch"))
    limit = view.number("limit", 1000, most=10_000)
    found = view.ops.batches.plan_reopen(batch, reason=view.text("reason"), since=view.since(), limit=limit)
    return view.page("reopen.html", plan=found, batch=batch)


@router.post("/batches/reopen")
def reopen(view: Here) -> Response:
    """Reopen the previewed items. They are named one by one, so that newer items are not affected."""
    batch = _named(view.form.get("batch"))
    items = view.form.get("items", "").splitlines()
    found = view.ops.batches.plan_reopen(batch, items=[item for item in items if item], limit=len(items) or 1)
    done = sum(len(step.done) for step in view.ops.batches.reopen(found, because=view.form.get("because", "")))
    return view.to("/batches", batch=batch, said=f"{pluralise(done, 'item')} reopened.")


def _named(batch: str | None) -> str:
    if not batch:
        raise ValueError("batch: missing; specify the name of a batch")
    return batch
