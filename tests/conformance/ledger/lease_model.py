"""A model of lease, fence and settle: one job, two workers, a reaper, an operator, and time.

A state is a value, and `successors` returns every action that is possible in it with the state after it. So all interleavings to
a depth can be explored, without a ledger. `test_lease_model.py` checks the properties of every state, and that the statements of
the real ledger do the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

WORKERS = ("ann", "bob")
MAX_CRASHES = 3
LONE_CRASHES = 2
"""Lost attempts after which a job is claimed alone."""
ENDED = ("done", "cancelled", "dropped")

JobState: TypeAlias = Literal["ready", "leased", "done", "dead", "cancelled", "dropped"]
LetterState: TypeAlias = Literal["", "pending", "replaying", "replayed", "discarded"]


class HeldLease(NamedTuple):
    """What a worker knows of its lease. It may have lost it."""

    generation: int
    fence: int


class Action(NamedTuple):
    """An action of an actor: a worker, the reaper, the operator, or time."""

    actor: str
    verb: str

    def __str__(self) -> str:
        return f"{self.actor} {self.verb}"


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The job, its dead letter, and the leases that the workers believe in."""

    job: JobState = "ready"
    fence: int = 0
    attempts: int = 0
    crashes: int = 0
    is_expired: bool = False
    """Whether the time of the current lease has passed."""
    is_cancelled: bool = False
    """Whether the running job was asked to stop."""
    letter: LetterState = ""
    generation: int = 1
    """A replay makes a new job with the same key."""
    leases: tuple[HeldLease | None, ...] = (None,) * len(WORKERS)

    @property
    def current(self) -> HeldLease | None:
        """The lease that may settle the job."""
        return HeldLease(self.generation, self.fence) if self.job == "leased" else None

    def holds(self, worker: int) -> bool:
        """Return whether the lease of this worker is the current one."""
        return self.leases[worker] is not None and self.leases[worker] == self.current


def successors(state: LeaseState) -> Iterator[tuple[Action, LeaseState]]:
    """Return every possible action and the state after it."""
    for worker, name in enumerate(WORKERS):
        if state.leases[worker] is None:
            yield Action(name, "claim"), _claim(state, worker)
        else:
            yield Action(name, "renew"), _renew(state, worker)
            for outcome in ("done", "again", "dead"):
                yield Action(name, outcome), _settle(state, worker, outcome)
    if state.job == "leased" and not state.is_expired:
        yield Action("time", "passes"), replace(state, is_expired=True)
    yield Action("reaper", "reaps"), _reap(state)
    if state.generation == 1:
        yield Action("operator", "cancels"), _cancel(state)
    if state.letter == "pending":
        yield Action("operator", "replays"), _replay(state)
        yield Action("operator", "discards"), replace(state, job="dropped", letter="discarded")


def _with_lease(state: LeaseState, worker: int, lease: HeldLease | None) -> LeaseState:
    leases = tuple(lease if place == worker else other for place, other in enumerate(state.leases))
    return replace(state, leases=leases)


def _claim(state: LeaseState, worker: int) -> LeaseState:
    if state.job != "ready":
        return state
    claimed = replace(state, job="leased", fence=state.fence + 1, attempts=state.attempts + 1, is_expired=False)
    return _with_lease(claimed, worker, claimed.current)


def _renew(state: LeaseState, worker: int) -> LeaseState:
    # A lease that has expired and was not reaped is still the current one.
    return replace(state, is_expired=False) if state.holds(worker) else _with_lease(state, worker, None)


def _settle(state: LeaseState, worker: int, outcome: str) -> LeaseState:
    settled = _with_lease(state, worker, None)
    if not state.holds(worker):
        return settled
    if outcome == "done":
        return replace(settled, job="done", letter="replayed" if state.letter else "", is_expired=False, is_cancelled=False)
    if state.is_cancelled:
        return replace(settled, job="cancelled", is_expired=False, is_cancelled=False)
    if outcome == "again":
        return replace(settled, job="ready", is_expired=False)
    return replace(settled, job="dead", letter="pending", is_expired=False)


def _reap(state: LeaseState) -> LeaseState:
    if not state.is_expired:
        return state
    if state.is_cancelled:
        return replace(state, job="cancelled", is_expired=False, is_cancelled=False)
    lost = replace(state, job="ready", crashes=state.crashes + 1, is_expired=False)
    if lost.crashes >= MAX_CRASHES:
        return replace(lost, job="dead", letter="pending")
    return lost


def _cancel(state: LeaseState) -> LeaseState:
    if state.job == "ready":
        return replace(state, job="cancelled")
    return replace(state, is_cancelled=True) if state.job == "leased" else state


def _replay(state: LeaseState) -> LeaseState:
    return LeaseState(letter="replaying", generation=state.generation + 1, leases=state.leases)


@dataclass
class Explored:
    """The states that can be reached within a number of actions, with a shortest path to each."""

    paths: dict[LeaseState, tuple[Action, ...]] = field(default_factory=dict)
    edges: dict[LeaseState, Mapping[Action, LeaseState]] = field(default_factory=dict)


def explore(depth: int) -> Explored:
    """Return every state within `depth` actions, and the actions in all states but the last ones."""
    explored = Explored({LeaseState(): ()})
    frontier = [LeaseState()]
    for _ in range(depth):
        reached = []
        for state in frontier:
            explored.edges[state] = dict(successors(state))
            for action, after in explored.edges[state].items():
                if after not in explored.paths:
                    explored.paths[after] = (*explored.paths[state], action)
                    reached.append(after)
        frontier = reached
    return explored
