"""The status of a ledger: schema, jobs by state and workers. And its migration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..errors import LedgerError, SchemaMismatch
from ..journal.redaction import redact_text
from ..ledger.db.tables import HEAD
from ..ledger.jobs import workers
from ..ledger.ledger import Ledger
from ..ledger.model import Tally
from ..ledger.queries import overview
from ..ledger.stats import counters
from .project.target import open_target_ledger

STATES = (
    *("queued", "retry_wait", "waiting", "replaying", "running", "blocked", "dlq", "done"),
    *("cancelled", "discarded"),
)
"""States as they are shown, in the order of a job's life."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The jobs of one type."""

    name: str
    submitted: int
    states: Mapping[str, int]
    """Number by shown state. `done` includes pruned jobs, and `discarded` those that a replay has
    replaced."""
    pruned: int
    late: int
    """Settlements that came too late and had no effect."""
    due: int
    """Queued jobs that are due."""
    oldest_due: datetime | None
    next_due: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """A worker as of its last heartbeat."""

    name: str
    host: str | None
    pid: int | None
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """The status of a ledger at one time."""

    url: str
    schema: str
    now: datetime
    """Time of the database's clock."""
    kinds: tuple[Kind, ...]
    workers: tuple[Seen, ...]
    parked: Mapping[str, str]
    """Job types that are paused after an outage, and why."""
    probe_at: Mapping[str, datetime] = field(default_factory=dict)
    """When one job of each of them may probe the service."""

    @property
    def sentence(self) -> str:
        """The balance in one line: submitted = done + queued + running + dead + discarded.

        Sleeping and waiting jobs are queued. Cancelled jobs are listed if there are any.
        """
        summed = {state: sum(kind.states.get(state, 0) for kind in self.kinds) for state in STATES}
        queued = sum(summed[state] for state in ("queued", "retry_wait", "waiting", "replaying"))
        parts = {
            "done": summed["done"],
            "queued": queued,
            "running": summed["running"],
            "dead": summed["dlq"] + summed["blocked"],
            "discarded or replayed": summed["discarded"],
        }
        if summed["cancelled"]:
            parts["cancelled"] = summed["cancelled"]
        return f"{sum(kind.submitted for kind in self.kinds):,} submitted = " + " + ".join(
            f"{count:,} {name}" for name, count in parts.items()
        )

    def total(self, state: str | None, kind: str | None = None, /) -> int | None:
        """Number of jobs in a state, of one job type or of all. None: no state is passed."""
        if state is None:
            return None
        kinds = [each for each in self.kinds if kind is None or each.name == kind]
        pruned = sum(each.pruned for each in kinds) if state == "done" else 0
        return sum(each.states.get(state, 0) for each in kinds) - pruned


def status(ledger: Ledger, /) -> LedgerStatus:
    """Return the status. It reads live jobs, and counters of ended ones."""
    now = ledger.now()
    with ledger.reading() as connection:
        tallies = counters.counts(connection)
        live = overview.kind_summaries(connection, now)
        stored_workers = workers.list_workers(connection)
        parked = overview.parked_reasons(connection)
        probes = overview.probe_times(connection) if parked else {}
    kinds = []
    for name in sorted(tallies.keys() | live.keys()):
        tally, jobs = tallies.get(name, Tally()), live.get(name)
        states = dict.fromkeys(STATES, 0)
        if jobs is not None:
            states.update(jobs.shown.items())
        kind = Kind(
            name=name,
            submitted=tally.submitted,
            states=states
            | {
                "done": tally.done + tally.pruned,
                "cancelled": tally.cancelled,
                "discarded": tally.dropped,
            },
            pruned=tally.pruned,
            late=tally.late,
            due=0 if jobs is None else jobs.due,
            oldest_due=None if jobs is None else jobs.oldest_due,
            next_due=None if jobs is None else jobs.next_due,
        )
        kinds.append(kind)
    seen = [
        Seen(**{name: getattr(each, name) for name in Seen.__slots__}) for each in stored_workers
    ]
    url = redact_text(ledger.url)
    return LedgerStatus(url, HEAD, now, tuple(kinds), tuple(seen), parked, probes)


@dataclass(frozen=True, slots=True)
class Migrated:
    """The result of a migration."""

    url: str
    before: str | None
    """Revision before. None: there was no ledger."""
    after: str

    @property
    def changed(self) -> bool:
        """Whether the tables were changed."""
        return self.before != self.after


def migrate(source: str | None, /) -> Migrated:
    """Create or upgrade the tables.

    Raises:
        SchemaMismatch: The tables are newer, or belong to another program.
    """
    before = _revision(source)
    with open_target_ledger(source, migrate=True) as ledger:
        return Migrated(redact_text(ledger.url), before, HEAD)


def _revision(source: str | None) -> str | None:
    try:
        with open_target_ledger(source):
            return HEAD
    except SchemaMismatch as mismatch:
        if mismatch.wanted is None:
            raise
        return mismatch.found
    except LedgerError:
        return None  # No ledger exists yet. Another problem is reported by the migration.
