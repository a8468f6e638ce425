"""What a call carries with it: the attempt around it, the deadline, and the correlation ids.

Each context (of a thread or of a task) has one slot, which holds the innermost scope. Sync code
changes the slot of its thread in place and restores it, because nothing else runs on that thread
meanwhile. That is three times cheaper than `ContextVar.set`. Async code gets a new slot for each
attempt, because tasks interleave. A slot that is seen from another thread (a copied context) shows
only the scope that it was created with.
"""

from __future__ import annotations

import copyreg
import math
from _thread import get_ident
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from .clock import SYSTEM, Clock

if TYPE_CHECKING:
    from .key import KeyLike


class ScopeLayer(Protocol):
    """The retry layer, job or key that makes the attempts of a scope."""

    @property
    def operation(self) -> str | None:
        """Name in log records, budgets and tests."""

    @property
    def max_attempts(self) -> int | None:
        """Maximum number of attempts."""

    @property
    def job_id(self) -> str | None:
        """Id of the job in the ledger whose attempt this is."""


Scope: TypeAlias = "tuple[float, int, ScopeLayer | None, KeyLike | None, Scope | None]"
"""One attempt: its end on the monotonic clock, its number, layer, key, and the scope around it.

A plain tuple, because each attempt creates one. The constants below are its indexes.
"""
END: Final = 0
ATTEMPT: Final = 1
LAYER: Final = 2
KEY: Final = 3
OUTER: Final = 4


class ContextSlot:
    """Holds the innermost scope of one context. It belongs to the thread that created it."""

    __slots__ = ("base", "scope", "thread")

    def __init__(self, scope: Scope | None, thread: int) -> None:
        self.base = self.scope = scope
        self.thread = thread


SLOT: ContextVar[ContextSlot | None] = ContextVar("redrive_cell", default=None)
IDS: ContextVar[Mapping[str, str]] = ContextVar("redrive_ids", default={})  # noqa: B039  # never changed, only replaced
Carrier: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]
CARRIERS: list[Carrier] = []
"""Functions from ids to ids that add to the correlation ids, such as a tracer that knows the open
span. They must neither raise nor block."""


FaultInjector: TypeAlias = Callable[[ScopeLayer, Callable[..., Any]], Callable[..., Any]]
"""Takes a layer and the function that it calls. Returns the function to call instead."""


class Simulation:
    """The environment of a test: its clock, its random draws, and the faults that it injects."""

    __slots__ = ("clock", "draw", "faults", "ledger")

    def __init__(
        self,
        clock: Clock,
        draw: Callable[[], float] | None = None,
        faults: FaultInjector | None = None,
        *,
        ledger: bool = False,
    ) -> None:
        self.clock = clock
        self.draw = draw
        self.faults = faults
        self.ledger = ledger
        """Whether ledgers on SQLite use this clock too."""


SIMULATION: ContextVar[Simulation | None] = ContextVar("redrive_stage", default=None)


class Registered(list[object]):
    """A list that exists once in a process. It is pickled by its name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __reduce__(self) -> str:
        return self.name


SLOW_PATH_USERS = Registered("SLOW_PATH_USERS")
"""Simulations and sinks for successes. While there is one, every call takes the reference loop."""
CLOCK_USERS = Registered("CLOCK_USERS")
"""All of the above, and every other sink: they need `latency_ms`. While there is one, calls without
a time limit take the reference loop too, which reads the clock."""


def ids_around() -> Mapping[str, str]:
    """Return the correlation ids of this context, with those that carriers add."""
    ids = IDS.get()
    for carrier in CARRIERS:
        ids = carrier(ids)
    return ids


def scope_around() -> Scope | None:
    """Return the innermost scope of this context."""
    return _innermost(SLOT.get())


def _innermost(slot: ContextSlot | None) -> Scope | None:
    if slot is None:
        return None
    return slot.scope if slot.thread == get_ident() else slot.base


def own_slot() -> ContextSlot:
    """Return the slot of this thread. Create it if this context has none, or another thread's."""
    slot = SLOT.get()
    thread = get_ident()
    if slot is None or slot.thread != thread:
        slot = ContextSlot(None if slot is None else slot.base, thread)
        SLOT.set(slot)
    return slot


