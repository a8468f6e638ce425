"""Erase: what the ledger knows of one user, found, shown, and taken out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.text import pluralise

if TYPE_CHECKING:
    from ..ledger.jobs.erase import UserData
    from ..ledger.ledger import Ledger


ELSEWHERE = (
    "files in stores, such as raw data of partitions",
    "entries of Redis streams, and the streams of dead letters",
    "logs, traces and journal files",
    "the name in keys, ids, headers and payloads of other users' jobs, dead letters, events and items",
    "names of job types, workers, batches, sources and queries, one-word reasons, and signatures of current outages",
    "the name as a number or a field name in JSON, and inside a longer word (kim in kim.lee)",
    "signatures of errors, if the name is a number, a word of JSON or shorter than 3 characters",
)
ON_SQLITE = ("copies and backups of the SQLite file",)
ON_POSTGRES = (
    "old row versions until VACUUM of the tables redrive_*",
    "WAL archives, replicas and backups of Postgres, and its own log",
)


@dataclass(frozen=True, slots=True)
class Erasure:
    """A plan to erase what is known of one user. Making it changes nothing."""

    user: str
    jobs: int
    letters: int
    events: int
    keys: int
    busy: tuple[int, ...]
    """Jobs that wait or run: they are left, with their dead letters, until they have ended."""
    held: int
    """Idempotency keys that somebody is at right now: left as well."""
    found: UserData
    mentions: int = 0
    """Other rows with the name in a text: errors, reasons, selections, partitions, the audit log."""
    stays: tuple[str, ...] = ()
    """Places that Redrive does not erase: look there yourself."""

    @property
    def act(self) -> str:
        """For the question."""
        return "erase"

    @property
    def count(self) -> int:
        """Rows."""
        return self.jobs + self.letters + self.events + self.keys + self.mentions


def planned(ledger: Ledger, user: str, /) -> Erasure:
    """What is known of a user: whatever has them in its key, or as the correlation id `user_id`."""
    from ..ledger.db.session import NO_LIMIT  # noqa: PLC0415  # likewise
    from ..ledger.jobs.erase import find_user_data  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    if not user.strip():
        raise ValueError("whose data? --user is empty")
    with ledger.connections.read.use() as session, session.snapshot(bound=NO_LIMIT) as connection:
        found = find_user_data(connection, session, user)
    stays = ELSEWHERE + (ON_SQLITE if ledger.connections.on_sqlite else ON_POSTGRES)
    if found.partitions:
        stays = (f"{found.partitions} of their partitions, queued or running: erase again when they have ended", *stays)
    if found.backfills:
        stays = (f"{pluralise(found.backfills, 'backfill')} for them, not ended: erase again afterwards", *stays)
    return Erasure(
        user, len(found.jobs), len(found.letters), len(found.events), found.keys, found.busy, found.held, found, found.mentions,
        stays,
    )  # fmt: skip


def erased(ledger: Ledger, plan: Erasure, /, *, actor: str, because: str) -> tuple[str, ...]:
    """Carry it out; places where something stays. Recorded in the audit log, without the user's name."""
    from ..ledger.db.sqlite import compact  # noqa: PLC0415  # likewise
    from ..ledger.jobs.erase import erase  # noqa: PLC0415  # likewise

    with ledger.connections.write.use() as session:
        erase(session, plan.found, plan.user, actor=actor, because=because)
        left = compact(session)
    return plan.stays if left is None else (left, *plan.stays)
