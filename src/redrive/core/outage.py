"""The outage rule: when failures of many keys are an outage, and what that costs each key. Pure.

Jobs, message handlers, batches and partitions share this rule. `docs/concepts/outages.md` explains
it for users. Each of the four translates its own terms:

========== =================== ================== ==========================================
caller     scope               key                group (customer)
========== =================== ================== ==========================================
jobs       job type            job id             user part of the job key
handlers   handler             job id             the event's correlation id `user_id`
batches    one pass of a call  item id            none, or the item's customer
partitions source              partition id       customer
========== =================== ================== ==========================================

How to use it:

1. Turn each end of an attempt into an `End`. `verdict_of(fault)` gives its verdict.
2. Pass the ends of one scope to `find_outage`, or to a `Recent`, which remembers them in bounded
   memory and calls `find_outage` after each failure.
3. On a `DetectedOutage`: give back the attempts in `outage.ends`, pause the scope, and probe it
   after `parking.wait(probes)` seconds. The first success ends the outage.
4. Ask `is_charged` about each further failure. It needs the number of uncharged attempts of the
   key. That number must come from the store, so that it survives the process.

Nothing here reads a clock: `End.at` is in seconds on any clock that the caller uses throughout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self, TypeAlias

from .fault import Fault
from .seconds import Seconds, positive, real, whole_number

WINDOW = 600.0
"""Seconds for which an end is recent."""
REMEMBERED = 50
"""Failing keys that a `Recent` remembers, in multiples of `least`."""
UNCHARGED = 20
"""Attempts of one key that an outage does not charge, by default.

