"""What a call carries with it: the attempt around it, the deadline, the correlation ids.

A context (a thread's, a task's) has one cell, which holds the innermost scope. Plain code changes the cell of its thread in
place and puts it back, since nothing else can run on that thread meanwhile: three times cheaper than `ContextVar.set`.
Async code gets a cell of its own for each attempt, since tasks interleave. A cell seen from another thread (a copied
context) is read only as it was made.
"""

from __future__ import annotations

import copyreg
import math
from _thread import get_ident
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

from .clock import SYSTEM, Clock
from .key import KeyLike


class Layer(Protocol):
    """Who makes the attempts of a scope."""

    @property
    def operation(self) -> str | None:
        """What it is called in journal, budget and tests."""

    @property
    def max_attempts(self) -> int | None:
        """How many attempts it makes at most."""

    @property
    def job_id(self) -> str | None:
        """The job in the ledger whose attempt this is."""


Scope: TypeAlias = "tuple[float, int, Layer | None, KeyLike | None, Scope | None]"
"""(end on the monotonic clock, attempt number, layer, key, outer scope). A plain tuple: one is made for each attempt."""


class Cell:
    """The innermost scope of one context; belongs to the thread that made it."""

    __slots__ = ("base", "scope", "thread")

    def __init__(self, scope: Scope | None, thread: int) -> None:
        self.base = self.scope = scope
        self.thread = thread


CELL: ContextVar[Cell | None] = ContextVar("redrive_cell", default=None)
IDS: ContextVar[Mapping[str, str]] = ContextVar("redrive_ids", default={})  # noqa: B039  # never changed, only replaced
Carrier: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]
CARRIERS: list[Carrier] = []
"""Who adds to the ids around: a tracer, which knows the span that is open. From ids to ids; none of them raises or waits."""


Faults: TypeAlias = Callable[[Layer, Callable[..., Any]], Callable[..., Any]]
"""From a layer and the function it calls to the function that it is to call instead."""


class Stage:
    """A test's own world: its clock, its dice, and the faults it has ordered."""

    __slots__ = ("clock", "draw", "faults", "ledger")

    def __init__(
        self, clock: Clock, draw: Callable[[], float] | None = None, faults: Faults | None = None, *, ledger: bool = False
    ) -> None:
        self.clock = clock
        self.draw = draw
        self.faults = faults
        self.ledger = ledger
        """Ledgers on SQLite go by this clock too."""


STAGE: ContextVar[Stage | None] = ContextVar("redrive_stage", default=None)


class Listeners(list[object]):
    """A list that a process has one of. Pickled by name: a function that was pickled by value finds the one of its process."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __reduce__(self) -> str:
        return self.name


WATCH = Listeners("WATCH")
"""Not empty while anybody anywhere in the process needs calls to take the long way: a stage, or a sink for successes."""
TIMED = Listeners("TIMED")
"""Not empty while calls without a time limit have to read the clock: all that is in WATCH, and every sink, for `latency_ms`."""


def ids_around() -> Mapping[str, str]:
    """The correlation ids of this context, with what others know of it."""
    ids = IDS.get()
    for carrier in CARRIERS:
        ids = carrier(ids)
    return ids


def scope_around() -> Scope | None:
    """The innermost scope of this context."""
    return _innermost(CELL.get())


def _innermost(cell: Cell | None) -> Scope | None:
    if cell is None:
        return None
    return cell.scope if cell.thread == get_ident() else cell.base


def own_cell() -> Cell:
    """This thread's cell, made if this context has none or another thread's."""
    cell = CELL.get()
    thread = get_ident()
    if cell is None or cell.thread != thread:
        cell = Cell(None if cell is None else cell.base, thread)
        CELL.set(cell)
    return cell


class Entered(Cell):
    """A scope that async code or a block is in, until it is left. Several may be left out of turn, as generators are."""

    __slots__ = ("_before", "_left")

    def __init__(self, scope: Scope | None) -> None:
        super().__init__(scope, get_ident())
        self._before = CELL.get()
        self._left = False
        CELL.set(self)

    def leave(self) -> None:
        """Back to what was around. A context that is not this one, and still has the cell, finds that in it."""
        self._left = True
        self.scope = self.base = _innermost(self._before)
        cell = CELL.get()
        around = cell
        while isinstance(around, Entered) and around._left:
            around = around._before
        if around is not cell:
            CELL.set(around)


def clock_around() -> Clock:
    """The clock of this context: a test's own, or the system's."""
    stage = STAGE.get() if WATCH else None
    return SYSTEM if stage is None else stage.clock


def key_around(scope: Scope | None) -> KeyLike | None:
    """The nearest key, from the inside out."""
    while scope is not None:
        if scope[3] is not None:
            return scope[3]
        scope = scope[4]
    return None


def job_around(scope: Scope | None) -> str | None:
    """The id of the job around, if this is part of one."""
    while scope is not None:
        if scope[2] is not None and scope[2].job_id is not None:
            return scope[2].job_id
        scope = scope[4]
    return None


def within(end: float, outer: Scope | None) -> Scope:
    """The same attempt, with a nearer end."""
    if outer is None:
        return (end, 1, None, None, None)
    return (min(end, outer[0]), *outer[1:])


def end_of(scope: Scope | None) -> float:
    """When the time of this scope is over, on the monotonic clock; infinite where there is no limit."""
    return math.inf if scope is None else scope[0]


@contextmanager
def staged(stage: Stage) -> Iterator[None]:
    """Let a test's world hold inside."""
    WATCH.append(stage)
    TIMED.append(stage)
    token = STAGE.set(stage)
    try:
        yield
    finally:
        STAGE.reset(token)
        WATCH.remove(stage)
        TIMED.remove(stage)


def _variable(name: str) -> ContextVar[Any]:
    """The variable of this name in this process."""
    return _VARIABLES[name]


def _reduced(variable: ContextVar[Any]) -> tuple[Any, ...]:
    """How a variable of ours is pickled: by its name. cloudpickle takes a decorated function of `__main__` by value, with all
    that its code refers to."""
    if _VARIABLES.get(variable.name) is not variable:
        raise TypeError(f"cannot pickle {type(variable).__name__!r} object")  # as ever, of anybody else's
    return _variable, (variable.name,)


_VARIABLES: dict[str, ContextVar[Any]] = {variable.name: variable for variable in (CELL, IDS, STAGE)}
copyreg.pickle(ContextVar, _reduced)
