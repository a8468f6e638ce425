"""Room: how much more a worker can take, and of what. Pure but for what it remembers.

Whatever is claimed is begun: a crash counts for all that was. So of a kind whose jobs take their time no more is claimed than
there are idle threads. Jobs of less than a millisecond would wait for the ledger most of the time: of those, one thread gets
as many as it does in a few milliseconds. Where the ledger is far away, threads would wait for it likewise: of jobs that are not
much longer than a round trip, each thread has as many in hand as it does in two round trips.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ..ledger.limited import Limit
from ..ledger.record import Lease, lease_name
from .kind import Kind

T = TypeVar("T")
SHORT = 0.001
"""Seconds; jobs that take less are taken by the handful."""
HANDFUL = 0.005
"""Seconds of work in a handful, by what the last ones took."""
MOST = 100
"""In a handful; twice as many of all short ones are in hand at most: some run while others are fetched."""
MOST_FAR = 1000
"""The same where the ledger is far away: a turn is a round trip, whatever it carries."""
FAR = 0.01
"""Seconds of a round trip; where it takes less, the ledger is near."""
WAKE = 0.0001
"""Seconds that it takes about to wake a thread."""
SHARED = ("short", "far")
"""Groups whose jobs share threads."""
LONG = 10
"""Round trips; jobs that take longer gain little by being fetched ahead."""
KNOWN = 0.1
"""The weight of the next one, where enough of a kind were seen to know what its jobs take."""
WEIGHT = 0.05
"""Of the last one in the mean of what jobs of a kind take; of the first ones more: nobody knows anything yet."""


class Want(NamedTuple):
    """What is asked for in one turn."""

    group: str
    kinds: dict[str, int]
    total: int
    limits: Mapping[str, Limit] | None = None


class Room:
    """What is in hand, and what jobs of each kind take. Belongs to one thread."""

    def __init__(self, kinds: Iterable[Kind], threads: int, tasks: int, *, transactions: int = 8) -> None:
        self._kinds = {kind.name: kind for kind in kinds}
        self._limits = {kind.name: Limit(kind.concurrency, kind.rate) for kind in self._kinds.values() if _limited(kind)}
        self._threads, self._tasks, self._transactions = threads, tasks, min(transactions, threads)
        self._means = dict.fromkeys(self._kinds, SHORT * 20)
        self._weights = dict.fromkeys(self._kinds, 0.5)
        self._groups: dict[tuple[int, ...], str] = {}
        self._used = {"plain": 0, "async": 0, "transaction": 0, "short": 0, "far": 0}
        self._last: set[tuple[int, ...]] = set()
        """Started last attempts of jobs that share threads."""
        self._turn = 0
        self.trip = 0.0
        """Seconds of a round trip to the ledger."""

    def handful(self, name: str, /) -> int:
        """How many of this kind one thread is given at once."""
        mean = self._means[name]
        return 1 if mean >= SHORT else max(1, min(self._most, int(max(HANDFUL, self._distance) / max(mean, 1e-6))))

    @property
    def _most(self) -> int:
        """In a handful, at this distance."""
        return MOST if self.trip < FAR else min(MOST_FAR, int(2 * MOST * self.trip / FAR))

    @property
    def _distance(self) -> float:
        return self.trip if self.trip >= FAR else 0.0

    def _ahead(self, name: str) -> int:
        """How many of this kind are fetched ahead for one thread: what it does in two round trips."""
        mean = self._means[name]
        if not SHORT <= mean < LONG * self._distance or self._weights[name] > KNOWN:
            return 0
        kind = self._kinds[name]
        if kind.colour != "plain" or name in self._limits or kind.settings.max_attempts == 1:
            return 0  # an only attempt is not used up by waiting here
        return min(MOST // self._threads or 1, math.ceil(2 * self._distance / mean))

    def took(self, jobs: Iterable[tuple[str, float]], /) -> None:
        """Jobs of these kinds took so long."""
        means, weights = self._means, self._weights
        for name, seconds in jobs:
            weight = weights[name]
            means[name] += weight * (seconds - means[name])
            if weight > WEIGHT:
                weights[name] = max(WEIGHT, weight / (1 + weight))  # as if what was taken for granted were one of them

    def takes(self, given: Iterable[tuple[Kind, Lease]], /) -> float:
        """Jobs came into the hand; how many threads they take."""
        threads = 0.0
        of: dict[str, tuple[str, float]] = {}
        """By kind: its group, and what part of a thread one of them takes."""
        for kind, lease in given:
            known = of.get(kind.name)
            if known is None:
                handful = self.handful(kind.name) if kind.colour == "plain" else 1
                shared = "far" if self._ahead(kind.name) else kind.colour if handful == 1 else "short"
                known = of[kind.name] = (shared, kind.colour != "async" and 1 / handful)
            group, part = known
            self._groups[lease_name(lease)] = group
            self._used[group] += 1
            threads += part
        return threads

    def gives(self, leases: Sequence[Lease], /) -> None:
        """They left."""
        for lease in leases:
            group = self._groups.pop(lease_name(lease), None)
            if group is not None:
                self._used[group] -= 1
        if self._last:
            self._last.difference_update(map(lease_name, leases))

    def shares(self, lease: Lease, /) -> bool:
        """Whether this lease shares threads with others, so that it may have to wait for one."""
        return self._groups.get(lease_name(lease)) in SHARED

    @property
    def startable(self) -> int:
        """How many last attempts that share threads can run at once: one for each thread."""
        return self._threads - self._used["plain"] - self._used["transaction"] - len(self._last)

    def start(self, leases: Iterable[Lease], /) -> None:
        """Count these leases, which share threads, as started."""
        self._last.update(map(lease_name, leases))

    def threads_for(self, kinds: Iterable[str], /) -> int:
        """How many threads to wake for started jobs of these kinds, one for each job at most.

        A job that is started and does not run yet is used up if the worker is killed. So one thread runs several
        jobs only where it is done with all of them before a second thread would be awake.
        """
        jobs, seconds = 0, 0.0
        for name in kinds:
            jobs += 1
            seconds += self._means[name]
        return min(jobs, max(1, math.ceil(seconds / WAKE)))

    def next(self) -> None:
        """It is another's turn to be first."""
        self._turn += 1

    def groups(self, names: Iterable[str], /) -> list[tuple[str, list[str]]]:
        """These kinds by what they share, in fair turns."""
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self.group(name), []).append(name)
        return _turned([(group, _turned(members, self._turn)) for group, members in groups.items()], self._turn)

    def group(self, name: str, /) -> str:
        """What this kind shares with others."""
        if name in self._limits:
            return f"limited:{self._kinds[name].colour}"
        if self._ahead(name):
            return "far"
        return "short" if self._kinds[name].colour == "plain" and self.handful(name) > 1 else self._kinds[name].colour

    def free(self, group: str, /) -> int:
        """How many more of a group there is room for."""
        colour = group.removeprefix("limited:")
        if colour == "async":
            return self._tasks - self._used["async"]
        threads = self._threads - self._used["plain"] - self._used["transaction"]
        if colour == "short":
            most = self._most
            left = 2 * most - self._used["short"]
            return min(most, left) if threads > 0 and left >= most // 2 else 0
        if colour == "far":
            ahead = max(map(self._ahead, self._kinds))
            return max(0, threads * (1 + ahead) - self._used["far"])
        if self._used["short"] or self._used["far"]:
            threads -= 1  # what is short, or fetched ahead, has at least one
        return min(threads, self._transactions - self._used["transaction"]) if colour == "transaction" else threads

    def want(self, group: str, members: list[str], /) -> Want:
        """What to ask for now."""
        free = max(0, self.free(group))
        if group == "far":
            most = {name: min(free, self._threads * (1 + self._ahead(name))) for name in members}
        elif group == "short":
            most = {name: min(free, self.handful(name) * max(1, self._threads // 2)) for name in members}
        else:
            most = dict.fromkeys(members, free)
        limits = self._limits if group.startswith("limited:") else None
        return Want(group, most, min(free, sum(most.values())), limits)

    def grant(self, kinds: Mapping[str, int], names: Container[str], /) -> tuple[dict[str, int], bool]:
        """How many of what comes can be begun at once; and whether there will be room for more in a moment.

        kinds: how many came of each; names: those of which something may be begun now.
        """
        granted: dict[str, int] = {}
        left: dict[str, int] = {}
        soon = False
        for name, came in kinds.items():
            if name not in names or name not in self._kinds or name in self._limits:
                continue
            if self._kinds[name].settings.max_attempts == 1:
                continue  # an only attempt starts by a later write, see Clerk._write
            group = self.group(name)
            most = min(came, left.get(group, max(0, self.free(group))))
            if group == "short":
                whole = min(came, self._most, self.handful(name) * max(1, self._threads // 2))
                most = min(most, whole)
                soon = soon or most < whole
            granted[name] = most
            left[group] = left.get(group, max(0, self.free(group))) - most
        return granted, soon

    def limits(self, name: str, /) -> Mapping[str, Limit] | None:
        """The limits, if this kind has one."""
        return self._limits if name in self._limits else None


def _limited(kind: Kind) -> bool:
    return kind.concurrency is not None or kind.rate is not None


def _turned(items: list[T], by: int) -> list[T]:
    at = by % len(items) if items else 0
    return items[at:] + items[:at]
