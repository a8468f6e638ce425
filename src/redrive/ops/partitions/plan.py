"""Plans about partitions: those that were picked, one by one, or a range. Making one leaves no trace."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...core.seconds import positive, whole_number
from ...errors import NotAllowed
from ...partitions.model import Selection
from ...partitions.retry_schedule import share as part
from ..dead_letters import queries
from ..plans.options import Partitions, Wish
from ..plans.plan import Plan
from ..target.target import ledger_of
from .datasets import checked, label, terms_of, zone_of
from .missing_raw import ASKED, missing_raw
from .selection import acted_on, not_future

if TYPE_CHECKING:
    from ...partitions.control.sweeps import Grid
    from ...partitions.key import Partition
    from ...partitions.store.frozen_selection import Picked
    from ..target.target import Operated

PickingAct: TypeAlias = Literal["retry", "reprocess", "revalidate"]
LISTED = 100
"""Partitions without raw data that a plan names, one by one."""


def picked(app: Operated, act: PickingAct, selection: Selection, wish: Wish, /) -> Plan:
    """Plan to have these tried again. ValueError: nothing is selected, or what has not come, or what is not there."""
    from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from .leased import leased  # noqa: PLC0415

    ledger = ledger_of(app)
    checked(app, acted_on(selection, ledger.now()))
    if wish.grant is not None:
        whole_number("grant", wish.grant)
    found = Register(ledger).pick(act, selection, clear_terminal=wish.clear_terminal)
    busy = leased(ledger, selection) if found.skipped.get("running now") else {}
    kinds = {label(*one): many for one, many in sorted(found.counts.items())}
    missing = _missing_raw(app, act, found.ids)
    found = replace(found, without_raw=len(missing))
    names = {str(partition): why for partition, why in list(missing.values())[:LISTED]}
    return of_picked(found, selection, wish, kinds=kinds, skipped=busy, without=names)


def _missing_raw(app: Operated, act: PickingAct, ids: Sequence[int]) -> Mapping[int, tuple[Partition, str]]:
    """For a preview: what the ledger says where the store cannot be asked, or where it would be asked too often."""
    if act == "reprocess" or len(ids) > ASKED:
        return {}
    try:
        return missing_raw(app, act, ids)
    except NotAllowed:
        return missing_raw(ledger_of(app), act, ids)


def of_picked(
    found: Picked, selection: Selection, wish: Wish, /, *, kinds: Mapping[str, int], skipped: Mapping[str, str],
    without: Mapping[str, str],
) -> Plan:  # fmt: skip
    """The plan of what was picked, now or when it was stored."""
    about = Partitions(
        count=found.count, digest=found.digest, selection=selection, wish=wish, left=dict(found.skipped), readable=found.readable,
        without_raw=found.without_raw, missing_raw=without, validates=found.validates, picked=found,
    )  # fmt: skip
    return Plan(
        act=found.act, ids=tuple(found.ids), kinds=kinds, reasons=dict(found.reasons), skipped=skipped, more=False,
        selection=queries.Selection(), partitions=about,
    )  # fmt: skip


def ranged(app: Operated, grid: Grid, wish: Wish, /) -> Plan:
    """Plan a backfill. ValueError: of days that have not come. NotAllowed: another one has some of these partitions."""
    from ...partitions.queries import Register  # noqa: PLC0415  # the same

    ledger = ledger_of(app)
    not_future(grid.until, ledger.now(), zone_of(app, grid.source, grid.query_name))
    if wish.share is not None:
        part("share", wish.share)
    counts = Register(ledger).grid_counts(grid)
    if counts.overlaps:
        others = ", ".join(str(one) for one in counts.overlaps)
        raise NotAllowed(
            f"backfill {others} has some of these partitions and is not finished; cancel it, wait, or choose other partitions"
        )
    accepted = counts.shades.get("success", 0) + counts.shades.get("refresh_failed", 0)
    terminal = counts.shades.get("terminal", 0)
    left = {"accepted already": 0 if wish.again else accepted, "terminal": 0 if wish.clear_terminal else terminal}
    return of_grid(grid, wish, {why: many for why, many in left.items() if many}, accepted if wish.again else 0, counts.total)


def stranger(plan: Plan, strangers: Mapping[str, str], /) -> Plan:
    """The same plan, with those whom nobody knows."""
    assert plan.partitions is not None
    return replace(plan, partitions=replace(plan.partitions, strangers=strangers))


def of_grid(grid: Grid, wish: Wish, left: Mapping[str, int], readable: int, total: int, /) -> Plan:
    """The plan of a range, now or when it was stored."""
    selection = Selection(
        source=grid.source, query_name=grid.query_name, customers=grid.customers, since=grid.since, until=grid.until
    )
    about = Partitions(
        count=total - sum(left.values()), digest=_digest(grid, wish), selection=selection, wish=wish, left=left,
        readable=readable, grid=grid, total=total,
    )  # fmt: skip
    kinds = {label(grid.source, grid.query_name): about.count}
    return Plan("backfill", (), kinds, {}, {}, False, queries.Selection(), partitions=about)


def begun(
    app: Operated, plan: Plan, /, *, actor: str, because: str, rate: float | None = None, canary: int = 0,
    halt_on: float | None = None, without_raw: bool = False, accept_drift: bool = False,
) -> int:  # fmt: skip
    """Write the plan down as a sweep; its number. Drift: they are no longer as planned. NotAllowed: a rail."""
    from ...partitions.control.plane import Control  # noqa: PLC0415  # the same

    about = plan.partitions
    assert about is not None
    if rate is not None:
        positive("rate", rate)
    whole_number("canary", canary, least=0)
    if halt_on is not None:
        part("halt_on", halt_on)
    control = Control(ledger_of(app), terms_of(app))
    if about.grid is not None:
        return control.backfill(
            about.grid, actor=actor, because=because, canary=canary, halt_on=halt_on, rate=rate, again=about.wish.again,
            clear_terminal=about.wish.clear_terminal, **({} if about.wish.share is None else {"share": about.wish.share}),
        ).id  # fmt: skip
    assert about.picked is not None
    skip = _without_raw(app, plan, without_raw)
    wish = about.wish
    return control.begin(
        about.picked, actor=actor, because=f"{because} (without raw data too)" if without_raw else because, rate=rate,
        canary=canary, halt_on=halt_on, lane=wish.lane, grant=wish.grant, clear_terminal=wish.clear_terminal,
        accept_drift=accept_drift, skip=skip,
    ).id  # fmt: skip


def _without_raw(app: Operated, plan: Plan, without_raw: bool) -> dict[int, str]:
    """Partitions of the plan that are skipped because they have no raw data. NotAllowed: that is all of them."""
    if plan.act == "reprocess" or (plan.act == "retry" and without_raw):
        return {}
    missing = missing_raw(app, plan.act, plan.ids)
    if plan.count > len(missing) or not missing:
        return dict.fromkeys(missing, "no raw data")
    if plan.act == "revalidate":
        raise NotAllowed(f"no raw data to validate; {_extract_again(plan)} instead. Nothing was changed")
    partition, why = next(iter(missing.values()))
    which = "the partition has no" if len(missing) == 1 else f"none of the {len(missing):,} partitions has"
    raise NotAllowed(
        f"{which} raw data ({partition}: {why}). "
        "To retry without raw data, add --without-raw (in code: without_raw=True). Nothing was changed"
    )


def _extract_again(plan: Plan) -> str:
    """The command that extracts the partitions of a plan again. Accepted ones are reprocessed, the others retried."""
    accepted = 0 if plan.partitions is None else plan.partitions.readable
    if accepted == 0:
        return "use `redrive state retry --without-raw`"
    if accepted == plan.count:
        return "use `redrive state reprocess`"
    return "use `redrive state reprocess` for accepted partitions and `redrive state retry --without-raw` for the others,"


def _digest(grid: Grid, wish: Wish) -> str:
    said = [
        grid.source,
        grid.query_name,
        grid.customers,
        str(grid.since),
        str(grid.until),
        grid.newest,
        wish.share,
        wish.again,
        wish.clear_terminal,
    ]
    return hashlib.sha256(json.dumps(["backfill", said]).encode()).hexdigest()[:32]
