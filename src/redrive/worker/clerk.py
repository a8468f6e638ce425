"""Clerk: the ledger thread of a worker. Settles, starts and claims in one write; renews; looks after the ledger."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from datetime import datetime
from importlib.metadata import version
from random import random
from time import monotonic
from typing import Any

from ..errors import LedgerError, LedgerRemoved
from ..journal.bus import emit
from ..ledger import kinds, limited
from ..ledger.arrival import Arriving, Grant, Received
from ..ledger.connections import MOST
from ..ledger.crashpoint import crash_point
from ..ledger.hot import Demand
from ..ledger.kinds import Parked
from ..ledger.ledger import Ledger
from ..ledger.record import Lease, Settlement, Turn, lease_name
from .alone import Alone
from .crew import Crew
from .due import POLL, Due
from .ends import Ends
from .finished import Finished
from .hand import Hand
from .heard import Heard
from .intake import Intake
from .kind import Kind
from .parking import Parking
from .room import Room, Want
from .scope import Around
from .trouble import Trouble
from .undelivered import Undelivered
from .upkeep import Upkeep

SOON = 0.05
"""Seconds between two looks for places that others leave in kinds with a limit, and at short jobs that wait for a thread."""
PROMPT = 0.001
"""Seconds until another thread is woken for a started last attempt: the thread that was to run it may be in a long job."""
GIVE_BACK = 2.0
"""Seconds to tell the ledger of what has not ended, once `drain` is over."""


class Clerk:
    """Runs in one thread; `told`, `poke`, `stop` and what is read of it may be used by others."""

    def __init__(
        self, ledger: Ledger, theirs: Ledger, known: Mapping[str, Kind], *, name: str, threads: int, tasks: int, lease: float,
        drain: float, parking: Parking, keep: float, info: Mapping[str, Any], context: Context,
    ) -> None:  # fmt: skip
        """theirs: the ledger for transactions of the work, which may have all of its connections in use for long."""
        self._ledger, self._known, self._name = ledger, known, name
        self._lease, self._drain, self._info = lease, drain, {**info, "version": version("redrive")}
        self.failing: Mapping[str, str] = {}
        """What the worker cannot do beside jobs, and why. For operators, with its heartbeat."""
        self._inbox: deque[Finished] = deque()
        self._poke = threading.Event()
        self._settlements: list[Settlement] = []
        self._late: list[Settlement] = []
        """Refused in transactions of their own, which took their count along."""
        self._probes: dict[int, str] = {}
        """Job types by the job that probes them."""
        self._dry: dict[str, float] = {}
        """Groups that had nothing, until when they need not be asked again."""
        self._heard = Heard(own=ledger.connections.on_sqlite)
        self._behind = self._lingers = False
        """More waits than there was room for: that comes before what sources bring."""
        self._due = Due(self._until_due)
        self._stopping: float | None = None
        """When what runs must have ended, on the monotonic clock."""
        self.stopped = threading.Event()
        """Set when it takes nothing more."""
        self.trouble = Trouble(name)
        self.state = "starting"
        self.turned = monotonic()
        """When it last finished a turn with the ledger, on the monotonic clock."""
        self.gave_back = False
        """At its end, the ledger was told of everything that this worker held."""
        self.removed: LedgerRemoved | None = None
        """Why it had to end by itself."""
        self.hand = Hand()
        self.upkeep = Upkeep(
            ledger, name, self.hand, lease=lease, keep=keep, info=self._said, lost=self._lost, reaped=self._reaped,
            seen=self._parked_seen,
        )  # fmt: skip
        self.ends = Ends(ledger, known, parking, now=self.upkeep.now, draw=random)
        self._parking = parking
        self._room = Room(known.values(), threads, tasks, transactions=1 if ledger.connections.on_sqlite else MOST)
        self._alone = Alone()
        self._undelivered = Undelivered(ledger, name, lease=lease)
        self.intake = Intake(self._poke.set)
        around = Around(context, self.upkeep.now)
        self._crew = Crew(theirs, known, self.hand, self._room, around, threads=threads, told=self.told, name=name)

    # ---- for other threads ----

    def told(self, finished: list[Finished], /) -> None:
        """Attempts were made."""
        self._inbox.extend(finished)
        if not self._poke.is_set():
            self._poke.set()

    def poke(self) -> None:
        """Something was submitted."""
        self._heard.tell()
        self._poke.set()

    def stop(self, *, now: bool = False) -> None:
        """Take nothing more; end what runs."""
        end = monotonic() + (0.0 if now else self._drain)
        self._stopping = end if self._stopping is None else min(end, self._stopping)
        self.stopped.set()
        self.intake.close()
        self._poke.set()

    def now(self) -> datetime:
        """The moment by the ledger's clock."""
        return self.upkeep.now()

    def _said(self) -> dict[str, Any]:
        said = {**self._info, "running": len(self.hand), "state": self.state}
        return said | {"failing": dict(self.failing)} if self.failing else said

    # ---- the loop ----

    def run(self) -> None:
        """Until it is told to stop, and has given everything back."""
        self._try(self._keep_up)
        self.state = "working"
        while self._stopping is None or (len(self.hand) and monotonic() < self._stopping):
            if self._stopping is not None:
                self.state = "draining"
            self._try(self._turn)
            self._try(self._keep_up)
            self._rest()
        self._end()

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except LedgerRemoved as error:  # to go on would be in vain: nothing of it would ever be seen
            self.trouble.met(error)
            self.removed = error
            self.stop(now=True)
        except Exception as error:  # the database is away, or full: work goes on, and is told of when it is back
            self._poke.clear()
            pause = self.trouble.met(error)
            self._poke.wait(pause if self._stopping is None else max(0.0, min(pause, self._end_by() - monotonic())))
        else:
            if act == self._turn:
                self.turned = monotonic()
                self.trouble.over()

    def _keep_up(self) -> None:
        self.upkeep.run()
        self._room.trip = self.upkeep.trip

    def _rest(self) -> None:
        """Until there is something to do."""
        comes = self.intake and not self._lingers
        now, heard = monotonic(), self._heard.next(busy=self.intake.comes)
        if self._inbox or heard <= now or comes or (self._stopping is None and self._eager()):
            return
        moments = [self.upkeep.timers.next, *self._dry.values(), self._alone.next, self.intake.next, heard]
        moments += self._next_probes(now)
        if self._stopping is not None:
            moments = [self.upkeep.timers.next, self._stopping]
        if self._crew.waiting:
            moments.append(now + (PROMPT if self._crew.waiting_last else SOON))
        poked = self._poke.wait(max(0.0, min(min(moments) - now, POLL)))
        self._poke.clear()
        self._crew.help(late=not poked)

    def _eager(self) -> bool:
        """Whether there may be more, and room for it."""
        if self._alone.holds:
            return False
        groups = self._room.groups(self._open())
        return any(group not in self._dry and self._room.free(group) > 0 for group, _ in groups)

    def _open(self) -> list[str]:
        return [name for name in self._known if name not in self.ends.parked]

    def _turn(self) -> None:
        """Settle what was made, claim what there is room for."""
        if self._undelivered.give_back():
            self._heard.tell()
        self._collect()
        behind, self._behind = self._behind, False
        self._lingers = not behind and self._take_in()
        # What has ended is written with what comes next, unless so much waits that a claim is sure to find something.
        apart = self.intake.comes and not behind
        if self._may_start():
            self._wake()
            if not self._alone.holds:
                self._room.next()
                for group, members in self._room.groups(self._open()):
                    if group not in self._dry or (self._settlements and not apart):
                        want = self._room.want(group, members)
                        if want.total > 0:
                            self._claim(want, apart=apart)
                self._probe()
            if self._crew.startable:
                self._settle()
            if self._alone.visits(monotonic(), idle=not len(self.hand), waits=self._set_apart, others=self._has_others):
                self._claim_alone()
        if self._stopping is not None:
            self._settlements += [lease.release() for lease in self._crew.drop_unstarted()]
        if behind:
            self._lingers = self._take_in()
        if not self._lingers and not (apart and self.intake.comes):
            self._settle()
        if self.state == "alone" and not self._alone.holds:
            self.state = "working"
        if self.upkeep.clocks.problem is not None:
            raise LedgerError(self.upkeep.clocks.problem)

    def _settle(self) -> None:
        """Settle finished jobs and start last attempts, in one write."""
        if self._settlements or (self._crew.startable and self._may_start()):
            self._ended(self._write(self._settlements, Want("", {}, 0)).late)

    def _write(self, settlements: Sequence[Settlement], want: Want, *, token: int | None = None, alone: bool = False) -> Turn:
        """Settle, start the last attempts that can run at once, and claim, in one write. Run the started ones.

        A last attempt that was only claimed, or waits for a thread, must not be used up if the worker is killed or
        the response is lost. Other attempts start with their claim: a lost one counts, and does not end its job.
        """
        starts = self._crew.starting() if self._may_start() and not alone else []
        try:
            turn = self._ledger.turn(
                settlements, want.kinds, worker=self._name, lease=self._lease, total=want.total, start=not alone,
                alone=alone, token=token, start_last=False, starts=starts,
            )  # fmt: skip
        except BaseException:
            # The ledger may have written it: giving the jobs back is right in both cases.
            self._crew.drop(starts)
            self._settlements += [lease.release() for lease in starts]
            raise
        if starts:
            if len(turn.started) < len(starts):
                names = set(map(lease_name, turn.started))
                self._crew.drop([lease for lease in starts if lease_name(lease) not in names])
            self._crew.run(turn.started)
        return turn

    def _may_start(self) -> bool:
        """Whether jobs may start now: the worker is not stopping, and its clock agrees with the ledger's."""
        return self._stopping is None and self.upkeep.clocks.problem is None

    def _take_in(self) -> bool:
        """Store what sources have read, together with what has ended; begin as much of it as there is room for.

        True: in a moment, when there is room, and so that what has ended is written with it.
        """
        arrivals = self.intake.waiting()
        if not arrivals:
            return False
        came = sum((arrival.kinds for arrival in arrivals), Counter[str]())
        granted, soon = self._room.grant(came, () if self._alone.holds else self._open())
        if soon and monotonic() < self.intake.until:
            return True
        with self._undelivered.claim() as token:
            grant = Grant(self._name, self._lease, granted, token)
            found = self.intake.stored(arrivals, lambda events: self._received(events, grant))
            self._ended(found.late)
        self._crew.give(found.leases)
        for name in came:
            if name in self._known and came[name] > granted.get(name, 0):
                self._dry.pop(self._room.group(name), None)  # the rest waits to be claimed
        return False

    def _received(self, events: Sequence[Arriving], grant: Grant) -> Received:
        with self._ledger.connections.write.use() as session:
            return self._ledger.connections.hot.receive(session, self._settlements, events, grant)

    def _collect(self) -> None:
        finished = [self._inbox.popleft() for _ in range(len(self._inbox))]
        if finished:
            self._crew.back(finished)
            for colour in {one.kind.colour for one in finished if one.kind.concurrency is not None}:
                self._dry.pop(f"limited:{colour}", None)
            self._late += [one.lease.done() for one in finished if one.late]
            self._settlements += self.ends.settled(finished, self._probes, draining=self._stopping is not None)
        if self._late:
            self._ledger.count_late(self._late)
            self._late = []

    def _wake(self) -> None:
        now, busy = monotonic(), self.intake.comes
        if self._heard.next(busy=busy) <= now:
            self._heard.looked()
            dry, self._dry = self._dry, {}
            if busy and self._heard.own and not self._due.ask(now):  # one look, where a claim for each group is a transaction
                self._dry = {group: min(until, self._due.next(now)) for group, until in dry.items()}
            else:
                self._due.changed()
        for group in [group for group, until in self._dry.items() if until <= now]:
            del self._dry[group]

    def _claim(self, want: Want, *, alone: bool = False, apart: bool = False) -> list[Lease]:
        if want.limits is not None:
            return self._claim_limited(want, want.limits, alone)
        ended = () if apart else self._settlements  # apart: these are left for another turn
        with self._undelivered.claim() as token:
            turn = self._write(ended, want, token=token, alone=alone)
            if not apart:
                self._ended(turn.late)
            leases = self._ledger.start(turn.leases) if alone else turn.leases
        self._crew.give(leases)
        self._behind |= len(turn.leases) == want.total
        if not alone and len(turn.leases) < want.total:
            self._dry[want.group] = self._due.next(monotonic())
        return leases

    def _claim_limited(self, want: Want, limits: Mapping[str, limited.Limit], alone: bool) -> list[Lease]:
        self._settle()  # what has ended has left its place
        with self._undelivered.claim() as token:
            demand = Demand(want.kinds, self._name, self._lease, want.total, not alone, alone, token, False)
            with self._ledger.connections.write.use() as session:
                found = limited.claim(session, self._ledger.connections.hot, demand, limits)
            leases = self._ledger.start(found.leases) if alone else found.leases
        self._crew.give(leases)
        if not alone and len(found.leases) < want.total:
            waits = [SOON * 4 if kind.concurrency else POLL for kind in map(self._known.__getitem__, want.kinds)]
            soonest = min([*waits, *(max(after, 0.01) for after in found.after.values())])
            self._dry[want.group] = min(monotonic() + soonest, self._due.next(monotonic()))
        return leases

    def _ended(self, late: Sequence[Settlement]) -> None:
        """The ledger has the settlements."""
        waits = [one.after for one in self._settlements if one.outcome == "again"]
        self._settlements = []
        if waits:
            at = monotonic() + min(waits) + 0.001
            self._due.comes(at)
            self._dry = {group: min(until, at) for group, until in self._dry.items()}
        if late:
            self.ends.late(late)
            self.upkeep.alive(list(late))
        self.ends.tell_deaths()

    def _until_due(self) -> float | None:
        due = self._ledger.next_due(self._open())
        return None if due is None else (due - self.now()).total_seconds()

    # ---- outages, and what was running when a worker died ----

    def _parked_seen(self, parked: dict[str, Parked]) -> None:
        if self.ends.parked.keys() - parked.keys():
            self._heard.tell()
        self.ends.see_parked(parked)

    def _next_probes(self, now: float) -> list[float]:
        """When parked job types are probed next, on the monotonic clock. Probes that are due wait for a due job."""
        waits = [(parked.probe_at - self.now()).total_seconds() for parked in self.ends.parked.values()]
        return [now + wait for wait in waits if wait > 0]

    def _probe(self) -> None:
        """Of a parked kind, now and then, one."""
        for name, parked in list(self.ends.parked.items()):
            if name in self._known and parked.probe_at <= self.now() and self._room.free(self._known[name].colour) > 0:
                due = self._ledger.next_due([name])
                if due is None or due > self.now():
                    continue
                with self._ledger.connections.write.use() as session:
                    mine = kinds.probe(session, name, seconds=self._parking.wait(parked.probes + 1))
                    now_parked = kinds.parked(session)
                self.ends.see_parked(now_parked)
                if mine:
                    leases = self._claim(Want("probe", {name: 1}, 1, self._room.limits(name)))
                    self._probes.update((lease.job_id, name) for lease in leases)

    def _set_apart(self) -> bool:
        """Whether something waits that was running when its worker died."""
        due = self._ledger.next_due(self._open(), alone=True)
        return due is not None and due <= self.now()

    def _has_others(self) -> bool:
        """Whether jobs are due that run beside others, and that their limits allow to claim."""
        names = self._open()
        limits = {name: known[name] for name in names if (known := self._room.limits(name)) is not None}
        if limits:
            with self._ledger.connections.read.use() as session:
                claimable = limited.claimable(session, limits)
            names = [name for name in names if name not in limits or name in claimable]
        due = self._ledger.next_due(names) if names else None
        return due is not None and due <= self.now()

    def _claim_alone(self) -> None:
        names = self._open() if self._set_apart() else []
        free = {name: 1 for name in names if self._room.limits(name) is None}
        wants = [Want("alone", free, 1)] if free else []
        wants += [Want("alone", {name: 1}, 1, self._room.limits(name)) for name in names if name not in free]
        if any(self._claim(want, alone=True) for want in wants):
            self._alone.began(monotonic())
            self.state = "alone"
        else:
            self._alone.nothing(monotonic())

    def _reaped(self) -> None:
        self._heard.tell()
        self._alone.soon()

    def _lost(self, leases: list[Lease]) -> None:
        for lease in leases:
            emit("lost_lease", {"operation": lease.kind, "job_id": str(lease.job_id), "fence": lease.fence, **lease.ids})
        self._crew.cancel(leases)

    # ---- the end ----

    def _end(self) -> None:
        """Give back what has not ended, and say that this worker did."""
        self.state = "draining"
        self._crew.end(self._poke, lambda: self._try(self._collect))
        while self.removed is None:
            self._try(self._release)
            if self.gave_back or monotonic() >= self._end_by():
                break
        self.state = "ended"
        self._crew.close()

    def _end_by(self) -> float:
        """When the ledger must have been told, on the monotonic clock; after that, leases run out by themselves."""
        return (monotonic() if self._stopping is None else self._stopping) + GIVE_BACK

    def _release(self) -> None:
        self._undelivered.give_back()
        self._collect()
        held = self.hand.all()
        settlements = [*self._settlements, *(one.lease.release() for one in held)]
        if settlements:
            self._ended(self._ledger.turn(settlements, {}, worker=self._name, lease=self._lease).late)
        self.hand.lose([one.lease for one in held])
        self.ends.release_probes(set(self._probes.values()))
        for one in held:
            emit("released", {"operation": one.kind.name, "job_id": str(one.lease.job_id), "attempt": one.lease.attempt})
        crash_point("worker.drained")
        self._ledger.leave(self._name)
        self.gave_back = True
