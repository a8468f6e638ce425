"""Kind: what a worker knows of one kind of job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..engine.settings import Settings

Colour: TypeAlias = Literal["plain", "async", "transaction"]
"""How its work is run: in the pool, on the event loop, or in the pool with the connection that settles it."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What a worker knows of one kind of job: how to run it, when to try again, within which limits. Immutable."""

    name: str
    run: Callable[..., Any]
    """`run(lease) -> bytes | None`, the result as it is stored: a function; a coroutine function where the colour is async;
    `run(connection, lease)` where it is transaction. Raises what the work raises; `Undecodable` where the payload does not
    fit."""
    colour: Colour
    settings: Settings
    """Durable attempts: their policy, backoff, rules (`on=`), attempt_timeout. A policy's `timeout` is not read here: give the
    job a deadline."""
    concurrency: int | None = None
    """How many at once, over all workers."""
    rate: float | None = None
    """Starts in a second, over all workers."""
    spent: Literal["dead", "blocked"] = "dead"
    """What a job becomes when its attempts are spent."""
    parks: bool = True
    """An outage parks the kind instead of being charged to its jobs."""
    fn: Callable[..., Any] | None = None
    """The function itself, for those who look at what it is made of."""


class Undecodable(Exception):
    """The payload does not fit the function; says both. A dead letter at once, for this reason.

    because: what is wrong, alike for all jobs of one cause; came: what this one has.
    """

    def __init__(self, because: str, came: str = "", /, *, reason: str = "undecodable") -> None:
        super().__init__(f"{because}. {came}" if came else because)
        self.because = because
        self.reason = reason


class Unstorable(Exception):
    """The work was done, and its result cannot be stored. A dead letter at once: to do it again would not help."""
