"""Login throttle: limits wrong passwords by address, or by known browser."""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict

from ...core.clock import SYSTEM, Clock

MAX_WRONG = 5
"""Wrong passwords within WINDOW_SECONDS."""
WINDOW_SECONDS = 60.0
MAX_ADDRESSES = 10_000
"""Addresses that are tracked. The oldest are forgotten first."""


class LoginThrottle:
    """Counts failed logins by address, in a window of one minute. Threads may share one.

    All addresses together have no limit, because strangers could use it to lock out every
    operator. The cost of checking a password limits them (see `AccessControl.check_password`).
    """

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def start_attempt(self, address: str, /) -> float:
        """Count an attempt as failed, until `forgive` is called.

        The attempt counts before its password is checked. Checking is slow, so simultaneous
        requests would otherwise exceed the limit.

        Returns:
            Seconds until this address may log in. 0: now.
        """
        now = self._clock.monotonic()
        with self._lock:
            times = self._failures.get(address, [])
            recent = [time for time in times if time > now - WINDOW_SECONDS]
            if len(recent) >= MAX_WRONG:
                return recent[-MAX_WRONG] + WINDOW_SECONDS - now
            self._failures.pop(address, None)
            self._failures[address] = [*recent, now]
            while len(self._failures) > MAX_ADDRESSES:
                self._failures.popitem(last=False)
            return 0.0

    def forgive(self, address: str, /) -> None:
        """Remove the last attempt: its password was right, or was not checked."""
        with self._lock:
            times = self._failures.get(address)
            if times:
                times.pop()


def network_of(host: str, /) -> str:
    """Return the part of an address that a client cannot choose: for IPv6 the first 64 bits."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6 and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
