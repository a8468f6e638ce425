"""The thread that renews leases."""

from __future__ import annotations

import time
from typing import Any

from redrive.idempotency.lease_renewer import LeaseRenewer
from redrive.idempotency.record import KeyId, LeasedKey


class Database:
    """Renews leases, loses them, or is unavailable."""

    def __init__(self) -> None:
        self.renewed: list[LeasedKey] = []
        self.lost: list[LeasedKey] = []
        self.swept = 0
        self.away = False

    def renew(self, held: Any) -> list[LeasedKey]:
        if self.away:
            raise ConnectionResetError
        self.renewed += held
        return self.lost

    def sweep(self) -> None:
        self.swept += 1


def until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_leases_are_renewed_until_they_are_lost_or_removed() -> None:
    database = Database()
    renewer = LeaseRenewer(database.renew, database.sweep, 0.06)
    held = (KeyId("d", "u", "k"), 1)
    database.away = True
    renewer.add(*held)
    thread = renewer._thread
    time.sleep(0.1)
    database.away = False
    until(lambda: len(database.renewed) >= 3)
    assert set(database.renewed) == {held}
    assert database.swept == 1
    database.lost = [held]
    until(lambda: not renewer._renew_at)
    until(lambda: renewer._thread is None)  # it ends without held keys
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
    renewer.add(*held)
    renewer.remove(*held)
    assert renewer._thread is not None
    renewer.close()
    assert renewer._thread is None or not renewer._thread.is_alive()