An outage of an hour has 16 probes: after 5, 10, 20, 40, 80 and 160 s, then 300 s apart (at 5, 15,
35, 75, 155, 315, 615, ... 3,315 s). If one job makes all of them, it has 20 attempts together with
the 4 that the default policy may charge before the outage is recognised.
"""

Verdict: TypeAlias = Literal["success", "evidence", "charged"]
"""`success`: the service responded as it should. `evidence`: a fault that may be the service's, as
classified (transient, throttled, timeout) or as declared. `charged`: a fault of the key, or an
unknown one."""


@dataclass(frozen=True, slots=True)
class Parking:
    """When failures are treated as an outage, and how a parked job type is probed.

    Immutable: threads, event loops and forked children may share one.

    Args:
        least: Number of distinct keys (jobs, items, partitions) that must have failed.
        share: Part of the recent keys that must have failed, above 0 and up to 1.
        first: Seconds until the first probe. Each further wait is twice as long.
        longest: Maximum number of seconds between two probes.
        enabled: If False, every failure counts as an attempt.
        uncharged: Maximum number of attempts of one key that do not count because of outages.
    """

    least: int = 10
    share: float = 0.9
    first: Seconds = 5.0
    longest: Seconds = 300.0
    enabled: bool = True
    uncharged: int = UNCHARGED

    def __post_init__(self) -> None:
        whole_number("least", self.least)
        if not 0 < real("share", self.share) <= 1:
            raise ValueError(f"share must be above 0 and at most 1: {self.share!r}")
        object.__setattr__(self, "first", positive("first", self.first))
        object.__setattr__(self, "longest", positive("longest", self.longest))
        whole_number("uncharged", self.uncharged, least=0)

    @classmethod
    def disabled(cls) -> Self:
        """Return a rule that counts every failure as an attempt.

        Returns:
            `Parking(enabled=False)`.
        """
        return cls(enabled=False)

    def wait(self, probes: int, /) -> float:
        """Return the seconds until the next probe.

        Args:
            probes: Number of probes so far.

        Returns:
            Seconds.
        """
        first, longest = positive("first", self.first), positive("longest", self.longest)
        return min(longest, first * 2.0 ** min(probes, 30))

    def outage(self, recent: Iterable[str | None], /) -> str | None:
        """Return the signature of an outage that these results are evidence of.

        Args:
            recent: One entry for each key: the signature of a transient fault, or None for a
                success.

        Returns:
            The signature, or None if there is no outage.
        """
        ends = [
            End(key, "success" if signature is None else "evidence", signature or "")
            for key, signature in enumerate(recent)
        ]
        outage = find_outage(ends, self)
        return None if outage is None else outage.signature


class End(NamedTuple):
    """The end of one attempt, or of a run of failed attempts of one key. Immutable."""

    key: Hashable
    """Of the job, item or partition. A key counts once, by its latest end."""
    verdict: Verdict
    signature: str = ""
    """Of the fault, where it is evidence: equal for one cause, see `signature`."""
    group: str | None = None
    """The customer, where it is known."""
    at: float = 0.0
    """Seconds, on any one clock. Ends are passed in the order of their time."""
    attempts: tuple[int, ...] = ()
    """Numbers (fences) of the attempts of this run, to refund them."""
    since: float | None = None
    """When the first of a run of failures ended, where earlier ends of the key are not passed."""


class DetectedOutage(NamedTuple):
    """An outage that was recognised. Immutable."""

    signature: str
    """Of most of the failures."""
    ends: tuple[End, ...]
    """The latest failure of each key that failed transiently, with all attempts of its run of
    failures. These are refunded, as far as `Parking.uncharged` allows."""

    @property
    def keys(self) -> list[Hashable]:
        """The keys whose attempts are refunded."""
        return [end.key for end in self.ends]


def verdict_of(fault: Fault, /, *, systemic: bool = False) -> Verdict:
    """The verdict on a failed attempt. Permanent and unknown faults are charged.

    Args:
        fault: As classified by the standard rule or by the user's own rules (`on=`).
        systemic: The sender or the handler declared the fault to be the service's own.
    """
    return "evidence" if fault.retryable or systemic else "charged"


def is_charged(verdict: Verdict, parking: Parking, /, *, outage: bool, uncharged: int) -> bool:
    """Whether a failed attempt counts against its key.

    Args:
        verdict: On the attempt.
        parking: The figures of the rule.
        outage: An outage of this scope is recognised and has not ended.
        uncharged: Attempts of this key that were not charged so far, from the store.
    """
    return not (outage and verdict == "evidence" and uncharged < parking.uncharged)


def find_outage(
    ends: Iterable[End],
    parking: Parking,
    /,
    *,
    now: float | None = None,
    groups: Iterable[str] = (),
    last: int | None = None,
) -> DetectedOutage | None:
    """Return the outage that these ends of one scope are evidence of, or None.

    - Charged ends count neither for nor against an outage.
    - A key counts once, by its latest end. A retry that fails is not new evidence: the key keeps
      the place of the first failure of its run. Retries of a few poison jobs therefore do not
      displace the successes since then.
    - Of the last `2 * least` keys, at least `least` failed transiently with one signature. They are
      at least `share` of all keys that failed transiently or succeeded. If none succeeded, the
      signatures may differ, because an outage has many messages (other hosts, timeouts, refused
      connections).
    - Failures of one customer are not an outage if another customer was seen. Without the customer
      with the most failures, there must be other evidence, `share` of the other customers' ends.

    Args:
        ends: Ends of one scope, the oldest first. The last 600 s count.
        parking: The figures of the rule.
        now: On the clock of `End.at` (default: the latest end).
        groups: Other customers that were seen within the last 600 s, if their ends are not passed.
        last: Number of latest keys that count (default: `2 * least`). A batch passes the number of
            its items, because they end together.
    """
    known = list(ends)
    if not parking.enabled or not known:
        return None
    since = (max(end.at for end in known) if now is None else now) - WINDOW
    seen = set(groups)
    latest: dict[Hashable, _Standing] = {}
    for place, end in enumerate(known):
        if end.group is not None and end.at >= since:
            seen.add(end.group)
        if end.verdict != "charged":
            latest[end.key] = _stand(latest.get(end.key), end, place)
    recent = [standing for standing in latest.values() if standing.end.at >= since]
    standings = sorted(recent, key=lambda standing: standing.place)
    counted = standings[-(2 * parking.least if last is None else last) :]
    signature = _common_signature([each.end for each in counted], parking, seen)
    if signature is None:
        return None
    return DetectedOutage(
        signature, tuple(each.end for each in standings if each.end.verdict == "evidence")
    )


class _Standing(NamedTuple):
    """The latest end of a key, and the time and order in which its run began."""

    end: End
    place: tuple[float, int]


def _stand(before: _Standing | None, end: End, place: int) -> _Standing:
    if before is not None and _is_run(before.end, end):
        return _Standing(end._replace(attempts=before.end.attempts + end.attempts), before.place)
    return _Standing(end, (end.at if end.since is None else end.since, place))


def _is_run(before: End, end: End) -> bool:
    """Whether two consecutive ends of a key belong to one run of failures."""
    return before.verdict == end.verdict == "evidence" and before.at >= end.at - WINDOW


def _common_signature(ends: Sequence[End], parking: Parking, seen: set[str]) -> str | None:
    """The most common signature, where these ends (of distinct keys) are an outage."""
    failed = [end for end in ends if end.verdict == "evidence"]
    if len(failed) < parking.least:
        return None
    signature, count = Counter(end.signature for end in failed).most_common(1)[0]
    alike = count if len(failed) < len(ends) else len(failed)
    if alike < parking.least or not _is_share(alike, len(ends), parking):
        return None
    customers = Counter(end.group for end in failed if end.group is not None)
    if customers and len(seen) > 1:
        largest = customers.most_common(1)[0][0]
        remaining = [end for end in ends if end.group != largest]
        failed_count = sum(end.verdict == "evidence" for end in remaining)
        if not failed_count or not _is_share(failed_count, len(remaining), parking):
            return None
    return signature


def _is_share(part: int, total: int, parking: Parking) -> bool:
    return part >= parking.share * total - 1e-9


class Recent:
    """The recent ends of one scope, in bounded memory. Belongs to one thread.

    It keeps the last `2 * least` keys that succeeded, up to `50 * least` keys that failed
    transiently, and the last two customers.
    """

    def __init__(self, parking: Parking) -> None:
        self._parking = parking
        self._succeeded: dict[Hashable, End] = {}
        self._failed: dict[Hashable, End] = {}
        self._places: dict[Hashable, None] = {}
        """All of these keys, in the order of their successes and first failures."""
        self._groups: dict[str, float] = {}

    def add(self, end: End, /) -> DetectedOutage | None:
        """Remember an end; the outage, where this failure makes it one."""
        if end.group is not None:
            self._see(end.group, end.at)
        if end.verdict == "success":
            self._succeed(end)
        if end.verdict != "evidence":
            return None
        self._fail(end)
        groups = {group for group, at in self._groups.items() if at >= end.at - WINDOW}
        # The last keys decide. Other failures are considered only if that is an outage.
        if _common_signature(self._last_ends(end.at), self._parking, groups) is None:
            return None
        # Sorted by time: a run of failures is passed as one end, whose place `since` says.
        known = sorted(
            [*self._succeeded.values(), *self._failed.values()], key=lambda each: each.at
        )
        return find_outage(known, self._parking, now=end.at, groups=groups)

    def add_successes(self, ends: Sequence[End], /) -> None:
        """Remember successes; the last `2 * least` of them count."""
        for end in ends[-2 * self._parking.least :]:
            self.add(end)

    def take_failures(self, now: float, /) -> list[End]:
        """Return the recent failures whose attempts are refunded, one end for each key.

        Their attempts are forgotten, so that none is refunded twice. The failures stay: if the same
        keys continue to fail while others succeed, that is not another outage.
        """
        failures = [end for end in self._failed.values() if end.attempts and end.at >= now - WINDOW]
        self._failed = {key: end._replace(attempts=()) for key, end in self._failed.items()}
        return failures

    def clear(self) -> None:
        """Forget everything."""
        self._succeeded.clear()
        self._failed.clear()
        self._places.clear()
        self._groups.clear()

    def _last_ends(self, now: float) -> list[End]:
        """The ends of the last `2 * least` keys."""
        ends: list[End] = []
        for key in reversed(self._places):
            end = self._failed.get(key) or self._succeeded[key]
            if end.at >= now - WINDOW:
                ends.append(end)
                if len(ends) == 2 * self._parking.least:
                    break
        return ends[::-1]

    def _see(self, group: str, at: float) -> None:
        self._groups.pop(group, None)
        self._groups[group] = at
        if len(self._groups) > 2:
            del self._groups[next(iter(self._groups))]

    def _succeed(self, end: End) -> None:
        self._failed.pop(end.key, None)
        self._succeeded.pop(end.key, None)
        self._succeeded[end.key] = end
        self._move_to_end(end.key)
        if len(self._succeeded) > 2 * self._parking.least:
            self._forget_first(self._succeeded)

    def _fail(self, end: End) -> None:
        self._succeeded.pop(end.key, None)
        before = self._failed.pop(end.key, None)
        if before is not None and _is_run(before, end):
            run = (before.attempts + end.attempts)[-REMEMBERED:]
            end = end._replace(
                attempts=run, since=before.at if before.since is None else before.since
            )
        else:
            self._move_to_end(end.key)
        self._failed[end.key] = end
        if len(self._failed) > REMEMBERED * self._parking.least:
            self._forget_first(self._failed)

    def _move_to_end(self, key: Hashable) -> None:
        self._places.pop(key, None)
        self._places[key] = None

    def _forget_first(self, ends: dict[Hashable, End]) -> None:
        key = next(iter(ends))
        del ends[key], self._places[key]
