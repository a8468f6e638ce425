"""Plans for partitions: retry, reprocess, revalidate, backfill: looked at, and carried out once they are confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response

from ...errors import Drift
from ...ops.datasets import label
from ...ops.plan import Plan, agreed
from ..command import command
from ..view import Here, View
from .partitions import ACTS, given_of, percent, selected_of

router = APIRouter()
PLANNED = (*ACTS, "backfill")


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
        sweep = view.ops.begin(made, because=form["because"], seen=form.get("seen", ""), **_how(form))
    except (ValueError, Drift) as wrong:
        return _plan(view, form, said=str(wrong), status=422)
    next(iter(view.ops.carry_out(sweep.id)), None)
    return view.to(f"/sweeps/{sweep.id}")


def _made(view: View, given: Mapping[str, str]) -> Plan:
    act = given.get("act", "")
    if act not in PLANNED:
        raise ValueError(f"{act!r} is nothing that is planned for partitions: {', '.join(PLANNED)}")
    if act == "backfill":
        return _backfill(view, given)
    if act == "retry":
        return view.ops.retry(selected_of(given), clear_terminal=given.get("clear_terminal") == "1")
    return (view.ops.reprocess if act == "reprocess" else view.ops.revalidate)(selected_of(given))


def _backfill(view: View, given: Mapping[str, str]) -> Plan:
    """A range of one dataset's days. ValueError says what is missing of it."""
    said = given_of(given)
    if not {"source", "query", "since", "until"} <= said.keys():
        raise ValueError("a backfill is of one dataset, from one day to another")
    customers = [said["customer"]] if "customer" in said else None
    share = percent(given["share"]) if given.get("share", "").strip() else None
    clear, of = given.get("clear_terminal") == "1", label(said["source"], said["query"])
    return view.ops.backfill(of, said["since"], said["until"], customers=customers, share=share, clear_terminal=clear)


def _line(made: Plan, given: Mapping[str, str], told: Mapping[str, str], keys: str, clear: bool) -> str:
    """The same at a terminal."""
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
                raise ValueError(f"{name} is a number, not {text!r}: nothing was done") from None
    return found
