"""Erase: what the ledger knows of one user, found, shown, and taken out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ledger.erase import Known
    from ..ledger.ledger import Ledger


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
    found: Known

    @property
    def act(self) -> str:
        """For the question."""
        return "erase"

    @property
    def count(self) -> int:
        """Rows."""
        return self.jobs + self.letters + self.events + self.keys


def planned(ledger: Ledger, user: str, /) -> Erasure:
    """What is known of a user: whatever has them in its key, or as the correlation id `user_id`."""
    from ..ledger.erase import known  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    if not user.strip():
        raise ValueError("whose data? --user is empty")
    with ledger.connections.read.use() as session:
        found = known(session.core, session, user)
    return Erasure(user, len(found.jobs), len(found.letters), len(found.events), found.keys, found.busy, found.held, found)


def erased(ledger: Ledger, plan: Erasure, /, *, actor: str, because: str) -> None:
    """Carry it out. Recorded in the audit, without the user's name."""
    from ..ledger.erase import erase  # noqa: PLC0415  # likewise

    with ledger.connections.write.use() as session:
        erase(session, plan.found, plan.user, actor=actor, because=because)
