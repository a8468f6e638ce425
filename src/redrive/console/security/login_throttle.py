"""Patience: how many wrong passwords are accepted from one address, or from one known browser."""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict

from ...core.clock import SYSTEM, Clock

MAX_WRONG = 5
"""Wrong passwords within WINDOW_SECONDS."""
WINDOW_SECONDS = 60.0
MAX_ADDRESSES = 10_000
"""Addresses; the oldest are forgotten."""


class Patience:
    """Counts failed logins by address, over a window of a minute. Threads may share one.

    There is no limit for all addresses together: strangers could use it to lock every operator out. What they can try in
    all is bounded by the cost of a password (see Access.role_of).
    """

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def wait(self, address: str, /) -> float:
        """Seconds before this address may try again; 0: now, and this counts as a failure until `well`.

        It counts before the password is checked, which takes a while: many that arrive at once are many attempts.
        """
        now = self._clock.monotonic()
        with self._lock:
            recent = [at for at in self._failed.get(address, []) if at > now - WINDOW_SECONDS]
            if len(recent) >= MAX_WRONG:
                return recent[-MAX_WRONG] + WINDOW_SECONDS - now
            self._failed.pop(address, None)
            self._failed[address] = [*recent, now]
            while len(self._failed) > MAX_ADDRESSES:
                self._failed.popitem(last=False)
            return 0.0

    def well(self, address: str, /) -> None:
        """The password was right, or was not checked: the last attempt does not count."""
        with self._lock:
            attempts = self._failed.get(address)
            if attempts:
                attempts.pop()


def network_of(host: str, /) -> str:
    """The part of an address that one person cannot change at will: of IPv6 the first 64 bits."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
