"""Ends: what attempts that were made become in the ledger; and whether it is an outage."""

from __future__ import annotations

from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, cast

from ..core.outage import WINDOW, End, Outage, Parking, Recent, Verdict, is_charged
from ..core.text import safe_str
from ..journal.bus import emit, is_success_wanted, is_wanted
from ..journal.sinks.logging import level_of
from ..ledger import kinds, letters, pardon
from ..ledger.kinds import Parked
from ..ledger.ledger import Ledger
from ..ledger.limits import settlements
from ..ledger.record import Lease, Settlement
from .finished import Finished
from .kind import Kind
from .outcome import Outcome, expired, failed, forgiven, given_back, succeeded, unreadable

BUCKETS = {"success": "done", "recovered": "done", "retry": "again", "again": "again", "giveup": "dead", "blocked": "dead"}

RELEASED = "released"
"""Reason of an attempt that was given back because its worker ended."""
DEATHS = ("giveup", "blocked")
"""Records of attempts that made a dead letter."""


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
        self._owed: dict[int, tuple[tuple[int, ...], float]] = {}
        """Fences of attempts to give back, by job, and until when on the monotonic clock."""
        self._deaths: list[tuple[Lease, str, dict[str, Any]]] = []
        """Records of deaths that the ledger has not got yet."""

    def settled(self, finished: Iterable[Finished], probes: dict[int, str], /, *, draining: bool) -> list[Settlement]:
        """What to tell the ledger of these.

        Args:
            finished: The attempts.
            probes: Job types by the job that probes them. Those whose probe has ended are removed.
            draining: Whether the worker is ending.
        """
        finished = list(finished)
        quiet = not is_success_wanted()
        if quiet and not probes and _well(finished) and not self._is_any_parked(finished):
            return self._well(finished)
        judged = [(one, self._judged(one, draining)) for one in finished]
        for one, found in judged:
            self._seen(one, found, probes)
        told = []
        uncharged = self._uncharged(judged)
        for one, found in judged:
            outcome = self._charge(one, found, uncharged)
            self.counts["late" if one.late else BUCKETS[outcome.record]] += 1
            if not quiet or outcome.record != "success" or one.late:
                self._record(one, outcome)
            if not one.settled and not one.late:
                told.append(outcome.settlement)
        return told

    def _is_any_parked(self, finished: list[Finished]) -> bool:
        return bool(self.parked) and any(one.lease.kind in self.parked for one in finished)

    def _well(self, finished: list[Finished]) -> list[Settlement]:
        """The short way, where there is nothing to say of any of them."""
        self.counts["done"] += len(finished)
        ended: dict[str, list[Lease]] = {}
        for one in finished:
            ended.setdefault(one.lease.kind, []).append(one.lease)
        now = monotonic()
        for name, leases in ended.items():
            if name in self._recent:
                last = leases[-2 * self._parking.least :]
                self._recent[name].add_successes([_end_of(lease, "success", None, now) for lease in last])
        return [one.lease.done() for one in finished]

    def _judged(self, one: Finished, draining: bool) -> Outcome:
        if one.unstarted:
            return expired(one.lease)
        if one.error is None or one.late:
            return succeeded(one.lease, one.result, self._ledger.max_payload)
        if draining and isinstance(one.error, CancelledError):
            return Outcome(one.lease.release(), "again", RELEASED)
        try:
            found = failed(one.kind, one.lease, one.error, now=self._now(), draw=self._draw())
            settlements([found.settlement], self._ledger.max_payload)  # one that is refused would hold up all the others
            return found
        except Exception as problem:  # an error of the user's that cannot even be looked at
            return unreadable(one.kind, one.lease, one.error, problem)

    def _seen(self, one: Finished, found: Outcome, probes: dict[int, str]) -> None:
        """Whether this makes an outage, or ends one."""
        name, lease = one.kind.name, one.lease
        recent = self._recent.get(name)
        if found.reason == RELEASED:
            return  # it says nothing of the service; the worker's end releases the probe
        is_probe = probes.pop(lease.job_id, None) is not None
        if recent is None:
            return
        # If the database is away, the next failure parks the job type, and the next probe releases it.
        with suppress(Exception):
            parked = self.parked.get(name)
            end = _end_of(lease, found.verdict, found.signature, monotonic())
            outage = recent.add(end if parked is None else end._replace(attempts=()))
            if parked is None:
                if outage is not None:
                    self._park(name, outage)
            elif found.verdict == "success" and (is_probe or self._began_after(one, parked)):
                self._unpark(name)
            elif found.verdict == "charged" and is_probe:
                self._probe_again(name, parked)

    def _began_after(self, one: Finished, parked: Parked) -> bool:
        """Whether the attempt began while the job type was parked already: other attempts say nothing of the end."""
        return self._now() - timedelta(seconds=one.seconds) > parked.since

    def _park(self, name: str, outage: Outage) -> None:
        says = f"{len(outage.ends)} jobs failed transiently, most of them with: {outage.signature}"
        with self._ledger.connections.write.use() as session:
            if kinds.park(session, name, signature=outage.signature, reason=says, seconds=self._parking.wait(0)):
                emit("parked", {"operation": name, "reason": says})
            parked = kinds.parked(session)
        self.see_parked(parked)

    def see_parked(self, parked: dict[str, Parked], /) -> None:
        """The job types that are parked now, by this worker or another: give back what this worker saw fail."""
        new = [name for name in parked if name not in self.parked and name in self._recent]
        self.parked = parked
        for name in new:
            for end in self._recent[name].take_failures(monotonic()):
                job_id = cast(int, end.key)
                fences, _ = self._owed.get(job_id, ((), 0.0))
                self._owed[job_id] = (*fences, *end.attempts), monotonic() + WINDOW
        self._give_back()

    def _give_back(self) -> None:
        """Give attempts back that failed in an outage. The rest is kept for the next look, for 600 s."""
        owed = list(self._owed.items())
        for first in range(0, len(owed), pardon.CHUNK):
            runs = {job_id: fences for job_id, (fences, _) in owed[first : first + pardon.CHUNK]}
            # If the database is away, the next look repeats this.
            with suppress(Exception):
                with self._ledger.connections.write.use() as session:
                    left = pardon.give_back(session, runs, most=self._parking.uncharged)
                for job_id in runs:
                    _, until = self._owed.pop(job_id)
                    if job_id in left:
                        self._owed[job_id] = tuple(left[job_id]), until
        now = monotonic()
        self._owed = {job_id: (fences, until) for job_id, (fences, until) in self._owed.items() if until > now}

    def _probe_again(self, name: str, parked: Parked) -> None:
        """The probe failed for a reason of its own: another job probes after the same wait."""
        with self._ledger.connections.write.use() as session:
            wait = self._parking.wait(max(0, parked.probes - 1))
            kinds.probe_again(session, name, probes=parked.probes, seconds=wait)
            now_parked = kinds.parked(session)
        self.see_parked(now_parked)

    def release_probes(self, names: Iterable[str], /) -> None:
        """The probes of these job types were given back at the end of the worker: the next one may start at once."""
        for name in sorted(names):
            parked = self.parked.get(name)
            if parked is not None:
                with self._ledger.connections.write.use() as session:
                    kinds.probe_again(session, name, probes=parked.probes, seconds=0.0)

    def _unpark(self, name: str) -> None:
        """The service is back."""
        parked = self.parked.pop(name, None)
        with self._ledger.connections.write.use() as session:
            if kinds.unpark(session, name, because="a job succeeded") and parked is not None:
                emit("unparked", {"operation": name, "reason": parked.reason})

    def _uncharged(self, judged: Iterable[tuple[Finished, Outcome]]) -> dict[int, int]:
        """Attempts that were not charged so far, of the jobs that failed in an outage now."""
        ids = {
            one.lease.job_id for one, found in judged if found.may_be_spared and (found.of_ledger or one.kind.name in self.parked)
        }
        # Where the database is away, the count of attempts is read at the job's next failure.
        with suppress(Exception):
            if ids:
                with self._ledger.connections.read.use() as session:
                    return pardon.uncharged(session, ids)
        return {}

    def _charge(self, one: Finished, found: Outcome, uncharged: Mapping[int, int]) -> Outcome:
        """The outcome, charged or not."""
        name, count = one.kind.name, uncharged.get(one.lease.job_id, 0)
        if found.of_ledger:
            spared = found.may_be_spared and count < self._parking.uncharged
            return given_back(one.lease, found, count) if spared else found
        outage = name in self.parked and name in self._recent
        if not found.may_be_spared or is_charged(found.verdict, self._parking, outage=outage, uncharged=count):
            return found
        return forgiven(one.kind, one.lease, found, draw=self._draw())

    def late(self, settlements: Iterable[Settlement], /) -> None:
        """These came too late, and changed nothing: counted, and told."""
        for one in settlements:
            self.counts["late"] += 1
            emit("late", {"operation": one.kind, "job_id": str(one.job_id), "fence": one.fence, "outcome": one.outcome})

    def _record(self, one: Finished, outcome: Outcome) -> None:
        if outcome.record != "success" and not is_wanted(level_of(outcome.record, outcome.reason)):
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
            fields |= {"error": safe_str(error), "error_class": type(error).__name__, "http_status": fault.status}
            fields |= {"retryable": fault.retryable}
        if outcome.record in DEATHS and not one.late and not one.settled:
            self._deaths.append((lease, outcome.record, fields))
        else:
            emit("late" if one.late else outcome.record, fields)

    def tell_deaths(self) -> None:
        """Emit the records of deaths, each with the number of its dead letter: the ledger has them by now."""
        if not self._deaths:
            return
        deaths, self._deaths = self._deaths, []
        ids = {lease.job_id: lease.dead_id for lease, _, _ in deaths if lease.dead_id is not None}
        new = [lease.job_id for lease, _, _ in deaths if lease.job_id not in ids]
        with suppress(Exception):  # without the number rather than not at all
            if new:
                with self._ledger.reading() as connection:
                    ids |= letters.numbers(connection, new)
        for lease, record, fields in deaths:
            number = ids.get(lease.job_id)
            emit(record, fields | {"dlq_id": None if number is None else str(number)})


def _end_of(lease: Lease, verdict: Verdict, signature: str | None, now: float) -> End:
    return End(lease.job_id, verdict, signature or "", _customer(lease), now, (lease.fence,))


def _customer(lease: Lease) -> str | None:
    """The customer of a job: the correlation id `user_id`, or the user part of its key.

    The keys of events have their source in that place.
    """
    if lease.ids_stored and "user_id" in lease.ids_stored:
        return lease.ids.get("user_id") or None
    parts = lease.key.split(":", 4)
    return parts[1] or None if len(parts) == 5 and parts[0] != "event" else None


def _well(finished: Iterable[Finished]) -> bool:
    """All done at the first attempt, with nothing to keep."""
    return all(
        one.error is None and one.result is None and one.lease.attempt <= 1 and not (one.settled or one.late or one.unstarted)
        for one in finished
    )
