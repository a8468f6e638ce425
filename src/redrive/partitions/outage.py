"""Outage: when the failed extractions of a source are the source's fault. Applies the rule of `core.outage`.

Two kinds of failures are evidence:

- transient faults (no connection, a timeout, 503): at least `Parking.least` partitions;
- faults that a source usually has with every customer (401, 402, 403, `Blocked`, the raw store): one
  customer's credential may be revoked, so evidence is counted by customer, and at least two are needed.

A source with only one customer needs no second one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..core.outage import WINDOW, End, Parking, Recent, find_outage
from ..core.text import pluralise
from .record import Lease, Verdict

CUSTOMERS = 200
"""Customers of a source that are remembered."""
ATTEMPTS = 50
"""Failed attempts of one customer that are remembered."""


class Outage(NamedTuple):
    """An outage that was recognised. Immutable."""

    source: str
    signature: str
    attempts: tuple[tuple[int, int], ...]
    """Partition and number of each attempt that failed for it, whether its verdict is written or not."""
    customers: int | None = None
    """How many were refused, where that is the evidence."""

    @property
    def says(self) -> str:
        """In words."""
        if self.customers is None:
            partitions = len({partition_id for partition_id, _ in self.attempts})
            return f"{partitions} partitions failed for one reason: {self.signature}"
        return f"{pluralise(self.customers, 'customer was', 'customers were')} refused: {self.signature}"


@dataclass
class _Customer:
    """The latest end of a customer's extractions, and the attempts that failed since the last success."""

    end: End
    attempts: list[tuple[int, int]] = field(default_factory=list)


class Outages:
    """The recent ends of each source's extractions. Belongs to one thread."""

    def __init__(self, parking: Parking, is_only_customer: Callable[[str, str], bool], /) -> None:
        """Create it.

        Args:
            parking: The figures of the rule.
            is_only_customer: Whether a source (first) has no other customer than this one (second).
        """
        self._parking = parking
        self._is_only_customer = is_only_customer
        self._recent: dict[str, Recent] = {}
        self._customers: dict[str, dict[str, _Customer]] = {}

    def add(self, lease: Lease, verdict: Verdict, now: float, /, *, answered: bool) -> Outage | None:
        """Remember the end of an extraction; the outage, where this failure makes it one.

        Args:
            lease: Of the extraction.
            verdict: On it.
            now: In seconds, on any one clock.
            answered: The source gave data, whatever the checks say of it.
        """
        if not self._parking.enabled:
            return None
        if answered:
            end = End(lease.partition_id, "success", "", lease.partition.customer_id, now)
            self._of(lease).add(end)
            self._answered(lease, now)
            return None
        if verdict.signature is None:
            return None
        found = self._refused(lease, verdict.signature, now) if verdict.shared else self._failed(lease, verdict.signature, now)
        if found is not None:
            self._of(lease).clear()
            self._customers.pop(found.source, None)
        return found

    def _of(self, lease: Lease) -> Recent:
        return self._recent.setdefault(lease.partition.source, Recent(self._parking))

    def _failed(self, lease: Lease, signature: str, now: float) -> Outage | None:
        """A transient fault."""
        source, customer = lease.partition.source, lease.partition.customer_id
        found = self._of(lease).add(End(lease.partition_id, "evidence", signature, customer, now, (lease.attempt_no,)))
        if found is None:
            return None
        if {end.group for end in found.ends} == {customer} and not self._is_only_customer(source, customer):
            return None
        attempts = tuple((int(str(end.key)), number) for end in found.ends for number in end.attempts)
        return Outage(source, found.signature, attempts)

    def _refused(self, lease: Lease, signature: str, now: float) -> Outage | None:
        """A fault that is usually the source's."""
        source, name = lease.partition.source, lease.partition.customer_id
        customers = self._customers.setdefault(source, {})
        failed = [] if (before := customers.pop(name, None)) is None else before.attempts
        failed = [*failed, (lease.partition_id, lease.attempt_no)][-ATTEMPTS:]
        customers[name] = _Customer(End(name, "evidence", signature, name, now), failed)
        self._forget(customers, now)
        if len(customers) == 1:
            if not self._is_only_customer(source, name):
                return None
            least = 1
        else:
            least = max(2, -(-len(customers) // 2))  # so that every customer seen is looked at
        ends = [customer.end for customer in customers.values()]
        found = find_outage(ends, replace(self._parking, least=least), now=now)
        if found is None:
            return None
        attempts = tuple(attempt for end in found.ends for attempt in customers[str(end.key)].attempts)
        return Outage(source, found.signature, attempts, len(found.ends))

    def _answered(self, lease: Lease, now: float) -> None:
        customers = self._customers.setdefault(lease.partition.source, {})
        name = lease.partition.customer_id
        customers.pop(name, None)
        customers[name] = _Customer(End(name, "success", "", name, now))
        self._forget(customers, now)

    @staticmethod
    def _forget(customers: dict[str, _Customer], now: float) -> None:
        while len(customers) > CUSTOMERS or next(iter(customers.values())).end.at < now - WINDOW:
            del customers[next(iter(customers))]
