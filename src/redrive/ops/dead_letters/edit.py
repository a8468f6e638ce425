"""Edit: a dead letter replayed with another payload. The letter keeps its own, and the audit knows of both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...errors import NotAllowed
from ...journal.redaction import HIDDEN

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger


def replayed(ledger: Ledger, letter_id: int, payload: bytes, /, *, actor: str, because: str, max_replays: int | None) -> int:
    """Give a dead letter a new job with this payload; the job's id. NotAllowed, or ValueError for the payload, says why not."""
    from ...ledger import validation  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ...ledger.jobs import dead_letters  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    found = ledger.dead_letters(ids=(letter_id,), limit=1)
    if not found:
        raise NotAllowed(f"dead letter {letter_id} not found")
    validation.check_payload("payload", payload, ledger.max_payload)
    _checked(found[0].payload, payload)
    with ledger.connections.write.use() as session:
        done = dead_letters.replay(
            session, [letter_id], actor=actor, because=because, max_replays=max_replays, edits={letter_id: payload}
        )
    ledger.notify()
    if letter_id not in done.done:
        raise NotAllowed(f"dead letter {letter_id} was not replayed: {done.skipped[letter_id]}")
    return done.done[letter_id]


def _checked(before: bytes, after: bytes) -> None:
    """What would only die again, or worse, is refused at once."""
    if HIDDEN.encode() in after and HIDDEN.encode() not in before:
        raise ValueError(
            f"the payload has {HIDDEN} in place of a secret; start from `redrive dead export --raw`. Nothing was changed"
        )
    try:
        json.loads(before)
    except ValueError:
        return
    try:
        json.loads(after)
    except ValueError as wrong:
        raise ValueError(f"the payload was JSON, but the new one is not: {wrong}. Nothing was changed") from None
