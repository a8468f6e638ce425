"""Operations on the audit log: who decided what and why, and whether an entry was changed since."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..journal.redaction import redact, redact_text
from ..ledger import audit
from ..ledger.db.session import NO_LIMIT
from ..ledger.ledger import Ledger
from .context import OperatorContext

MAX_ANCHORS = 100_000
ANCHOR = re.compile(r"(\d+):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Decision:
    """An entry of the audit log."""

    number: int
    at: datetime
    actor: str
    action: str
    because: str
    what: Mapping[str, Any]
    hash: str
    via: str | None = None
    """How the actor was authenticated, such as `oidc`. None: not known, or a worker did it."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The result of verifying the hash chain."""

    entries: int
    anchor: str
    """Number and hash of the last entry. Keep it elsewhere, to detect later that the end was cut
    off."""
    broken: int | None
    """Number of the first entry that was changed."""
    problem: str | None

    @property
    def holds(self) -> bool:
        """Whether no entry was changed, removed, inserted or moved."""
        return self.broken is None


@dataclass(frozen=True, slots=True)
class AuditOperations:
    """Operations on the audit log, as `Operator.audit`. Threads may share one."""

    _context: OperatorContext

    def find(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        people: bool = False,
    ) -> list[Decision]:
        """Return entries of the audit log, newest first.

        Args:
            actor: Who decided.
            action: What was done.
            since: Not older than this.
            until: Older than this.
            limit: Maximum number.
            people: Leave out automatic decisions.

        Returns:
            The entries.
        """
        with self._context.ledger.reading() as connection:
            entries = audit.entries(
                connection,
                actor=actor,
                action=action,
                times=(audit.to_stamp(since), audit.to_stamp(until)),
                limit=limit,
                newest=True,
                people=people,
            )
        return [
            Decision(
                number=entry.number,
                at=_parse_time(entry.at),
                actor=entry.actor,
                action=entry.action,
                because=entry.because,
                what=_redact_details(entry.what),
                hash=entry.hash,
                via=_read_via(entry.what),
            )
            for entry in entries
        ]

    def verify(self, anchor: str | None = None, /) -> Chain:
        """Verify the hash chain of the audit log.

        Args:
            anchor: A hash that was noted earlier, to compare with.

        Returns:
            The result.
        """
        return verify_chain(self._context.ledger, [] if anchor is None else [anchor])


def verify_chain(ledger: Ledger, anchors: Iterable[str], /) -> Chain:
    """Verify the hash chain, and that it has the entries that were noted as anchors."""
    noted = [_parse_anchor(anchor) for anchor in anchors]
    with ledger.connections.read.use() as session, session.snapshot(bound=NO_LIMIT) as connection:
        result = audit.verify(connection, *noted)
    return Chain(result.entries, f"{result.entries}:{result.head}", result.broken, result.problem)


def _parse_anchor(text: str) -> tuple[int, str]:
    match = ANCHOR.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            "an anchor must be a number and a hash, as `redrive audit verify` prints it, not "
            f"{text!r}"
        )
    return int(match[1]), match[2]


def read_anchors(file: str, /) -> list[str]:
    """Return the anchors that workers wrote to a file, at most the last 100,000. Empty: no file."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    words = (line.split(maxsplit=1) for line in lines[-MAX_ANCHORS:])
    return [first for first, *_ in filter(None, words) if ANCHOR.fullmatch(first)]


def _read_via(details: Mapping[str, Any]) -> str | None:
    """Return how the actor was authenticated. `token deploy-bot` is the name of a token."""
    way, space, detail = str(details.get(audit.VIA, "")).partition(" ")
    return f"{way}{space}{redact_text(detail)}" or None


def _redact_details(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details without secrets, and without how the actor was authenticated.

    `signature` is the signature of an error, not a credential.
    """
    details = {name: value for name, value in details.items() if name != audit.VIA}
    shown: dict[str, Any] = redact(details)
    if "signature" in details:
        shown = shown | {"signature": redact_text(str(details["signature"]))}
    return shown


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # The entry was changed by hand. The chain reports it.
        return datetime.fromisoformat("1970-01-01T00:00:00+00:00")
