"""A small ledger in memory, as the model for the real one: the expected state after each operation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from redrive.ledger.model import Lease, Settlement, Tally

QUARANTINE = 9
MAX_CRASHES = 3


@dataclass
class ModelJob:
    key: str
    due: float
    id: int = 0
    """A replay of the same key is another job."""
    state: str = "ready"
    attempts: int = 0
    crashes: int = 0
    fence: int = 0
    started: bool = False
    until: float = 0.0
    alone: bool = False
    max_attempts: int | None = None
    letter: str = ""
    """State of the dead letter: pending, replaying, replayed or discarded. It belongs to the key, not to the job."""
    replays: int = 0
    ended: float = 0.0
    tenant: str | None = None
    sequence: str | None = None
    order: int = 0
    """Position in its sequence, in the order of submission."""

    @property
    def is_open(self) -> bool:
        """Return whether it has not ended, and blocks the later jobs of its sequence."""
        return self.state in ("ready", "leased", "held")


@dataclass
class Model:
    """Jobs by key. Time is a number that tests advance, because real time between two operations is negligible."""

    now: float = 0.0
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    submitted: int = 0
    dropped: int = 0
    late: int = 0

    def submit(
        self, key: str, delay: float, max_attempts: int | None, tenant: str | None = None, sequence: str | None = None
    ) -> bool:
        if key in self.jobs:
            return False
        self._add(ModelJob(key, self.now + delay, max_attempts=max_attempts, tenant=tenant, sequence=sequence))
        return True

    def _add(self, job: ModelJob) -> None:
        self.submitted += 1
        job.order = self.submitted
        if job.sequence is not None and any(each.is_open for each in self._sequence(job.sequence)):
            job.state = "held"
        self.jobs[job.key] = job

    def _sequence(self, name: str | None) -> list[ModelJob]:
        jobs = [job for job in self.jobs.values() if name is not None and job.sequence == name]
        return sorted(jobs, key=lambda job: job.order)

    def _release_after(self, job: ModelJob) -> None:
        """Release the next job of its sequence."""
        waiting = [each for each in self._sequence(job.sequence) if each.is_open]
        if waiting and waiting[0].state == "held":
            waiting[0].state = "ready"

    def due_tenants(self) -> set[str]:
        return {tenant for key in self.due(alone=False) if (tenant := self.jobs[key].tenant) is not None}

    def due(self, *, alone: bool) -> set[str]:
        return {key for key, job in self.jobs.items() if job.state == "ready" and job.due <= self.now and job.alone is alone}

    def claimed(self, lease: Lease, seconds: float, *, start: bool) -> None:
        job = self.jobs[lease.key]
        job.state, job.fence, job.until, job.started = "leased", job.fence + 1, self.now + seconds, start
        job.attempts += int(start)
        job.id = lease.job_id
        assert (lease.fence, lease.attempt, lease.crashes) == (job.fence, job.attempts, job.crashes)

    def holds(self, lease: Lease) -> bool:
        job = self.jobs[lease.key]
        return job.state == "leased" and (job.id, job.fence) == lease[:2]

    def start(self, lease: Lease) -> bool:
        job = self.jobs[lease.key]
        if not self.holds(lease) or job.started:
            return False
        job.started = True
        job.attempts += 1
        return True

    def settle(self, lease: Lease, settlement: Settlement) -> bool:
        if not self.holds(lease):
            self.late += 1
            return False
        job = self.jobs[lease.key]
        if settlement.outcome == "done":
            job.state, job.ended = "done", self.now
            job.letter = "replayed" if job.letter else ""
        elif settlement.outcome == "again":
            job.state, job.due = "ready", self.now + settlement.after
            job.attempts -= int(not settlement.charged and job.started)
        else:
            job.state, job.letter = "dead", "pending"
        if not job.is_open:
            self._release_after(job)
        return True

    def reap(self) -> set[str]:
        lost = {key for key, job in self.jobs.items() if job.state == "leased" and job.until < self.now}
        for key in lost:
            job = self.jobs[key]
            job.state, job.due = "ready", self.now
            if job.started:
                job.crashes += 1
                job.alone = job.crashes >= 2
                if job.crashes >= MAX_CRASHES or (job.max_attempts is not None and job.attempts >= job.max_attempts):
                    job.state, job.letter = "dead", "pending"
                    self._release_after(job)
            job.started = False
        return lost

    def replay(self, key: str) -> bool:
        job = self.jobs[key]
        if job.letter != "pending":
            return False
        job.state = "dropped"
        new = ModelJob(key, self.now, max_attempts=job.max_attempts, tenant=job.tenant, sequence=job.sequence)
        self._add(replace(new, letter="replaying", replays=job.replays + 1))
        self.dropped += 1
        return True

    def discard(self, key: str) -> bool:
        job = self.jobs[key]
        if job.letter != "pending":
            return False
        job.state, job.letter = "dropped", "discarded"
        self.dropped += 1
        return True

    def prune(self, older: float) -> int:
        old = [job for job in self.jobs.values() if job.state == "done" and job.ended < self.now - older]
        for job in old:
            job.state = "pruned"
        return len(old)

    def tally(self) -> Tally:
        def count(state: str) -> int:
            return sum(job.state == state for job in self.jobs.values())

        return Tally(
            self.submitted,
            count("ready") + count("held"),
            count("leased"),
            count("done"),
            count("dead"),
            self.dropped,
            count("pruned"),
            self.late,
        )
