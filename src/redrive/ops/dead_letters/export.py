"""Export: dead letters with all they have, for tools and for other eyes. Without secrets, unless somebody says why with them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...journal.redaction import redact
from ..render import document
from .queries import PAGE, Selection, readable

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger
    from ...ledger.model import DeadLetter, DeadLetterStatus

FIELDS = (
    "id", "kind", "key", "status", "reason", "blocked", "blocked_until", "error", "signature", "attempts", "replay_count",
    "job_id", "replay_job_id", "source", "source_id", "last_attempt_at", "created_at", "updated_at",
)  # fmt: skip


def exported(
    ledger: Ledger, selection: Selection, status: DeadLetterStatus | None, /, *, actor: str, because: str | None
) -> Iterator[dict[str, Any]]:
    """Dead letters as JSON can hold them, the oldest first. because: with payloads and headers as they are; in the audit."""
    if because is not None:
        chosen = {name: value for name, value in document(selection).items() if value not in (None, [])}
        ledger.record(actor=actor, action="dead.export", because=because, what={"selection": chosen, "status": status})
    return _letters(ledger, selection, status, raw=because is not None)


def _letters(ledger: Ledger, selection: Selection, status: DeadLetterStatus | None, *, raw: bool) -> Iterator[dict[str, Any]]:
    after, left = 0, selection.limit
    while left is None or left > 0:
        page = ledger.dead_letters(
            ids=selection.ids or None, status=status, kind=selection.kind, reason=selection.reason, error=selection.error,
            since=selection.since, until=selection.until, source=selection.source, after=after,
            limit=PAGE if left is None else min(PAGE, left),
        )  # fmt: skip
        if not page:
            return
        for one in page:
            yield _raw(one) if raw else _masked(one)
        after = page[-1].id
        left = None if left is None else left - len(page)


def _masked(one: DeadLetter) -> dict[str, Any]:
    return _fields(one) | {
        "headers": redact(one.headers), "ids": redact(one.ids), "payload": readable(one.payload),
        "payload_bytes": len(one.payload),
    }  # fmt: skip


def _raw(one: DeadLetter) -> dict[str, Any]:
    """The payload as text where it is text, else in base64."""
    try:
        payload = {"payload_text": one.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": base64.b64encode(one.payload).decode()}
    return _fields(one) | {"headers": one.headers, "ids": one.ids, **payload, "payload_bytes": len(one.payload)}


def _fields(one: DeadLetter) -> dict[str, Any]:
    return {name: document(getattr(one, name)) for name in FIELDS}
