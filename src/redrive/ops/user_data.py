"""Operations on the data of one user: find and erase it."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.text import pluralise
from ..ledger.db.session import NO_LIMIT
from ..ledger.db.sqlite import compact
from ..ledger.jobs import erase
from ..ledger.jobs.erase import UserData
from .context import OperatorContext

ELSEWHERE = (
    "files in stores, such as raw data of partitions",
    "messages and dead letters in brokers, such as Redis streams",
    "activities in Temporal",
    "logs, traces and journal files",
    (
        "the name in keys, ids, headers and payloads of other users' jobs, dead letters, events "
        "and items"
    ),
    (
        "names of job types, workers, batches, sources and queries, one-word reasons, and "
        "signatures of current outages"
    ),
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
    """A plan to erase the data of one user. Making it changes nothing."""

    user: str
    jobs: int
    letters: int
    events: int
    keys: int
    busy: tuple[int, ...]
    """Ids of queued and running jobs. They stay, with their dead letters, until they have ended."""
    held: int
    """Number of idempotency records that a caller holds now. They stay too."""
    found: UserData
    mentions: int = 0
    """Other rows with the name in a text, such as errors, reasons and the audit log."""
    stays: tuple[str, ...] = ()
    """Places that Redrive does not erase."""

    @property
    def act(self) -> str:
        """Name of the operation."""
        return "erase"

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.jobs + self.letters + self.events + self.keys + self.mentions


@dataclass(frozen=True, slots=True)
class UserDataOperations:
    """Operations on the data of one user, as `Operator.user_data`. Threads may share one."""

    _context: OperatorContext

    def plan_erasure(self, user: str, /) -> Erasure:
        """Plan to erase the data of a user. Nothing is changed or recorded before `erase`.

        It selects rows with the user in the key, or in the correlation id `user_id`.

        Args:
            user: Id of the user.

        Returns:
            The plan.
        """
        if not user.strip():
            raise ValueError("whose data? --user is empty")
        self._context.require("erase", None)
        ledger = self._context.ledger
        with (
            ledger.connections.read.use() as session,
            session.snapshot(bound=NO_LIMIT) as connection,
        ):
            rows = erase.find_user_data(connection, session, user)
        return Erasure(
            user=user,
            jobs=len(rows.jobs),
            letters=len(rows.letters),
            events=len(rows.events),
            keys=rows.keys,
            busy=rows.busy,
            held=rows.held,
            found=rows,
            mentions=rows.mentions,
            stays=_not_erased(rows, on_sqlite=ledger.connections.on_sqlite),
        )

    def erase(self, plan: Erasure, /, *, because: str) -> tuple[str, ...]:
        """Erase the data of a user. The audit log records that it was done, not whose data it was.

        Args:
            plan: The plan.
            because: Why, for the audit log.

        Returns:
            Places where data of the user may remain.
        """
        self._context.require("erase", None)
        with self._context.ledger.connections.write.use() as session:
            actor = self._context.actor
            erase.erase(session, plan.found, plan.user, actor=actor, because=because)
            problem = compact(session)
        return plan.stays if problem is None else (problem, *plan.stays)


def _not_erased(rows: UserData, *, on_sqlite: bool) -> tuple[str, ...]:
    places = ELSEWHERE + (ON_SQLITE if on_sqlite else ON_POSTGRES)
    if rows.partitions:
        count = rows.partitions
        text = f"{count} of their partitions, queued or running: erase again when they have ended"
        places = (text, *places)
    if rows.backfills:
        text = (
            f"{pluralise(rows.backfills, 'backfill')} for them, not ended: erase again afterwards"
        )
        places = (text, *places)
    return places
