"""Spilled: a call that gave up, as somebody with more time gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ..core.decision import Reason
from ..core.key import KeyLike


@dataclass(frozen=True, slots=True)
class Spilled:
    """A call that gave up: all that is needed to make it again, and what was tried. Belongs to whoever gets it."""

    operation: str | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: KeyLike | None
    """The key of `retry(key=...)`, where there is one."""
    error: str
    """The class of the last error."""
    message: str
    """What the last error said, without secrets."""
    attempts: int
    elapsed: float
    """Seconds."""
    reason: Reason
    retry_at: datetime | None
    """When trying again makes sense, where that is known."""
    history: tuple[tuple[str, float], ...]
    """The first attempts before the last one: the class of its error, and the seconds waited after it."""


Spill: TypeAlias = Callable[[Spilled], "str | int | None"]
"""Takes the work over, and says as which job."""


@runtime_checkable
class SpillOver(Protocol):
    """A spill that wants to know the function, when it is decorated: what of its arguments can be stored, for example."""

    def over(self, fn: Callable[..., Any], /) -> Spill:
        """The spill for calls of this function; TypeError or ValueError where it can have none."""
