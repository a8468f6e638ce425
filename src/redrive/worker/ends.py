"""Ends: what attempts that were made become in the ledger; and whether it is an outage."""

from __future__ import annotations

from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from time import monotonic
from typing import Any

from ..core.signature import said
from ..journal.bus import emit, wanted, wanted_success
from ..journal.log import level_of
from ..ledger import kinds, pardon
from ..ledger.kinds import Parked
from ..ledger.ledger import Ledger
from ..ledger.limits import settlements
from ..ledger.record import Settlement
from .finished import Finished
from .kind import Kind
from .outcome import Outcome, expired, failed, forgiven, succeeded, unreadable
from .parking import Parking, Recent

BUCKETS = {"success": "done", "recovered": "done", "retry": "again", "again": "again", "giveup": "dead", "blocked": "dead"}


class Ends:
    """Judges attempts. Belongs to the ledger thread."""

    def __init__(
        self, ledger: Ledger, known: Mapping[str, Kind], parking: Parking, *, now: Callable[[], datetime],
        draw: Callable[[], float],
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._parking = parking
        self._now, self._draw = now, draw
        self._recent = {name: Recent(parking) for name, kind in known.items() if kind.parks and parking.enabled}
        self.counts: Counter[str] = Counter()
        self.parked: dict[str, Parked] = {}

    def settled(self, finished: Iterable[Finished], probes: set[int], /, *, draining: bool) -> list[Settlement]:
        """What to tell the ledger of these. probes: jobs that are tried to see whether an outage is over."""
        finished = list(finished)
        quiet = not wanted_success()
        if quiet and not probes and _well(finished):
            return self._well(finished)
        judged = [(one, self._judged(one, draining)) for one in finished]
        for one, found in judged:
            self._seen(one, found, probes)
        told = []
        for one, found in judged:
            outcome = self._spared(one, found) if found.signature is not None else found
            self.counts["late" if one.late else BUCKETS[outcome.record]] += 1
            if not quiet or outcome.record != "success" or one.late:
                self._record(one, outcome)
            if not one.settled and not one.late:
                told.append(outcome.settlement)
        return told

    def _well(self, finished: list[Finished]) -> list[Settlement]:
        """The short way, where there is nothing to say of any of them."""
        self.counts["done"] += len(finished)
        ended: dict[str, list[tuple[int, int]]] = {}
        for one in finished:
            ended.setdefault(one.lease.kind, []).append(one.lease[:2])
        now = monotonic()
        for name, jobs in ended.items():
            if name in self._recent and name not in self.parked:
                self._recent[name].well(jobs, now)
        return [one.lease.done() for one in finished]

    def _judged(self, one: Finished, draining: bool) -> Outcome:
        if one.unstarted:
            return expired(one.lease)
        if one.error is None or one.late:
            return succeeded(one.lease, one.result, self._ledger.max_payload)
        if draining and isinstance(one.error, CancelledError):
            return Outcome(one.lease.release(), "again", "released")
        try:
            found = failed(one.kind, one.lease, one.error, now=self._now(), draw=self._draw())
            settlements([found.settlement], self._ledger.max_payload)  # one that is refused would hold up all the others
            return found
        except Exception as problem:  # an error of the user's that cannot even be looked at
            return unreadable(one.kind, one.lease, one.error, problem)

    def _seen(self, one: Finished, found: Outcome, probes: set[int]) -> None:
        """Whether this makes an outage, or ends one."""
        name, lease = one.kind.name, one.lease
        recent = self._recent.get(name)
        probe = lease.job_id in probes
        probes.discard(lease.job_id)
        if recent is None or (found.signature is None and found.record not in ("success", "recovered")):
            return
        if name in self.parked:
            if probe and found.signature is None:
                try:
                    self._unpark(name)
                except Exception:  # likewise: the next probe does it
                    pass
            return
        reason = recent.ended(lease.job_id, lease.fence, found.signature, monotonic())
        if reason is not None:
            try:
                self._park(name, reason, recent)
            except Exception:  # the database is away: the next failure parks it
                pass

    def _park(self, name: str, reason: str, recent: Recent) -> None:
        attempts = recent.charged(reason)
        says = f"{len(attempts)} jobs failed for one reason: {reason}"
        with self._ledger.connections.write.use() as session:
            if kinds.park(session, name, signature=reason, reason=says, seconds=self._parking.wait(0)):
                emit("parked", {"operation": name, "reason": says})
            self.parked = kinds.parked(session)
            pardon.uncharged(session, attempts)
        recent.clear()

    def _unpark(self, name: str) -> None:
        """A probe went well."""
        parked = self.parked.pop(name, None)
        with self._ledger.connections.write.use() as session:
            if kinds.unpark(session, name, because="a probe went well") and parked is not None:
                emit("unparked", {"operation": name, "reason": parked.reason})
        self._recent[name].clear()

    def _spared(self, one: Finished, found: Outcome) -> Outcome:
        parked = self.parked.get(one.kind.name)
        if parked is None or parked.signature != found.signature:
            return found
        return forgiven(one.kind, one.lease, found, draw=self._draw())

    def late(self, settlements: Iterable[Settlement], /) -> None:
        """These came too late, and changed nothing: counted, and told."""
        for one in settlements:
            self.counts["late"] += 1
            emit("late", {"operation": one.kind, "job_id": str(one.job_id), "fence": one.fence, "outcome": one.outcome})

    def _record(self, one: Finished, outcome: Outcome) -> None:
        if outcome.record != "success" and not wanted(level_of(outcome.record, outcome.reason)):
            return
        lease, error = one.lease, one.error
        fields: dict[str, Any] = {
            **lease.ids,
            **one.kind.settings.fields,
            "operation": one.kind.name,
            "job_id": str(lease.job_id),
            "attempt": lease.attempt,
            "max_attempts": one.kind.settings.max_attempts if lease.max_attempts is None else lease.max_attempts,
            "latency_ms": round(one.seconds * 1000, 3),
            "idempotency_key": lease.key,
            "reason": outcome.reason,
            "wait": outcome.wait,
        }
        if error is not None:
            fault = outcome.fault
            fields |= {"error": said(error), "error_class": type(error).__name__, "http_status": fault.status}
            fields |= {"retryable": fault.retryable}
        emit("late" if one.late else outcome.record, fields)


def _well(finished: Iterable[Finished]) -> bool:
    """All done at the first attempt, with nothing to keep."""
    return all(
        one.error is None and one.result is None and one.lease.attempt <= 1 and not (one.settled or one.late or one.unstarted)
        for one in finished
    )
