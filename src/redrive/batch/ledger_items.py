"""LedgerItems: items whose rejections the ledger counts. Only an item that was ever rejected has a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..journal.redaction import redacted_text
from ..ledger import limits
from ..ledger.moment import moment
from ..ledger.now import micros_now
from ..ledger.session import Session
from .statements import POSTGRES, SQLITE, Statements

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

FEW = 1000
"""Open items that are fetched and compared here, rather than sending every id that has arrived to the database."""


class LedgerItems:
    """The items of one batch by name, in the ledger. Threads may share it, and so may forked children. Its methods block."""

    def __init__(self, ledger: Callable[[], Ledger], name: str, /) -> None:
        """ledger: opened at first use."""
        limits.name("the name of the items", name, limits.MAX_KIND)
        self.name = name
        self._ledger = ledger

    def increment(self, item_id: str, /) -> int:
        """Add one, atomically; the new count, since the item was last acknowledged or reopened."""
        return self.increment_many((item_id,))[item_id]

    def increment_many(self, item_ids: Collection[str], /) -> dict[str, int]:
        """Add one to each, all or none; the new counts."""
        with self._ledger().connections.write.use() as session, session.transaction("item.increment"):
            return self._counted(session, _on(session).increment, item_ids)

    def spare_many(self, item_ids: Collection[str], /) -> dict[str, int]:
        """Each was refused in an outage: not charged, but remembered; how often so far."""
        with self._ledger().connections.write.use() as session, session.transaction("item.spare"):
            return self._counted(session, _on(session).spare, item_ids)

    def _counted(self, session: Session, statement: Any, item_ids: Collection[str]) -> dict[str, int]:
        for item_id in item_ids:
            limits.name("an item's id", item_id, limits.MAX_KEY)
        found = session.core.execute(statement, self._given(session, _on(session).ids(item_ids)))
        return {row[0]: int(row[1]) for row in found}

    def give_up(self, item_id: str, reason: str, /) -> bool:
        """Forward only. False: it had been given up before, or has arrived."""
        return bool(self.give_up_many({item_id: reason}))

    def give_up_many(self, reasons: Mapping[str, str], /) -> set[str]:
        """Each of them, with its reason; those that were open."""
        said = {item_id: redacted_text(reason) for item_id, reason in reasons.items()}
        with self._ledger().connections.write.use() as session, session.transaction("item.give_up"):
            found = session.core.execute(_on(session).give_up, self._given(session, _on(session).pairs(said)))
            return {row[0] for row in found}

    def acknowledge_many(self, item_ids: Collection[str], /) -> int:
        """These have arrived: what was counted of them is over. How many of them had ever been rejected."""
        connections = self._ledger().connections
        with connections.read.use() as session:
            waiting = set(session.core.execute(_on(session).waiting, {"of_batch": self.name, "most": FEW + 1}).scalars())
        if not waiting:
            return 0
        arrived: Collection[str] = waiting.intersection(item_ids) if len(waiting) <= FEW else item_ids
        if not arrived:
            return 0
        with connections.write.use() as session, session.transaction("item.acknowledge"):
            given = self._given(session, _on(session).ids(arrived))
            return len(session.core.execute(_on(session).acknowledge, given).all())

    def pending(self, among: Collection[str], /) -> set[str]:
        """Which of these may still be sent: all that were not given up."""
        if not among:
            return set()
        with self._ledger().connections.read.use() as session:
            given = {"of_batch": self.name, **_on(session).ids(among)}
            return set(among) - set(session.core.execute(_on(session).gone, given).scalars())

    def _given(self, session: Session, values: dict[str, Any]) -> dict[str, Any]:
        given = {"of_batch": self.name, **values}
        return given | {"now": moment(micros_now())} if session.sqlite else given

    def __repr__(self) -> str:
        return f"LedgerItems({self.name!r})"


def _on(session: Session) -> Statements:
    return SQLITE if session.sqlite else POSTGRES