class ActiveScope(ContextSlot):
    """A scope of async code or of a block, until `leave`.

    Scopes may be left in another order than they were entered, as generators do.
    """

    __slots__ = ("_has_left", "_previous")

    def __init__(self, scope: Scope | None) -> None:
        super().__init__(scope, get_ident())
        self._previous = SLOT.get()
        self._has_left = False
        SLOT.set(self)

    def leave(self) -> None:
        """Restore the scope around. Contexts that still hold this slot see that scope in it."""
        self._has_left = True
        self.scope = self.base = _innermost(self._previous)
        current = SLOT.get()
        slot = current
        while isinstance(slot, ActiveScope) and slot._has_left:
            slot = slot._previous
        if slot is not current:
            SLOT.set(slot)


def clock_around() -> Clock:
    """Return the clock of the simulation around this code, or the system clock."""
    simulation = SIMULATION.get() if SLOW_PATH_USERS else None
    return SYSTEM if simulation is None else simulation.clock


def key_around(scope: Scope | None) -> KeyLike | None:
    """Return the innermost key of these scopes."""
    while scope is not None:
        if scope[KEY] is not None:
            return scope[KEY]
        scope = scope[OUTER]
    return None


def job_around(scope: Scope | None) -> str | None:
    """Return the id of the job that these scopes are part of."""
    layer = job_layer_around(scope)
    return None if layer is None else layer.job_id


def job_layer_around(scope: Scope | None) -> ScopeLayer | None:
    """Return the layer of the job that these scopes are part of."""
    while scope is not None:
        layer = scope[LAYER]
        if layer is not None and layer.job_id is not None:
            return layer
        scope = scope[OUTER]
    return None


def within(end: float, outer: Scope | None) -> Scope:
    """Return the same attempt with an earlier end."""
    if outer is None:
        return (end, 1, None, None, None)
    return (min(end, outer[END]), *outer[1:])


def end_of(scope: Scope | None) -> float:
    """Return the end of a scope on the monotonic clock. It is infinite if there is no limit."""
    return math.inf if scope is None else scope[END]


@contextmanager
def simulate(simulation: Simulation) -> Iterator[None]:
    """Use a simulation inside the block."""
    SLOW_PATH_USERS.append(simulation)
    CLOCK_USERS.append(simulation)
    token = SIMULATION.set(simulation)
    try:
        yield
    finally:
        SIMULATION.reset(token)
        SLOW_PATH_USERS.remove(simulation)
        CLOCK_USERS.remove(simulation)


def _variable(name: str) -> ContextVar[Any]:
    """Return the context variable of this name in this process."""
    return _VARIABLES[name]


def _reduce_variable(variable: ContextVar[Any]) -> tuple[Any, ...]:
    """Pickle our context variables by name.

    cloudpickle pickles a decorated function of `__main__` by value, with everything that its code
    refers to.
    """
    if _VARIABLES.get(variable.name) is not variable:
        raise TypeError(f"cannot pickle {type(variable).__name__!r} object")  # as without us
    return _variable, (variable.name,)


_VARIABLES: dict[str, ContextVar[Any]] = {
    variable.name: variable for variable in (SLOT, IDS, SIMULATION)
}
copyreg.pickle(ContextVar, _reduce_variable)

MAX_ID_CHARS = 256
"""Longer ids are shortened, not rejected, because they may come from a client."""
MAX_NAME_CHARS = 100
MAX_IDS = 64
"""Ids in one context."""
DIGEST_CHARS = 16


def shorten_id(value: str, /) -> str:
    """Return the id, or its start and a digest if it is too long. Different ids stay different."""
    if len(value) <= MAX_ID_CHARS:
        return value
    from hashlib import sha256  # noqa: PLC0415  # 2 ms, rarely used

    digest = sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARS]
    return f"{value[: MAX_ID_CHARS - DIGEST_CHARS - 1]}~{digest}"


def merge_ids(outer: Mapping[str, str], added: Mapping[str, str], /) -> dict[str, str]:
    """Return the ids of the context with these added, shortened if necessary.

    Raises:
        ValueError: There are too many ids, or a name is too long.
    """
    merged = {**outer, **{name: shorten_id(value) for name, value in added.items()}}
    if len(merged) > MAX_IDS:
        raise ValueError(
            f"correlation ids: {len(merged)} at once; "
            f"carry at most {MAX_IDS}, and put the rest into the payload"
        )
    for name in added:
        if len(name) > MAX_NAME_CHARS:
            raise ValueError(
                f"correlation ids: the name {name[:40]!r}… has {len(name)} characters; "
                f"use at most {MAX_NAME_CHARS}"
            )
    return merged
