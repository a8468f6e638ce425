"""Plans for partitions: picked one by one, or a range of days. Making a plan changes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from sqlalchemy import select

from ...core.seconds import positive, whole_number
from ...errors import NotAllowed
from ...ledger.db.partition_tables import work
from ...ledger.ledger import Ledger
from ...partitions.control.plane import ControlPlane
from ...partitions.control.sweeps import Grid
from ...partitions.key import Partition
from ...partitions.model import PartitionFilter
from ...partitions.queries import PartitionQueries
from ...partitions.retry_schedule import check_share
from ...partitions.store.frozen_selection import FrozenSelection
from ...partitions.store.statements import chunks
from ..dead_letters.model import DeadLetterFilter
from ..plans.plan import PartitionPlan, Plan, PlanOptions
from ..project.target import Operated, ledger_of
from ..sweeps import SweepOptions
from .datasets import check_selection, label, terms_of, zone_of
from .raw_data import MAX_STORE_CHECKS, NO_RAW_DATA, missing_raw, raw_states
from .selection import acted_on, not_future

PickingAct: TypeAlias = Literal["retry", "reprocess", "revalidate"]
MAX_LISTED = 100
"""Partitions that a plan names, one by one: those without raw data, and those that are running."""


def plan_selection(
    app: Operated, act: PickingAct, selection: PartitionFilter, options: PlanOptions, /
) -> Plan:
    """Plan to extract or validate these partitions again.

    Raises:
        ValueError: Nothing is selected, a day has not begun, or a dataset is unknown.
    """
    ledger = ledger_of(app)
    check_selection(app, acted_on(selection, ledger.now()))
    if options.grant is not None:
        whole_number("grant", options.grant)
    picked = PartitionQueries(ledger).freeze(
        act, selection, clear_terminal=options.clear_terminal, include_marked=options.include_marked
    )
    running = _running(ledger, selection) if picked.skipped.get("running now") else {}
    missing = _preview_missing_raw(app, act, picked.ids)
    plan = from_picked(
        replace(picked, without_raw=len(missing)),
        selection,
        options,
        kinds={label(*dataset): count for dataset, count in sorted(picked.counts.items())},
        skipped=running,
        missing={str(partition): reason for partition, reason in [*missing.values()][:MAX_LISTED]},
    )
    assert plan.partitions is not None
    # A revalidation lists its missing raw data already.
    has_runs = picked.readable > 0 and act != "revalidate"
    unreadable = _unreadable_runs(app, picked) if has_runs else {}
    return replace(plan, partitions=replace(plan.partitions, unreadable=unreadable))


def from_picked(
    picked: FrozenSelection,
    selection: PartitionFilter,
    options: PlanOptions,
    /,
    *,
    kinds: Mapping[str, int],
    skipped: Mapping[str, str],
    missing: Mapping[str, str],
) -> Plan:
    """Return the plan of partitions that were picked, now or when it was stored."""
    details = PartitionPlan(
        count=picked.count,
        digest=picked.digest,
        selection=selection,
        wish=options,
        left=dict(picked.skipped),
        readable=picked.readable,
        without_raw=picked.without_raw,
        missing_raw=missing,
        validates=picked.validates,
        picked=picked,
    )
    return Plan(
        act=picked.act,
        ids=picked.ids,
        kinds=kinds,
        reasons=dict(picked.reasons),
        skipped=skipped,
        more=False,
        selection=DeadLetterFilter(),
        partitions=details,
    )


def plan_backfill(
    app: Operated, grid: Grid, options: PlanOptions, unknown: Mapping[str, str], /
) -> Plan:
    """Plan a backfill. `unknown` are named customers that the app does not know.

    Raises:
        ValueError: A day has not begun.
        NotAllowed: Another backfill has some of these partitions.
    """
    ledger = ledger_of(app)
    not_future(grid.until, ledger.now(), zone_of(app, grid.source, grid.query_name))
    if options.share is not None:
        check_share("share", options.share)
    counts = PartitionQueries(ledger).plan_grid(grid)
    if counts.overlaps:
        sweeps = ", ".join(map(str, counts.overlaps))
        raise NotAllowed(
            f"backfill {sweeps} has some of these partitions and is not finished; cancel it, "
            "wait, or choose other partitions"
        )
    accepted = counts.shades.get("success", 0) + counts.shades.get("refresh_failed", 0)
    terminal = counts.shades.get("terminal", 0)
    left: dict[str, int] = {}
    if accepted and not options.again:
        left["accepted already"] = accepted
    if terminal and not options.clear_terminal:
        left["terminal"] = terminal
    elif terminal:
        left |= counts.marked
    readable = accepted if options.again else 0
    plan = from_grid(grid, options, left, readable, counts.total)
    assert plan.partitions is not None
    return replace(plan, partitions=replace(plan.partitions, strangers=unknown))


def from_grid(
    grid: Grid, options: PlanOptions, left: Mapping[str, int], readable: int, total: int, /
) -> Plan:
    """Return the plan of a backfill, now or when it was stored."""
    details = PartitionPlan(
        count=total - sum(left.values()),
        digest=_digest(grid, options),
        selection=PartitionFilter(
            source=grid.source,
            query_name=grid.query_name,
            customers=grid.customers,
            since=grid.since,
            until=grid.until,
        ),
        wish=options,
        left=left,
        readable=readable,
        grid=grid,
        total=total,
    )
    kinds = {label(grid.source, grid.query_name): details.count}
    return Plan("backfill", (), kinds, {}, {}, False, DeadLetterFilter(), partitions=details)


def begin(app: Operated, plan: Plan, options: SweepOptions, /, *, actor: str, because: str) -> int:
    """Store a plan as a sweep, and return its id.

    Raises:
        Drift: The partitions have changed since the plan.
        NotAllowed: Another backfill has some of these partitions, or none has raw data.
    """
    details = plan.partitions
    assert details is not None
    if options.rate is not None:
        positive("rate", options.rate)
    whole_number("canary", options.canary, least=0)
    if options.halt_on is not None:
        check_share("halt_on", options.halt_on)
    control = ControlPlane(ledger_of(app), terms_of(app))
    wish = details.wish
    if details.grid is not None:
        return control.backfill(
            details.grid,
            actor=actor,
            because=because,
            canary=options.canary,
            halt_on=options.halt_on,
            rate=options.rate,
            again=wish.again,
            clear_terminal=wish.clear_terminal,
            **({} if wish.share is None else {"share": wish.share}),
        ).id
    assert details.picked is not None
    skip = _skipped_without_raw(app, plan, options)
    return control.begin_requeue(
        details.picked,
        actor=actor,
        because=f"{because} (without raw data too)" if options.without_raw else because,
        rate=options.rate,
        canary=options.canary,
        halt_on=options.halt_on,
        lane=wish.lane,
        grant=wish.grant,
        clear_terminal=wish.clear_terminal,
        accept_drift=options.accept_drift,
        skip=skip,
    ).id


def _running(ledger: Ledger, selection: PartitionFilter) -> dict[str, str]:
    """Return the first selected partitions that are leased, and their workers.

    No plan changes them.
    """
    leased = select(work.c.partition_id).where(work.c.lease_until.is_not(None))
    with ledger.reading() as connection:
        ids = list(connection.execute(leased).scalars())
    if selection.ids is not None:
        ids = sorted({*ids} & {*selection.ids})
    queries = PartitionQueries(ledger)
    running: dict[str, str] = {}
    for chunk in chunks(ids):
        page = queries.find(replace(selection, ids=chunk), limit=MAX_LISTED - len(running))
        running |= {str(facts.partition): f"running now, by {facts.worker}" for facts in page}
        if len(running) >= MAX_LISTED:
            break
    return running


def _preview_missing_raw(
    app: Operated, act: PickingAct, ids: Sequence[int]
) -> Mapping[int, tuple[Partition, str]]:
    """Return partitions without raw data. If the store cannot be read, only the ledger counts."""
    if act == "reprocess" or len(ids) > MAX_STORE_CHECKS:
        return {}
    try:
        return missing_raw(app, act, ids)
    except NotAllowed:
        return missing_raw(ledger_of(app), act, ids)


def _unreadable_runs(app: Operated, picked: FrozenSelection) -> dict[str, str]:
    """Return accepted partitions whose raw data cannot be read, with the reason."""
    if len(picked.ids) > MAX_STORE_CHECKS:
        return {}
    selection, queries = PartitionFilter(ids=picked.ids), PartitionQueries(ledger_of(app))
    views = queries.find(selection, limit=MAX_STORE_CHECKS)
    pairs = zip(views, raw_states(app, views), strict=True)
    problems = [(str(view.partition), raw.problem) for view, raw in pairs]
    lost = [(name, problem) for name, problem in problems if problem is not None]
    return dict(lost[:MAX_LISTED])


def _skipped_without_raw(app: Operated, plan: Plan, options: SweepOptions) -> dict[int, str]:
    """Return partitions of the plan that are skipped because they have no raw data.

    Raises:
        NotAllowed: No partition of the plan has raw data.
    """
    if plan.act == "reprocess" or (plan.act == "retry" and options.without_raw):
        return {}
    missing = missing_raw(app, plan.act, plan.ids)
    if plan.count > len(missing) or not missing:
        return dict.fromkeys(missing, NO_RAW_DATA)
    if plan.act == "revalidate":
        raise NotAllowed(
            f"no raw data to validate; {_extract_again(plan)} instead. Nothing was changed"
        )
    partition, reason = next(iter(missing.values()))
    which = (
        "the partition has no"
        if len(missing) == 1
        else f"none of the {len(missing):,} partitions has"
    )
    raise NotAllowed(
        f"{which} raw data ({partition}: {reason}). "
        "To retry without raw data, add --without-raw (in code: without_raw=True). Nothing was "
        "changed"
    )


def _extract_again(plan: Plan) -> str:
    """Return the command that extracts these partitions.

    Accepted ones are reprocessed, others retried.
    """
    accepted = 0 if plan.partitions is None else plan.partitions.readable
    if accepted == 0:
        return "use `redrive state retry --without-raw`"
    if accepted == plan.count:
        return "use `redrive state reprocess`"
    return (
        "use `redrive state reprocess` for accepted partitions and "
        "`redrive state retry --without-raw` for the others,"
    )


def _digest(grid: Grid, options: PlanOptions) -> str:
    contents = [
        grid.source,
        grid.query_name,
        grid.customers,
        str(grid.since),
        str(grid.until),
        grid.newest,
        options.share,
        options.again,
        options.clear_terminal,
    ]
    return hashlib.sha256(json.dumps(["backfill", contents]).encode()).hexdigest()[:32]
