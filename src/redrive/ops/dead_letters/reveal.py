"""Reveal: a payload with its secrets in it, for somebody who says why. In the audit before it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...errors import NotAllowed

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger

Of: TypeAlias = Literal["job", "dead"]
LONGEST = 200_000
"""Bytes that are shown of one."""


@dataclass(frozen=True, slots=True)
class Revealed:
    """A payload as it is stored."""

    text: str
    """As text where it is text, else in hexadecimal."""
    size: int
    cut: bool
    """There is more of it."""


def revealed(ledger: Ledger, of: Of, number: int, /, *, actor: str, because: str) -> Revealed:
    """The payload of a job or a dead letter. NotAllowed: there is none of that number."""
    found = ledger.get(number) if of == "job" else next(iter(ledger.dead_letters(ids=(number,), limit=1)), None)
    if found is None:
        raise NotAllowed(f"{'job' if of == 'job' else 'dead letter'} {number} not found")
    ledger.record(actor=actor, action="payload.reveal", because=because, what={of: number, "bytes": len(found.payload)})
    some = found.payload[:LONGEST]
    try:
        text = some.decode()
    except UnicodeDecodeError as wrong:
        # A letter that is cut in two at the end is no reason to show numbers.
        text = some[: wrong.start].decode() if wrong.start > LONGEST - 4 else some.hex(" ")
    return Revealed(text, len(found.payload), len(some) < len(found.payload))
