"""Options: what `command.using(...)` said of one submission."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from ..core.key import Key, KeyLike
from ..core.seconds import Seconds, seconds
from ..ledger.state import PRIORITIES


@dataclass(frozen=True, slots=True)
class Options:
    """What was said of one submission. Immutable."""

    key: str | None = None
    tx: Any = None
    delay: float = 0.0
    due: datetime | None = None
    priority: int | None = None
    deadline: datetime | None = None

    def with_(
        self, *, key: KeyLike | None, tx: Any, delay: Seconds | None, due: datetime | None, priority: int | None,
        deadline: datetime | None,
    ) -> Self:  # fmt: skip
        """The same with these, each checked; None: as it was."""
        if delay is not None and due is not None:
            raise TypeError("pass delay= or due=, not both")
        changes: dict[str, Any] = {
            "key": None if key is None else said(key),
            "tx": tx,
            "delay": None if delay is None else seconds("delay", delay),
            "due": _moment("due", due),
            "priority": None if priority is None else urgency(priority),
            "deadline": _moment("deadline", deadline),
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        if due is not None:
            changes["delay"] = 0.0
        elif delay is not None:
            changes["due"] = None
        return replace(self, **changes)


NONE = Options()


def said(key: object, /) -> str:
    """A key that somebody gave, checked, as text."""
    if isinstance(key, Key):
        return str(key)
    if isinstance(key, str):
        return str(Key.parse(key))
    raise TypeError(f"a key must be a Key or its text, not {type(key).__name__}: {key!r}")


def urgency(priority: object, /) -> int:
    """A priority, checked."""
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
        raise ValueError(
            f"priority must be a whole number from {PRIORITIES[0]} (first) to {PRIORITIES[-1]} (last), not {priority!r}"
        )
    return priority


def _moment(name: str, moment: object) -> datetime | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise TypeError(f"{name}= must be a datetime, not {type(moment).__name__}: {moment!r}")
    if moment.tzinfo is None:
        raise ValueError(f"{name}= needs a time zone, for example datetime.now(timezone.utc): {moment!r}")
    return moment
