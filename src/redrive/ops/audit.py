"""The audit: who decided what, when, and why; and whether anybody changed it since."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..journal.redaction import redact, redact_text

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

MOST_ANCHORS = 100_000
ANCHOR = re.compile(r"(\d+):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry."""

    number: int
    at: datetime
    actor: str
    action: str
    because: str
    what: Mapping[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Whether the chain of entries holds."""

    entries: int
    anchor: str
    """The last entry's number and hash. Keep it elsewhere: it shows later that nothing was cut off at the end."""
    broken: int | None
    """The first entry that is not as it was written."""
    problem: str | None

    @property
    def holds(self) -> bool:
        """Nothing was changed, removed, put in or moved."""
        return self.broken is None


def decisions(
    ledger: Ledger, /, *, actor: str | None = None, action: str | None = None, since: datetime | None = None,
    until: datetime | None = None, limit: int = 100, people: bool = False,
) -> list[Decision]:  # fmt: skip
    """The newest first. people: not what policies decided by themselves."""
    from ..ledger import audit  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    with ledger.reading() as connection:
        found = audit.entries(
            connection,
            actor=actor,
            action=action,
            times=(audit.to_stamp(since), audit.to_stamp(until)),
            limit=limit,
            newest=True,
            people=people,
        )
    return [Decision(one.number, _moment(one.at), one.actor, one.action, one.because, _what(one.what), one.hash) for one in found]


def verified(ledger: Ledger, anchor: str | None = None, /, *more: str) -> Chain:
    """Follow the whole chain. anchor: what an earlier verification said the last entry was; more: others, from a file."""
    from ..ledger import audit  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ..ledger.db.session import NO_LIMIT  # noqa: PLC0415  # likewise

    noted = []
    for given in (*more, *(() if anchor is None else (anchor,))):
        read = ANCHOR.fullmatch(given.strip())
        if read is None:
            raise ValueError(f"an anchor must be a number and a hash, as `redrive audit verify` prints it, not {given!r}")
        noted.append((int(read[1]), read[2]))
    with ledger.connections.read.use() as session, session.snapshot(bound=NO_LIMIT) as connection:
        found = audit.verify(connection, *noted)
    return Chain(found.entries, f"{found.entries}:{found.head}", found.broken, found.problem)


def anchors_in(file: str, /) -> list[str]:
    """The anchors that workers wrote into a file; none where there is no file. The newest ones, where there are very many."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    words = (line.split() for line in lines[-MOST_ANCHORS:])
    return [found[0] for found in words if found and ANCHOR.fullmatch(found[0])]


def _what(details: Mapping[str, Any]) -> dict[str, Any]:
    """The details without secrets. `signature` is the signature of an error here, and not a credential."""
    shown: dict[str, Any] = redact(details)
    return shown | ({"signature": redact_text(str(details["signature"]))} if "signature" in details else {})


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # changed by hand; the chain says so
        return datetime.fromisoformat("1970-01-01T00:00:00+00:00")
