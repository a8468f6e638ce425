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
    """A call that gave up, as a function passed as `spill=` gets it. It belongs to that function.

    Attributes:
        operation: Name of the call.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        key: Key of `retry(key=...)`, if there is one.
        error: Class of the last error.
        message: Text of the last error, without secrets.
        attempts: Number of attempts.
        elapsed: Seconds.
        reason: Why it gave up, as in `Outcome`.
        retry_at: When a retry makes sense, if that is known.
        history: The first attempts: class of the error, and seconds waited after it.
    """

    operation: str | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: KeyLike | None
    error: str
    message: str
    attempts: int
    elapsed: float
    reason: Reason
    retry_at: datetime | None
    history: tuple[tuple[str, float], ...]


Spill: TypeAlias = Callable[[Spilled], "str | int | None"]
"""Takes the work over, and says as which job."""


@runtime_checkable
class SpillOver(Protocol):
    """A spill that wants to know the function, when it is decorated: what of its arguments can be stored, for example."""

    def over(self, fn: Callable[..., Any], /) -> Spill:
        """The spill for calls of this function; TypeError or ValueError where it can have none."""
