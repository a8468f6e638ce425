"""Capacity: which leases a worker holds, and how many more jobs of each type it can run.

Claimed jobs are started immediately, so a crash charges an attempt to each. For slow jobs, a worker
claims at most one for each idle thread. Jobs of less than a millisecond would spend most of their
time waiting for the ledger: one thread gets as many of them as it runs in a few milliseconds. If
the ledger is far away, the same holds for jobs that are not much longer than a round trip: each
thread gets as many as it runs in two round trips.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple, TypeVar

from ..ledger.jobs.limits import Limit
from ..ledger.model import Lease, lease_key
from .job_type import JobType

T = TypeVar("T")
LeaseName = tuple[int, ...]

SHORT_JOB_SECONDS = 0.001
"""Jobs that take less share a thread."""
BATCH_SECONDS = 0.005
"""Work of one thread's batch of short jobs."""
MAX_BATCH = 100
"""Jobs in a batch.

At most twice as many short jobs are in flight. Some run while others are claimed.
"""
MAX_REMOTE_BATCH = 2000
"""The same for a remote ledger: a turn costs a round trip, regardless of its size."""
REMOTE_SECONDS = 0.01
"""Round trip from which a ledger counts as remote."""
WAKE_SECONDS = 0.0001
"""Approximate time to wake a thread."""
MAX_PREFETCHED_ROUND_TRIPS = 10
"""Jobs that take longer than this many round trips are not prefetched."""
FAIR = "fair:"
"""Prefix of the group of a job type with tenants, which is claimed by itself."""
SHARED_GROUPS = ("short", "prefetched")
"""Groups whose jobs share threads."""
CANCELLABLE = ("async", "process")
"""Executions whose jobs can be stopped, and are when their time is over."""
INITIAL_WEIGHT, MIN_WEIGHT, KNOWN_WEIGHT = 0.5, 0.05, 0.1
"""Weight of the newest sample in the moving average of job durations: at first, at last, and from
when on the average is trusted."""
NO_LIMIT = Limit()


class ClaimRequest(NamedTuple):
    """What to claim in one turn: a group, the maximum for each job type, and the total."""

    group: str
    max_by_type: dict[str, int]
    total: int
    limits: Mapping[str, Limit] | None = None
    fair: bool = False
    """The tenants of the only job type take turns."""


class HeldLease(NamedTuple):
    """A lease in flight, and since when on the monotonic clock."""

    lease: Lease
    job_type: JobType
    since: float


