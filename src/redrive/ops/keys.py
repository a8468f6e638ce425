"""Idempotency keys, as an operator sees them: what is stored under each, who holds it; and how one is made free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..core.key import Key
from ..journal.redaction import redact
from .dead_letters.queries import readable

if TYPE_CHECKING:
    from ..idempotency.keys import Keys
    from ..idempotency.record import KeyRecord, Status
    from ..ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key, in a list of them."""

    key: str
    domain: str
    user: str
    status: str
    abandoned: bool
    """In processing, but its holder has crashed: the next caller takes it over."""
    holder: str | None
    lease_until: datetime
    expires_at: datetime
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class KeyReport:
    """All that is known of one key, without secrets."""

    key: HeldKey
    response: Any
    """The stored answer, as JSON or as text."""
    response_bytes: int | None
    error: Mapping[str, Any] | None
    request_hash: str | None
    now: datetime


def listed(
    ledger: Ledger, /, *, domain: str | None, user: str | None, status: Status | None, abandoned: bool, limit: int
) -> list[HeldKey]:
    """By domain, user and key."""
    with _keys(ledger) as keys:
        return [_held(one) for one in keys.page(domain=domain, user=user, status=status, abandoned=abandoned, limit=limit)]


def shown(ledger: Ledger, key: str, /) -> KeyReport | None:
    """One of them; None: nothing is stored under it."""
    wanted = Key.parse(key)
    with _keys(ledger) as keys:
        found = keys.find(wanted)
        if found is None:
            return None
        return KeyReport(
            key=_held(found),
            response=None if found.response is None else readable(found.response),
            response_bytes=None if found.response is None else len(found.response),
            error=None if found.error is None else redact(found.error),
            request_hash=None if found.request_hash is None else found.request_hash.hex(),
            now=ledger.now(),
        )


def released(ledger: Ledger, key: str, /, *, actor: str, because: str, force: bool) -> HeldKey:
    """Forget what is known of a key; what it was. NotAllowed where there is none, or where somebody is at it right now."""
    wanted = Key.parse(key)
    with _keys(ledger) as keys:
        return _held(keys.release(wanted, actor=actor, because=because, force=force))


@contextmanager
def _keys(ledger: Ledger) -> Iterator[Keys]:
    from ..idempotency.keys import Keys  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    keys = Keys(ledger)
    try:
        yield keys
    finally:
        keys.close()


def _held(one: KeyRecord) -> HeldKey:
    return HeldKey(
        one.key, one.domain, one.user_id, one.status, one.abandoned, one.holder, one.lease_until, one.expires_at, one.created_at,
        one.updated_at,
    )  # fmt: skip
