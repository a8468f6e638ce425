"""A worker's turn: what it does, in which order, and when the next one starts.

No I/O but one query.

The dispatcher tells `TurnState` what happened, asks `plan_turn` what to do, and waits until
`next_turn_at`. Times are on the monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

POLL_SECONDS = 5.0
"""Time after which a worker claims even without a notification."""
DUE_QUERY_SECONDS = 0.25
"""Minimum time between two queries for the next due job."""
BUSY_SIGNAL_SECONDS = 0.1
"""Time between two reactions to submissions on SQLite while sources keep the worker busy."""


class SubmissionSignal:
    """Says that jobs were submitted. Any thread may set it; the ledger thread reads it.

    It is handled at once, except on SQLite while sources keep the worker busy: there a worker also
    hears its own commits, and checking each of them would waste a transaction.
    """

    def __init__(self, *, hears_own_writes: bool) -> None:
        self.hears_own_writes = hears_own_writes
        self._is_set, self._handled_at = True, -math.inf

    def set(self) -> None:
        """Note that jobs were submitted."""
        self._is_set = True

    def clear(self, now: float, /) -> None:
        """Note that the ledger thread looks for jobs now."""
        self._is_set, self._handled_at = False, now

    def handle_at(self, *, is_busy: bool) -> float:
        """Return when to look for submitted jobs."""
        if not self._is_set:
            return math.inf
        return (
            self._handled_at + BUSY_SIGNAL_SECONDS
            if is_busy and self.hears_own_writes
            else -math.inf
        )


class NextDuePoll:
    """Finds when the next scheduled job or retry is due, to claim it without a notification.

    Used by the ledger thread only.
    """

    def __init__(self, query: Callable[[], float | None]) -> None:
        """query: Returns the seconds until the next job is due, or None without jobs."""
        self._query = query
        self._due_at, self._queried_at, self._is_stale = math.inf, -math.inf, True

    def invalidate(self) -> None:
        """Note that jobs were submitted, so that an earlier one may be due."""
        self._is_stale = True

    def note_due_at(self, due_at: float, /) -> None:
        """Note that a job is due then."""
        self._due_at = min(self._due_at, due_at)

    def refresh(self, now: float, /) -> bool:
        """Query the ledger. Return whether a job is due."""
        self._queried_at, self._is_stale = now, False
        wait = self._query()
        self._due_at = math.inf if wait is None else now + wait
        return self._due_at <= now

    def next(self, now: float, /) -> float:
        """Return when to claim again."""
        age = now - self._queried_at
        is_doubtful = self._is_stale or self._due_at <= now
        if age > POLL_SECONDS or (age >= DUE_QUERY_SECONDS and is_doubtful):
            self.refresh(now)
        # A due job that we did not get is being claimed by another worker or held back by a limit.
        is_doubtful = self._is_stale or self._due_at <= now
        claim_at = self._queried_at + DUE_QUERY_SECONDS if is_doubtful else self._due_at
        return min(claim_at, now + POLL_SECONDS)


@dataclass
class TurnState:
    """What the dispatcher remembers between two turns. Changed by the ledger thread only.

    Attributes:
        signal: Says that jobs were submitted.
        next_due: When the next scheduled job or retry is due.
        empty_until: For each group whose last claim got fewer jobs than requested: the time of its
            next claim.
        is_backlogged: The last claim got all it asked for. Drain that backlog before storing new
            events.
        are_arrivals_deferred: Storing events was postponed until there is capacity for them.
        stop_at: When running jobs must have ended. None: the worker is not stopping. Any thread may
            set it.
    """

    signal: SubmissionSignal
    next_due: NextDuePoll
    empty_until: dict[str, float] = field(default_factory=dict)
    is_backlogged: bool = False
    are_arrivals_deferred: bool = False
    stop_at: float | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether the worker takes no more jobs."""
        return self.stop_at is not None

    def stop_by(self, time: float, /) -> None:
        """Stop, and end running jobs by this time at the latest."""
        self.stop_at = time if self.stop_at is None else min(time, self.stop_at)

    # ---- which groups to claim ----

    def can_claim(self, group: str, /, *, has_settlements: bool) -> bool:
        """Return whether a group is worth a claim.

        Settlements are written with it, so then it costs nothing.
        """
        return group not in self.empty_until or has_settlements

    def on_claimed(self, group: str, requested: int, received: int, now: float, /) -> None:
        """Note the result of a claim."""
        self.is_backlogged |= received == requested
        if received < requested:
            self.empty_until[group] = self.next_due.next(now)

    def on_limited_claim(self, group: str, retry_in: float, now: float, /) -> None:
        """Note that limits over all workers held jobs of a group back."""
        self.empty_until[group] = min(now + retry_in, self.next_due.next(now))

    def reopen(self, groups: Iterable[str], /) -> None:
        """Claim these groups again: they got jobs, or capacity."""
        for group in groups:
            self.empty_until.pop(group, None)

    def on_retries_settled(self, due_at: float, /) -> None:
        """Note that a retry is due then."""
        self.next_due.note_due_at(due_at)
        self.empty_until = {group: min(until, due_at) for group, until in self.empty_until.items()}

    def expire_empty(self, now: float, /, *, is_busy: bool) -> None:
        """Forget that groups are empty if jobs were submitted or their time has come.

        Args:
            now: The time.
            is_busy: Whether sources keep the worker busy.
        """
        if self.signal.handle_at(is_busy=is_busy) <= now:
            self.signal.clear(now)
            empty, self.empty_until = self.empty_until, {}
            # One query instead of a claim for each group, where each claim is a transaction.
            if is_busy and self.signal.hears_own_writes and not self.next_due.refresh(now):
                next_due = self.next_due.next(now)
                self.empty_until = {group: min(until, next_due) for group, until in empty.items()}
            else:
                self.next_due.invalidate()
        for group in [group for group, until in self.empty_until.items() if until <= now]:
            del self.empty_until[group]


class TurnPlan(NamedTuple):
    """What one turn does, in this order: store arrivals, claim, release, store arrivals, settle.

    Attributes:
        store_arrivals_first: Store arrived events before the claims; otherwise after them.
        claims: Claim and start jobs.
        defers_settlements: Leave settlements for the transaction that stores the next events.
        releases_unstarted: Release last attempts that are claimed and not started.
    """

    store_arrivals_first: bool
    claims: bool
    defers_settlements: bool
    releases_unstarted: bool


def plan_turn(state: TurnState, /, *, expects_arrivals: bool, is_clock_trusted: bool) -> TurnPlan:
    """Plan the next turn.

    Args:
        state: The state.
        expects_arrivals: Whether events wait to be stored, or will very soon.
        is_clock_trusted: Whether the worker's clock agrees with the ledger's.
    """
    return TurnPlan(
        store_arrivals_first=not state.is_backlogged,
        claims=not state.is_stopping and is_clock_trusted,
        # With a backlog a claim is sure to find jobs, and takes the settlements along.
        defers_settlements=expects_arrivals and not state.is_backlogged,
        releases_unstarted=state.is_stopping,
    )


def next_turn_at(state: TurnState, /, *, is_busy: bool, times: Sequence[float]) -> float:
    """Return when the next turn starts if nothing happens before.

    Args:
        state: The state.
        is_busy: Whether sources keep the worker busy.
        times: When maintenance, arrivals, probes and quarantined jobs need a turn.
    """
    if state.stop_at is not None:
        return min([state.stop_at, *times])
    handle_at = state.signal.handle_at(is_busy=is_busy)
    return min([*state.empty_until.values(), handle_at, *times])
