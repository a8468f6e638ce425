"""How the ledger stands: its schema, what waits and for how long, who works; and how it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import SchemaMismatch
from ..journal.redaction import redact_text
from .target.target import opened

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

STATES = ("queued", "retry_wait", "replaying", "running", "blocked", "dlq", "done", "discarded")
"""As people call them, in the order of a job's life."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The jobs of one kind."""

    name: str
    submitted: int
    states: Mapping[str, int]
    """How many, by the names that people know; done includes those that were pruned."""
    pruned: int
    late: int
    """Settlements that came too late, and changed nothing."""
    due: int
    """Waiting, and due by now."""
    oldest_due: datetime | None
    next_due: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """A worker, as it was last seen."""

    name: str
    host: str | None
    pid: int | None
    started_at: datetime
    seen_at: datetime
    ended_at: datetime | None
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Status:
    """The ledger at one moment."""

    url: str
    schema: str
    now: datetime
    """By the database's clock."""
    kinds: tuple[Kind, ...]
    workers: tuple[Seen, ...]
    parked: Mapping[str, str]
    """Kinds that are not handed out for now, and why."""

    @property
    def sentence(self) -> str:
        """The balance in one line: submitted = done + queued + running + dead + discarded."""
        summed = {state: sum(kind.states.get(state, 0) for kind in self.kinds) for state in STATES}
        waiting = summed["queued"] + summed["retry_wait"] + summed["replaying"]
        parts = {
            "done": summed["done"],
            "queued": waiting,
            "running": summed["running"],
            "dead": summed["dlq"] + summed["blocked"],
            "discarded or replayed": summed["discarded"],
        }
        return f"{sum(kind.submitted for kind in self.kinds):,} submitted = " + " + ".join(
            f"{count:,} {name}" for name, count in parts.items()
        )

    def total(self, state: str | None, kind: str | None = None, /) -> int | None:
        """How many jobs are in a state, of a job type or of all; None: not counted."""
        if state is None:
            return None
        some = [one for one in self.kinds if kind is None or one.name == kind]
        return sum(one.states.get(state, 0) - (one.pruned if state == "done" else 0) for one in some)


def status(ledger: Ledger, /) -> Status:
    """How it stands now. Reads every live job, and none that has ended."""
    from ..ledger.db.tables import HEAD  # noqa: PLC0415  # the same
    from ..ledger.jobs import workers  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ..ledger.queries import overview  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ..ledger.stats import counters  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    now = ledger.now()
    with ledger.reading() as connection:
        tallies = counters.counts(connection)
        live = overview.kind_summaries(connection, now)
        seen = workers.list_workers(connection)
        parked = overview.parked_reasons(connection)
    kinds = []
    for name in sorted(tallies.keys() | live.keys()):
        tally, standing = tallies.get(name), live.get(name)
        states = dict.fromkeys(STATES, 0)
        if standing is not None:
            states.update(standing.shown.items())
        if tally is not None:
            states |= {"done": tally.done + tally.pruned, "discarded": tally.dropped}
        kinds.append(
            Kind(
                name=name,
                submitted=0 if tally is None else tally.submitted,
                states=states,
                pruned=0 if tally is None else tally.pruned,
                late=0 if tally is None else tally.late,
                due=0 if standing is None else standing.due,
                oldest_due=None if standing is None else standing.oldest_due,
                next_due=None if standing is None else standing.next_due,
            )
        )
    return Status(
        redact_text(ledger.url), HEAD, now, tuple(kinds),
        tuple(Seen(one.name, one.host, one.pid, one.started_at, one.seen_at, one.ended_at, one.info) for one in seen), parked,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Migrated:
    """From which revision to which; from none where there was no ledger."""

    url: str
    before: str | None
    after: str

    @property
    def changed(self) -> bool:
        """Whether there was anything to do."""
        return self.before != self.after


def migrate(source: str | None, /) -> Migrated:
    """Make the tables, or bring them up to this code. SchemaMismatch where they are newer, or another program's."""
    from ..ledger.db.tables import HEAD  # noqa: PLC0415  # SQLAlchemy: not before a ledger is wanted

    before = _revision(source)
    with opened(source, migrate=True) as ledger:
        return Migrated(redact_text(ledger.url), before, HEAD)


def _revision(source: str | None) -> str | None:
    from ..errors import LedgerError  # noqa: PLC0415
    from ..ledger.db.tables import HEAD  # noqa: PLC0415

    try:
        with opened(source):
            return HEAD
    except SchemaMismatch as other:
        if other.wanted is None:
            raise
        return other.found
    except LedgerError:
        return None  # no file yet; where it is something else, migrating says what


def reaped(ledger: Ledger, /) -> list[int]:
    """Take back leases that ran out, as any worker does; the ids of their jobs."""
    found: list[int] = []
    while some := ledger.reap():
        found += some
    return found


def recounted(ledger: Ledger, /, *, actor: str, because: str) -> dict[str, dict[str, int]]:
    """Set the counts right by the rows; what was added to each. In the audit."""
    return ledger.recount(actor=actor, because=because)
