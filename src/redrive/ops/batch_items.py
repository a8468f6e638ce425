"""Items in a store of the user's own, named as `module:object`: listed and reopened, also without a ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..app import DEFAULT
from ..batch.store.protocol import ItemsWithReasons, ItemsWithStates, ReopenableItems
from ..journal.redaction import redact_text
from .batch import STEP, Reopened, Reopening
from .target.imported import Unreadable, imported
from .target.target import DATABASES, source_of

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class OwnItem:
    """An item of a user's own store that was given up."""

    item: str
    attempts: int
    reason: str | None
    """None: the store keeps no reason."""


def has_ledger(given: str | None, /) -> bool:
    """Whether there is a ledger to record an act in: one is named, or the default file exists."""
    return given is not None or source_of(None) != DEFAULT or Path(DEFAULT.removeprefix("sqlite:///")).exists()


def store(source: str, /) -> ReopenableItems:
    """Import the store. Unreadable: there is none, with the reason."""
    module, colon, name = source.partition(":")
    if not colon or not module or not name:
        raise Unreadable(f"{source!r} is not a store of items; pass module:object, such as tiles.wiring:items")
    found = imported(module, name)
    if not isinstance(found, ReopenableItems) or isinstance(found, type):
        kind = found.__name__ if isinstance(found, type) else type(found).__name__
        article = "an" if kind[:1].lower() in "aeiou" else "a"
        what = f"the class {kind}" if isinstance(found, type) else f"{article} {kind}"
        raise Unreadable(f"{source} is {what}, not a TableItems, or another store with given_up and reopen_many")
    return found


def given_up(source: str, limit: int, /, *, reason: str | None = None) -> list[OwnItem]:
    """List items that were given up. reason: only those with this text in their reason, in any case."""
    items = store(source)
    keeps = isinstance(items, ItemsWithReasons)
    if reason is not None and not keeps:
        raise Unreadable(
            f"--reason: {source} stores no reasons; remove the option, or add a method reasons to {type(items).__name__}"
        )
    with _readable(source):
        counts = items.given_up(limit if reason is None else 2**31 - 1)
        reasons = items.reasons(list(counts)) if isinstance(items, ItemsWithReasons) else {}
    found = [OwnItem(item, count, _redacted(reasons.get(item))) for item, count in counts.items()]
    if reason is not None:
        found = [item for item in found if reason.lower() in (item.reason or "").lower()]
    return found[:limit]


def planned(source: str, batch: str, /, *, items: Collection[str]) -> Reopening:
    """Plan to reopen these items, where they were given up."""
    if not items:
        raise ValueError("no items: pass the ids of the items to reopen; reopening all of them at once is not possible here")
    opened = store(source)
    name = getattr(opened, "name", None)
    if isinstance(name, str) and name != batch:
        raise ValueError(f"unknown batch {batch!r}: {source} has the items of {name!r}; pass {name} as the batch")
    wanted = list(dict.fromkeys(items))
    gone = {item.item: item.reason or "" for item in given_up(source, 2**31 - 1)}
    there = tuple(item for item in wanted if item in gone)
    others = [item for item in wanted if item not in gone]
    with _readable(source):
        states = opened.states(others) if isinstance(opened, ItemsWithStates) else None
    skipped = {item: _why_skipped(item, states) for item in others}
    reasons: dict[str, int] = {}
    for item in there:
        reasons[gone[item]] = reasons.get(gone[item], 0) + 1
    return Reopening(batch, there, reasons, skipped, more=False)


def applied(ledger: Ledger | None, source: str, plan: Reopening, /, *, actor: str, because: str) -> Iterator[Reopened]:
    """Reopen step by step. Each step is recorded in the ledger's audit log, if there is one, before it is done."""
    opened = store(source)
    for start in range(0, plan.count, STEP):
        some = plan.items[start : start + STEP]
        if ledger is not None:
            what = {"batch": plan.batch, "store": source, "items": list(some)}
            ledger.record(actor=actor, action="batch.reopen", because=because, what=what)
        with _readable(source):
            done = opened.reopen_many(some)
        yield Reopened(tuple(sorted(done)), {item: "it is no longer given up" for item in some if item not in done})


def _why_skipped(item: str, states: Mapping[str, str] | None) -> str:
    """Say why an item is not reopened. states: None if the store cannot tell them."""
    if states is None:
        return "it is not given up"
    return f"it is not given up (state {states[item]})" if item in states else "there is no such item"


@contextmanager
def _readable(source: str) -> Iterator[None]:
    """Turn an error of the store's database into one line."""
    try:
        yield
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] not in DATABASES:
            raise
        first = str(problem).strip().partition("\n")[0]
        raise Unreadable(f"{source}: the database failed: {redact_text(first)}") from problem


def _redacted(reason: str | None) -> str | None:
    return None if reason is None else redact_text(reason)
