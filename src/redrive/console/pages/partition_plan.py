"""Plans for partitions (retry, reprocess, revalidate, backfill): preview, and carry out once confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response

from ...errors import Drift
from ...ops.partitions.datasets import label
from ...ops.plans.plan import Plan, is_confirmed
from ..render.command import command
from ..view import Here, View
from .partitions import ACTS, given_of, percent, selected_of

router = APIRouter()
PLANNED = (*ACTS, "backfill")


@router.get("/partitions/plan")
def plan(view: Here) -> Response:
    """Preview which partitions would be processed and which skipped. Changes nothing."""
    return _plan(view, view.query)


@router.post("/partitions/apply")
def apply(view: Here) -> Response:
    """Carry out the plan, if it has not changed and the number was typed."""
    form = view.form
    made = _made(view, form)
    try:
        if not form.get("because", "").strip():
            raise ValueError("enter a reason for the audit log; nothing was changed")
        if made.count > 1 and not is_confirmed(made.count, form.get("typed", "")):
            raise ValueError(f"type {made.count} to confirm; nothing was changed")
        sweep = view.ops.begin(made, because=form["because"], seen=form.get("seen", ""), **_how(form))
    except (ValueError, Drift) as wrong:
        return _plan(view, form, said=str(wrong), status=409 if isinstance(wrong, Drift) else 422)
    next(iter(view.ops.carry_out(sweep.id)), None)
    return view.to(f"/sweeps/{sweep.id}")


def _made(view: View, given: Mapping[str, str]) -> Plan:
    act = given.get("act", "")
    if act not in PLANNED:
        raise ValueError(f"invalid action {act!r}: use {', '.join(PLANNED)}")
    if act == "backfill":
        return _backfill(view, given)
    if act == "retry":
        return view.ops.partitions.retry(selected_of(given), clear_terminal=given.get("clear_terminal") == "1")
    return (view.ops.partitions.reprocess if act == "reprocess" else view.ops.partitions.revalidate)(selected_of(given))


def _backfill(view: View, given: Mapping[str, str]) -> Plan:
    """Plan a backfill of one dataset. ValueError: the range is incomplete."""
    said = given_of(given)
    if not {"source", "query", "since", "until"} <= said.keys():
        raise ValueError("backfill: incomplete range; specify source, query, since and until")
    customers = [said["customer"]] if "customer" in said else None
    share = percent(given["share"]) if given.get("share", "").strip() else None
    clear, of = given.get("clear_terminal") == "1", label(said["source"], said["query"])
    return view.ops.backfills.plan(of, said["since"], said["until"], customers=customers, share=share, clear_terminal=clear)


def _line(made: Plan, given: Mapping[str, str], told: Mapping[str, str], keys: str, clear: bool) -> str:
    """Return the equivalent command line."""
    because = given.get("because") or "..."
    if made.act == "backfill":
        of, customer = label(told["source"], told["query"]), told.get("customer")
        share, days = given.get("share", "").strip(), {name: told[name] for name in ("since", "until")}
        return command(
            "backfill", "apply", of, **days, customer_id=customer, share=percent(share) if share else None, clear_terminal=clear,
            because=because,
        )  # fmt: skip
    names = {"query": "query-name", "customer": "customer-id"}
    options = {names.get(name, name): value for name, value in told.items()}
    return command("state", made.act, *(keys.split("\n") if keys else ()), **options, clear_terminal=clear, because=because)


def _plan(view: View, given: Mapping[str, str], said: str | None = None, status: int = 200) -> Response:
    made = _made(view, given)
    told = given_of(given)
    keys = given.get("keys", "").strip()
    clear, share = given.get("clear_terminal") == "1", given.get("share", "").strip()
    return view.page(
        "partition_plan.html", code=status, plan=made, about=made.partitions, told=told, keys=keys, said=said, given=given,
        line=_line(made, given, told, keys, clear), clear=clear, share=share,
    )  # fmt: skip


def _how(form: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"without_raw": form.get("without_raw") == "1"}
    for name, read in (("rate", float), ("canary", int)):
        text = form.get(name, "").strip()
        if text:
            try:
                found[name] = read(text)
            except ValueError:
                raise ValueError(f"invalid {name} {text!r}: use a number; nothing was changed") from None
    return found
