"""Options of commands: those of the decorator, and those of a submission."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

from ..core.key import Key, KeyLike, KeyOf
from ..core.seconds import Seconds, seconds
from ..ledger.model import PRIORITIES

if TYPE_CHECKING:
    from ..engine.retry import RetryLike

ExhaustedState: TypeAlias = Literal["dead", "blocked"]
"""State of a job without attempts left."""


class CommandOptions(NamedTuple):
    """Options of `@app.command(...)`, as `App.command` documents them. Not checked. Immutable."""

    key: KeyOf | None
    retry: RetryLike | None
    concurrency: int | None
    rate: float | None
    priority: int
    spent: ExhaustedState
    cron: str | None
    timezone: str
    in_transaction: bool
    tags: Collection[str] = ()
    isolation: Literal["process"] | None = None
    memory_limit: str | int | None = None
    tenant: str | None = None
    tenant_concurrency: int | None = None
    tenant_rate: float | None = None
    sequence: str | None = None


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """Options of `command.using(...)` for one submission. Immutable."""

    key: str | None = None
    tx: Any = None
    delay: float = 0.0
    due: datetime | None = None
    priority: int | None = None
    deadline: datetime | None = None

    def with_changes(
        self,
        *,
        key: KeyLike | None,
        tx: Any,
        delay: Seconds | None,
        due: datetime | None,
        priority: int | None,
        deadline: datetime | None,
    ) -> Self:
        """Return a copy with these options, checked. None keeps a value."""
        if delay is not None and due is not None:
            raise TypeError("pass delay= or due=, not both")
        changes: dict[str, Any] = {
            "key": None if key is None else key_text(key),
            "tx": tx,
            "delay": None if delay is None else seconds("delay", delay),
            "due": _check_time("due", due),
            "priority": None if priority is None else check_priority(priority),
            "deadline": _check_time("deadline", deadline),
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        if due is not None:
            changes["delay"] = 0.0
        elif delay is not None:
            changes["due"] = None
        return replace(self, **changes)


DEFAULT_SUBMIT_OPTIONS = SubmitOptions()


def key_text(key: object, /) -> str:
    """Return a key as text. Raise TypeError or ValueError if it is not valid."""
    if isinstance(key, Key):
        return str(key)
    if isinstance(key, str):
        return str(Key.parse(key))
    raise TypeError(f"a key must be a Key or its text, not {type(key).__name__}: {key!r}")


def check_priority(priority: object, /) -> int:
    """Return a priority. Raise ValueError if it is not valid."""
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
        raise ValueError(
            f"priority must be a whole number from {PRIORITIES[0]} (first) to {PRIORITIES[-1]} "
            f"(last), not {priority!r}"
        )
    return priority


def _check_time(name: str, time: object) -> datetime | None:
    if time is None:
        return None
    if not isinstance(time, datetime):
        raise TypeError(f"{name}= must be a datetime, not {type(time).__name__}: {time!r}")
    if time.tzinfo is None:
        example = "datetime.now(timezone.utc)"
        raise ValueError(f"{name}= needs a time zone, for example {example}: {time!r}")
    return time