class InFlight:
    """The leases that a worker holds.

    Changed by the ledger thread only; other threads may read counts.
    """

    def __init__(self) -> None:
        self._held: dict[LeaseName, tuple[Lease, JobType, float]] = {}
        """Plain tuples: short jobs come by the hundred, and most are never looked at."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, jobs: Iterable[tuple[JobType, Lease]], /) -> None:
        """Start tracking these leases."""
        now = monotonic()
        self._held.update({lease_key(lease): (lease, job_type, now) for job_type, lease in jobs})

    def remove(self, leases: Iterable[Lease], /) -> list[Lease]:
        """Stop tracking these leases. Return those that were tracked."""
        return [lease for lease in leases if self._held.pop(lease_key(lease), None) is not None]

    def held_longer_than(self, seconds: float, /) -> list[Lease]:
        """Return the leases that were added this long ago."""
        before = monotonic() - seconds
        return [lease for lease, _, since in self._held.values() if since <= before]

    def get(self, keys: Iterable[LeaseName], /) -> list[Lease]:
        """Return the leases with these keys that are tracked."""
        return [held[0] for key in keys if (held := self._held.get(key)) is not None]

    def all(self) -> list[HeldLease]:
        """Return all leases."""
        return list(map(HeldLease._make, list(self._held.values())))

    @property
    def has_cancellable(self) -> bool:
        """Whether a job runs on the event loop or in a process."""
        return any(
            job_type.execution in CANCELLABLE for _, job_type, _ in list(self._held.values())
        )

    @property
    def overdue(self) -> int:
        """Number of sync functions that run longer than their attempt timeout."""
        now = monotonic()
        return sum(
            held.job_type.execution not in CANCELLABLE
            and held.job_type.settings.attempt_timeout is not None
            and now - held.since > held.job_type.settings.attempt_timeout
            for held in self.all()
        )


class Capacity:
    """Free capacity by group of job types, and the average duration of each type.

    A group is a set of job types that share something: the event loop, threads, connections for
    transactions, processes, a limit over all workers. Used by the ledger thread only.
    """

    def __init__(
        self,
        job_types: Iterable[JobType],
        threads: int,
        tasks: int,
        *,
        transactions: int = 8,
        processes: int = 1,
    ) -> None:
        self._job_types = {job_type.name: job_type for job_type in job_types}
        self._limits: dict[str, Limit] = {}
        """The limits over all workers by job type: of the code, or set at run time."""
        self.set_run_time_limits({})
        self._threads, self._tasks = threads, tasks
        self._transactions, self._processes = min(transactions, threads), processes
        self._mean_seconds = dict.fromkeys(self._job_types, SHORT_JOB_SECONDS * 20)
        self._weights = dict.fromkeys(self._job_types, INITIAL_WEIGHT)
        self._group_of_lease: dict[LeaseName, str] = {}
        self._used = dict.fromkeys(("thread", "async", "transaction", "process"), 0)
        self._used |= dict.fromkeys(SHARED_GROUPS, 0)
        self._started_last: set[LeaseName] = set()
        """Started last attempts of jobs that share threads."""
        self._rotation = 0
        self.round_trip = 0.0
        """Seconds of a round trip to the ledger."""

    # ---- limits ----

    def set_run_time_limits(self, limits: Mapping[str, Limit], /) -> bool:
        """Replace limits of the code by these. Return whether a limit has changed.

        A value that is None stays as in the code. The next claim uses the new limits.
        """
        before = self._limits
        self._limits = {}
        for name, job_type in self._job_types.items():
            own = limits.get(name, NO_LIMIT)
            limit = Limit(
                job_type.concurrency if own.concurrency is None else own.concurrency,
                job_type.rate if own.rate is None else own.rate,
                job_type.tenants,
                job_type.is_sequenced,
            )
            if limit.is_limited:
                self._limits[name] = limit
        return self._limits != before

    def has_concurrency_limit(self, name: str, /) -> bool:
        """Return whether the number of running jobs of this type is limited over all workers.

        Also of one tenant, or of one sequence.
        """
        limit = self._limits.get(name)
        return limit is not None and limit.waits_for_running

    # ---- durations ----

    def record_durations(self, durations: Iterable[tuple[str, float]], /) -> None:
        """Add durations of jobs, by job type, to the moving averages."""
        means, weights = self._mean_seconds, self._weights
        for name, seconds in durations:
            weight = weights[name]
            means[name] += weight * (seconds - means[name])
            if weight > MIN_WEIGHT:
                # The initial guess counts as one sample.
                weights[name] = max(MIN_WEIGHT, weight / (1 + weight))

    def batch_size(self, name: str, /) -> int:
        """Return how many jobs of this type one thread gets at once."""
        mean = self._mean_seconds[name]
        if mean >= SHORT_JOB_SECONDS:
            return 1
        size = int(max(BATCH_SECONDS, self._remote_round_trip) / max(mean, 1e-6))
        return max(1, min(self._max_batch, size))

    @property
    def _max_batch(self) -> int:
        if self.round_trip < REMOTE_SECONDS:
            return MAX_BATCH
        return min(MAX_REMOTE_BATCH, int(4 * MAX_BATCH * self.round_trip / REMOTE_SECONDS))

    @property
    def _remote_round_trip(self) -> float:
        return self.round_trip if self.round_trip >= REMOTE_SECONDS else 0.0

    def _prefetched_per_thread(self, name: str) -> int:
        """Return how many jobs of this type are claimed ahead for one thread."""
        mean = self._mean_seconds[name]
        is_short_enough = mean < MAX_PREFETCHED_ROUND_TRIPS * self._remote_round_trip
        if (
            not mean >= SHORT_JOB_SECONDS
            or not is_short_enough
            or self._weights[name] > KNOWN_WEIGHT
        ):
            return 0
        job_type = self._job_types[name]
        # A last attempt must not wait here after it was started.
        is_single_attempt = job_type.settings.max_attempts == 1
        if job_type.execution != "thread" or name in self._limits or is_single_attempt:
            return 0
        return min(MAX_BATCH // self._threads or 1, math.ceil(2 * self._remote_round_trip / mean))

    # ---- leases in flight ----

    def acquire(self, jobs: Iterable[tuple[JobType, Lease]], /) -> float:
        """Count these leases as in flight. Return how many threads they need."""
        threads = 0.0
        shares: dict[str, tuple[str, float]] = {}
        """Group of each job type, and the part of a thread that one job needs."""
        for job_type, lease in jobs:
            share = shares.get(job_type.name)
            if share is None:
                share = shares[job_type.name] = self._share_of(job_type)
            group, part = share
            self._group_of_lease[lease_key(lease)] = group
            self._used[group] += 1
            threads += part
        return threads

    def _share_of(self, job_type: JobType) -> tuple[str, float]:
        if job_type.execution in CANCELLABLE:
            return job_type.execution, 0.0
        batch = self.batch_size(job_type.name) if job_type.execution == "thread" else 1
        if self._prefetched_per_thread(job_type.name):
            return "prefetched", 1 / batch
        return job_type.execution if batch == 1 else "short", 1 / batch

    def release(self, leases: Sequence[Lease], /) -> None:
        """Release the capacity held by these leases."""
        for lease in leases:
            group = self._group_of_lease.pop(lease_key(lease), None)
            if group is not None:
                self._used[group] -= 1
        if self._started_last:
            self._started_last.difference_update(map(lease_key, leases))

    def is_shared(self, lease: Lease, /) -> bool:
        """Return whether this lease shares threads, so that it may have to wait for one."""
        return self._group_of_lease.get(lease_key(lease)) in SHARED_GROUPS

    @property
    def free_for_last_attempts(self) -> int:
        """How many last attempts that share threads can run at once: one for each thread."""
        return (
            self._threads
            - self._used["thread"]
            - self._used["transaction"]
            - len(self._started_last)
        )

    def start_last(self, leases: Iterable[Lease], /) -> None:
        """Count these leases, which share threads, as started last attempts."""
        self._started_last.update(map(lease_key, leases))

    def threads_for(self, names: Iterable[str], /) -> int:
        """Return how many threads to wake for started last attempts of these job types.

        A job that is started but does not run yet is lost if the worker is killed. So one thread
        runs several jobs only if it ends all of them before a second thread would be awake.
        """
        jobs, seconds = 0, 0.0
        for name in names:
            jobs += 1
            seconds += self._mean_seconds[name]
        return min(jobs, max(1, math.ceil(seconds / WAKE_SECONDS)))

    # ---- claims ----

    def rotate(self) -> None:
        """Rotate the order in which groups and job types are served."""
        self._rotation += 1

    def groups(self, names: Iterable[str], /) -> list[tuple[str, list[str]]]:
        """Return these job types by group, in the current rotation."""
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self.group_of(name), []).append(name)
        rotation = self._rotation
        members = [(group, _rotate(names, rotation)) for group, names in groups.items()]
        return _rotate(members, rotation)

    def group_of(self, name: str, /) -> str:
        """Return the group of a job type."""
        execution = self._job_types[name].execution
        if name in self._limits:
            return f"limited:{execution}"
        if self._job_types[name].tenants is not None:
            return f"{FAIR}{self._base_group(name)}:{name}"
        return self._base_group(name)

    def _base_group(self, name: str) -> str:
        execution = self._job_types[name].execution
        if self._prefetched_per_thread(name):
            return "prefetched"
        return "short" if execution == "thread" and self.batch_size(name) > 1 else execution

    def free(self, group: str, /) -> int:
        """Return how many more jobs of a group fit."""
        execution = _base(group)
        if execution == "async":
            return self._tasks - self._used["async"]
        if execution == "process":
            return self._processes - self._used["process"]
        threads = self._threads - self._used["thread"] - self._used["transaction"]
        if execution == "short":
            batch = self._max_batch
            remaining = 2 * batch - self._used["short"]
            return min(batch, remaining) if threads > 0 and remaining >= batch // 2 else 0
        if execution == "prefetched":
            ahead = max(map(self._prefetched_per_thread, self._job_types))
            return max(0, threads * (1 + ahead) - self._used["prefetched"])
        if self._used["short"] or self._used["prefetched"]:
            threads -= 1  # jobs that share threads keep at least one
        if execution == "transaction":
            return min(threads, self._transactions - self._used["transaction"])
        return threads

    def claim_request(self, group: str, members: list[str], /) -> ClaimRequest:
        """Return what to claim of a group now."""
        free = max(0, self.free(group))
        base = _base(group)
        if base == "prefetched":
            per_thread = {name: 1 + self._prefetched_per_thread(name) for name in members}
            max_by_type = {name: min(free, self._threads * n) for name, n in per_thread.items()}
        elif base == "short":
            max_by_type = {name: min(free, self._max_short(name)) for name in members}
        else:
            max_by_type = dict.fromkeys(members, free)
        limits = self._limits if group.startswith("limited:") else None
        total = min(free, sum(max_by_type.values()))
        return ClaimRequest(group, max_by_type, total, limits, group.startswith(FAIR))

    def _max_short(self, name: str) -> int:
        """Return the claim size of a short job type. It is a batch for half of the threads."""
        return self.batch_size(name) * max(1, self._threads // 2)

    def admit(
        self, arriving: Mapping[str, int], claimable: Container[str], /
    ) -> tuple[dict[str, int], bool]:
        """Return how many arriving jobs can start at once.

        Args:
            arriving: Number of jobs by job type.
            claimable: Job types that may start now.

        Returns:
            The number by job type, and whether more will fit very soon.
        """
        admitted: dict[str, int] = {}
        remaining: dict[str, int] = {}
        more_soon = False
        for name, count in arriving.items():
            if name not in claimable or name not in self._job_types or name in self._limits:
                continue
            if self._job_types[name].settings.max_attempts == 1:
                continue  # a last attempt is started by a later write, see TurnWriter.write
            group = self.group_of(name)
            free = remaining.get(group, max(0, self.free(group)))
            admitted[name] = min(count, free)
            if _base(group) == "short":
                wanted = min(count, self._max_batch, self._max_short(name))
                admitted[name] = min(admitted[name], wanted)
                more_soon = more_soon or admitted[name] < wanted
            remaining[group] = free - admitted[name]
        return admitted, more_soon

    def limits(self, name: str, /) -> Mapping[str, Limit] | None:
        """Return the limits if this job type has one."""
        return self._limits if name in self._limits else None


def _base(group: str) -> str:
    """Return what the job types of a group share: threads, the event loop or connections."""
    if group.startswith(FAIR):
        return group.split(":", 2)[1]
    return group.removeprefix("limited:")


def _rotate(items: list[T], by: int) -> list[T]:
    at = by % len(items) if items else 0
    return items[at:] + items[:at]
