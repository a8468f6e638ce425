"""Batch items in the user's own store, named as `module:object`. They need no ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..app import DEFAULT
from ..batch.store.protocol import ItemsWithReasons, ItemsWithStates, ReopenableItems
from ..journal.redaction import redact_text
from .project.target import DATABASES, source_of
from .project.user_code import Unreadable, import_object, names_object

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

STEP = 100
"""Items that are reopened in one transaction, with one entry of the audit log."""
NOT_A_STORE = "not a TableItems, or another store with given_up and reopen_many"


@dataclass(frozen=True, slots=True)
class Reopening:
    """A plan to reopen items. Immutable. Making it changes nothing."""

    batch: str
    items: tuple[str, ...]
    reasons: Mapping[str, int]
    skipped: Mapping[str, str]
    """Items that were named but cannot be reopened, with the reason."""
    more: bool
    """Whether more items match than the limit allows."""
    beyond: int = 0
    """Number of items that match beyond the limit."""
    act: Literal["reopen"] = "reopen"

    @property
    def count(self) -> int:
        """Number of items."""
        return len(self.items)

    @property
    def matched(self) -> int:
        """Number of items that match, including those beyond the limit."""
        return self.count + self.beyond


@dataclass(frozen=True, slots=True)
class Reopened:
    """One step of a reopening."""

    done: tuple[str, ...]
    skipped: Mapping[str, str]
    """Items that are no longer given up, with the reason."""


@dataclass(frozen=True, slots=True)
class OwnItem:
    """An item of a user's own store that was given up."""

    item: str
    attempts: int
    reason: str | None
    """None: the store keeps no reason."""


def has_ledger(source: str | None, /) -> bool:
    """Return whether there is a ledger: it is named, or the default file exists."""
    return (
        source is not None
        or source_of(None) != DEFAULT
        or Path(DEFAULT.removeprefix("sqlite:///")).exists()
    )


def store(source: str, /) -> ReopenableItems:
    """Import the store. Raise Unreadable if there is none."""
    if not names_object(source):
        raise Unreadable(
            f"{source!r} is not a store of items; pass module:object, such as tiles.wiring:items"
        )
    value = import_object(source)
    if isinstance(value, type):
        raise Unreadable(f"{source} is the class {value.__name__}, {NOT_A_STORE}")
    if not isinstance(value, ReopenableItems):
        kind = type(value).__name__
        article = "an" if kind[:1].lower() in "aeiou" else "a"
        raise Unreadable(f"{source} is {article} {kind}, {NOT_A_STORE}")
    return value


def batch_name(source: str, /) -> str:
    """Return the name of the batch in the audit log: that of the table, or of the object."""
    name = getattr(store(source), "name", None)
    return name if isinstance(name, str) else source.rpartition(":")[2]


def given_up(source: str, limit: int, /, *, reason: str | None = None) -> list[OwnItem]:
    """Return items that were given up. `reason` selects items whose reason contains this text."""
    items = store(source)
    keeps = isinstance(items, ItemsWithReasons)
    if reason is not None and not keeps:
        raise Unreadable(
            f"--reason: {source} stores no reasons; remove the option, or add a method reasons "
            f"to {type(items).__name__}"
        )
    with _readable(source):
        counts = items.given_up(limit if reason is None else 2**31 - 1)
        reasons = items.reasons(list(counts)) if isinstance(items, ItemsWithReasons) else {}
    rows = [OwnItem(item, count, _redact_item(reasons.get(item))) for item, count in counts.items()]
    if reason is not None:
        rows = [row for row in rows if reason.lower() in (row.reason or "").lower()]
    return rows[:limit]


def plan_reopen(source: str, batch: str, /, *, items: Collection[str]) -> Reopening:
    """Plan to reopen these items, where they were given up."""
    if not items:
        raise ValueError(
            "no items: pass the ids of the items to reopen; reopening all of them at once is "
            "not possible here"
        )
    opened = store(source)
    name = getattr(opened, "name", None)
    if isinstance(name, str) and name != batch:
        raise ValueError(
            f"unknown batch {batch!r}: {source} has the items of {name!r}; pass {name} as the batch"
        )
    ids = list(dict.fromkeys(items))
    reasons = {item.item: item.reason or "" for item in given_up(source, 2**31 - 1)}
    planned = tuple(item for item in ids if item in reasons)
    rest = [item for item in ids if item not in reasons]
    with _readable(source):
        states = opened.states(rest) if isinstance(opened, ItemsWithStates) else None
    return Reopening(
        batch=batch,
        items=planned,
        reasons=dict(Counter(reasons[item] for item in planned)),
        skipped={item: _why_skipped(item, states) for item in rest},
        more=False,
    )


def reopen(
    ledger: Ledger | None, source: str, plan: Reopening, /, *, actor: str, because: str
) -> Iterator[Reopened]:
    """Carry out a plan, step by step. Each step is recorded first, if there is a ledger."""
    opened = store(source)
    for start in range(0, plan.count, STEP):
        items = plan.items[start : start + STEP]
        if ledger is not None:
            details = {"batch": plan.batch, "store": source, "items": list(items)}
            ledger.record(actor=actor, action="batch.reopen", because=because, what=details)
        with _readable(source):
            done = opened.reopen_many(items)
        skipped = {item: "it is no longer given up" for item in items if item not in done}
        yield Reopened(tuple(sorted(done)), skipped)


def _why_skipped(item: str, states: Mapping[str, str] | None) -> str:
    """Say why an item is not reopened. `states` is None if the store does not know them."""
    if states is None:
        return "it is not given up"
    return (
        f"it is not given up (state {states[item]})" if item in states else "there is no such item"
    )


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


def _redact_item(reason: str | None) -> str | None:
    return None if reason is None else redact_text(reason)
