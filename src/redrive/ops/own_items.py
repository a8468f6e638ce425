"""Items in a store of the user's own, named as `module:object`: looked into, and opened again, recorded in the ledger's audit."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ..batch.items import ReopenedItems
from .batch import STEP, Reopened, Reopening
from .imported import Unreadable, imported

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger


def store(source: str, /) -> ReopenedItems:
    """The store. Unreadable says why there is none."""
    module, colon, name = source.partition(":")
    if not colon or not module or not name:
        raise Unreadable(f"{source!r} is no store of items: write module:object, such as tiles.wiring:items")
    found = imported(module, name)
    if not isinstance(found, ReopenedItems):
        kind = type(found).__name__
        raise Unreadable(f"{source} cannot be looked into: {kind} has no given_up and reopen_many, as TableItems has")
    return found


def planned(source: str, batch: str, /, *, items: Collection[str]) -> Reopening:
    """What would be opened: these, where they were given up."""
    if not items:
        raise ValueError("say which: items by their ids; nothing at all would mean everything")
    wanted = list(dict.fromkeys(items))
    gone = store(source).given_up(2**31 - 1)
    there = tuple(one for one in wanted if one in gone)
    skipped = {one: "it is not given up" for one in wanted if one not in gone}
    return Reopening(batch, there, {"": len(there)} if there else {}, skipped, more=False)


def applied(ledger: Ledger, source: str, plan: Reopening, /, *, actor: str, because: str) -> Iterator[Reopened]:
    """Carry it out, step by step. Two databases: each step is recorded before it is done, so that none is done in silence."""
    opened = store(source)
    for start in range(0, plan.count, STEP):
        some = plan.items[start : start + STEP]
        what = {"batch": plan.batch, "store": source, "items": list(some)}
        ledger.record(actor=actor, action="batch.reopen", because=because, what=what)
        done = opened.reopen_many(some)
        yield Reopened(tuple(sorted(done)), {one: "it is no longer given up" for one in some if one not in done})
