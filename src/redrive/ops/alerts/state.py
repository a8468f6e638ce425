"""What each target was told, in an idempotency record of the ledger.

So no alert is sent twice, whether a watcher restarts or several watch one ledger. A watcher holds
the record while it sends: `claim` sets a lease by compare-and-swap on the fence, and `save` stores
the result and ends the lease. A watcher that dies in between leaves a lease that expires. The alert
is then sent again, with the same idempotency key.

`redrive keys list --domain redrive` shows the records, and `redrive keys release` resets one.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, cast

from sqlalchemy import select, update

from ...core.clock import SYSTEM
from ...core.key import Key
from ...idempotency.record import KeyId
from ...ledger.db.clock import now_on
from ...ledger.db.session import Session, upsert
from ...ledger.db.tables import key as table
from ...ledger.ledger import Ledger
from ...ledger.timestamps import to_micros
from .changes import OpenAlert, OpenAlerts

LEASE = timedelta(seconds=60)
"""Longer than a message may take with all of its attempts."""
KEEP = timedelta(days=365)
"""Time for which a record is kept after its last change."""
FORMAT = 1


class StoredAlerts(NamedTuple):
    """What a target was told, as it is stored. Immutable."""

    alerts: OpenAlerts
    revision: int
    """Number of the next message. A message that is sent again has the same one."""
    fence: int | None = None
    """Grows with each `claim` and `save`. None: nothing is stored yet."""


class AlertState(Protocol):
    """Where a watcher stores what a target was told."""

    def read(self) -> StoredAlerts:
        """Return what the target was told."""

    def claim(self, stored: StoredAlerts, /) -> StoredAlerts | None:
        """Hold the state. None: another watcher holds it, or has changed it."""

    def save(self, claimed: StoredAlerts, /) -> None:
        """Store what the target was told, and stop holding the state."""


class LedgerState:
    """The state of one target in a ledger. One thread at a time."""

    def __init__(self, ledger: Ledger, target_id: str, /) -> None:
        self._pool = ledger.connections.write
        self._key = KeyId.of(Key("redrive", "", target_id, "alerts"))
        self._is_own = tuple(table.c[name] == part for name, part in self._key._asdict().items())

    def read(self) -> StoredAlerts:
        """Return what the target was told."""
        query = select(table.c.fence, table.c.response).where(*self._is_own)
        with self._pool.use() as session:
            row = session.core.execute(query).first()
            if row is None:
                return StoredAlerts({}, to_micros(now_on(session)))
        alerts, revision = _decode(row.response)
        return StoredAlerts(alerts, revision or row.fence, row.fence)

    def claim(self, stored: StoredAlerts, /) -> StoredAlerts | None:
        """Hold the state. None: another watcher holds it, or has changed it."""
        with self._pool.use() as session:
            now = now_on(session)
            fence = max(to_micros(now), (stored.fence or 0) + 1)
            values = {"fence": fence, "holder": _holder(), "lease_until": now + LEASE}
            if stored.fence is None:
                is_claimed = self._insert(session, stored, values, now)
            else:
                is_free = (table.c.fence == stored.fence, table.c.lease_until <= now)
                claimed = update(table).where(*self._is_own, *is_free).values(values)
                is_claimed = session.core.execute(claimed).rowcount == 1
        return stored._replace(fence=fence) if is_claimed else None

    def _insert(
        self, session: Session, stored: StoredAlerts, values: Mapping[str, Any], now: datetime
    ) -> bool:
        row = {
            **self._key._asdict(),
            **values,
            # Not "processing": the doctor reports such records of a holder that died.
            "status": "completed",
            "response": _encode(stored),
            "expires_at": now + KEEP,
            "created_at": now,
            "updated_at": now,
        }
        insert = upsert(session, table).values(row).on_conflict_do_nothing()
        # The row count of an INSERT is not known on Postgres.
        return session.core.execute(insert.returning(table.c.fence)).first() is not None

    def save(self, claimed: StoredAlerts, /) -> None:
        """Store what the target was told, and stop holding the state."""
        with self._pool.use() as session:
            now = now_on(session)
            values = {
                # A watcher that has read the earlier state must not claim with its fence.
                "fence": table.c.fence + 1,
                "response": _encode(claimed),
                "lease_until": now,
                "expires_at": now + KEEP,
                "updated_at": now,
            }
            is_held = table.c.fence == claimed.fence
            session.core.execute(update(table).where(*self._is_own, is_held).values(values))


class MemoryState:
    """The state of one target while the ledger cannot be used. One thread at a time."""

    def __init__(self) -> None:
        self._stored = StoredAlerts({}, to_micros(SYSTEM.now()))

    def read(self) -> StoredAlerts:
        """Return what this process told the target."""
        return self._stored

    def claim(self, stored: StoredAlerts, /) -> StoredAlerts | None:
        """Hold the state, which no other watcher has."""
        return stored

    def save(self, claimed: StoredAlerts, /) -> None:
        """Store what the target was told."""
        self._stored = claimed


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


# --- The stored form


def _encode(stored: StoredAlerts) -> bytes:
    rows = [
        {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in alert._asdict().items()
        }
        for alert in stored.alerts.values()
    ]
    return json.dumps({"format": FORMAT, "revision": stored.revision, "alerts": rows}).encode()


def _decode(response: bytes | None) -> tuple[OpenAlerts, int]:
    """Return the alerts and the revision. A form that this version does not know is empty."""
    try:
        stored = json.loads(response or b"{}")
        alerts = [_alert_from(row) for row in stored["alerts"]]
        return {(alert.name, alert.subject): alert for alert in alerts}, int(stored["revision"])
    except (ValueError, TypeError, KeyError):
        return {}, 0


def _alert_from(row: Mapping[str, str]) -> OpenAlert:
    absent = row["absent_since"]
    return OpenAlert(
        name=row["name"],
        subject=row["subject"],
        severity=cast("Any", row["severity"]),
        opened_at=datetime.fromisoformat(row["opened_at"]),
        sent_at=datetime.fromisoformat(row["sent_at"]),
        absent_since=datetime.fromisoformat(absent) if absent else None,
    )
