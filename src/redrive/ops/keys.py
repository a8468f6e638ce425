"""Operations on idempotency records: find, show and release them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..core.key import Key
from ..idempotency.keys import Keys
from ..idempotency.record import KeyRecord, Status
from ..journal.redaction import redact
from .context import OperatorContext
from .dead_letters.model import readable


@dataclass(frozen=True, slots=True)
class HeldKey:
    """An idempotency record in a list."""

    key: str
    domain: str
    user: str
    status: str
    abandoned: bool
    """In processing, but its holder has crashed. The next caller takes over."""
    holder: str | None
    lease_until: datetime
    expires_at: datetime
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class KeyReport:
    """Everything that is known of an idempotency record, without secrets."""

    key: HeldKey
    response: Any
    """The stored response as JSON or text. None: it is neither."""
    response_bytes: int | None
    error: Mapping[str, Any] | None
    request_hash: str | None
    now: datetime


@dataclass(frozen=True, slots=True)
class KeyOperations:
    """Operations on idempotency records, as `Operator.keys`. Threads may share one."""

    _context: OperatorContext

    def find(
        self,
        *,
        domain: str | None = None,
        user: str | None = None,
        status: Status | None = None,
        abandoned: bool = False,
        limit: int = 100,
    ) -> list[HeldKey]:
        """Return idempotency records, sorted by domain, user and key.

        Args:
            domain: First part of the key.
            user: User of the key.
            status: `"processing"`, `"completed"` or `"failed"`.
            abandoned: Only records in processing whose holder has crashed.
            limit: Maximum number.

        Returns:
            The records.
        """
        with closing(Keys(self._context.ledger)) as keys:
            page = keys.page(
                domain=domain, user=user, status=status, abandoned=abandoned, limit=limit
            )
            return [_key_line(record) for record in page]

    def get(self, key: str, /) -> KeyReport | None:
        """Return everything that is known about an idempotency record.

        Args:
            key: The idempotency key.

        Returns:
            The report, or None.
        """
        ledger = self._context.ledger
        with closing(Keys(ledger)) as keys:
            record = keys.find(Key.parse(key))
            if record is None:
                return None
            self._context.open_payload("key", key)
            return KeyReport(
                key=_key_line(record),
                response=None if record.response is None else readable(record.response),
                response_bytes=None if record.response is None else len(record.response),
                error=None if record.error is None else redact(record.error),
                request_hash=None if record.request_hash is None else record.request_hash.hex(),
                now=ledger.now(),
            )

    def release(self, key: str, /, *, because: str, force: bool = False) -> HeldKey:
        """Delete an idempotency record, so that the next call runs again.

        Args:
            key: The idempotency key.
            because: Why, for the audit log.
            force: Delete it even if a caller holds it.

        Returns:
            The record as it was.

        Raises:
            NotAllowed: There is no such record, or a caller holds it now.
        """
        self._context.require("release", None)
        parsed, actor = Key.parse(key), self._context.actor
        with closing(Keys(self._context.ledger)) as keys:
            return _key_line(keys.release(parsed, actor=actor, because=because, force=force))


def _key_line(record: KeyRecord) -> HeldKey:
    names = [name for name in HeldKey.__slots__ if name != "user"]
    return HeldKey(user=record.user_id, **{name: getattr(record, name) for name in names})
