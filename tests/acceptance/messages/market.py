"""A stream with messages, consumers that read it, and the effects of each message."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redrive.ledger import open_ledger
from tests.acceptance.crash.diary import read
from tests.acceptance.crash.oracle import fresh, rows
from tests.zygote import Zygote

from .stalls import Stall

PROGRAM = "tests.acceptance.messages.program"
PATIENCE = 60.0


class Market:
    """Consumers of one stream on one ledger."""

    def __init__(self, zygote: Zygote, url: str, stall: Stall, folder: Path) -> None:
        self.zygote, self.url, self.stall = zygote, url, stall
        self.stream = stall.stream
        self.diary, self.output = folder / "diary", folder / "output"
        self.hired = 0
        fresh(url)

    def send(self, *ids: str, **payload: Any) -> None:
        """Add messages with these ids."""
        self.stall.send(ids, payload)

    def hire(self, *options: str, crash_at: str = "") -> int:
        """Start a consumer and return its process id."""
        self.hired += 1
        place = [self.stall.engine, self.stall.address, self.stream]
        arguments = [self.url, *place, str(self.diary), f"consumer{self.hired}", *options]
        return self.zygote.fork(PROGRAM, arguments, output=self.output, crash_at=crash_at)

    def wait(self, pid: int, seconds: float = PATIENCE) -> int:
        """Wait for the end of a process and return its status."""
        end = time.monotonic() + seconds
        while (status := self.zygote.ended(pid)) is None:
            if time.monotonic() > end:
                os.kill(pid, signal.SIGUSR1)
                time.sleep(0.3)
                os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"it does not end: {self.tallies()}\n{self.story()}")
            time.sleep(0.01)
        return status

    def until(self, met: Callable[[], bool], what: str, seconds: float = PATIENCE) -> float:
        """Wait for a condition and return the seconds that it took."""
        began = time.monotonic()
        while not met():
            assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}\n{self.tallies()}\n{self.story()}"
            time.sleep(0.01)
        return time.monotonic() - began

    def booked(self) -> Counter[str]:
        """How often each message was booked, an effect outside of the transaction."""
        return Counter(line[2] for line in read(self.diary) if line[:2] == ["effect", "book"])

    def scored(self) -> Counter[str]:
        """How often each message was scored, an effect inside of the transaction."""
        return Counter(key for (key,) in rows(self.url, "SELECT key FROM effect"))

    def stored(self) -> set[str]:
        """The ids of all events in the ledger."""
        return {key for (key,) in rows(self.url, "SELECT event_id FROM redrive_event")}

    def tallies(self) -> Any:
        with open_ledger(self.url) as ledger:
            return ledger.counts()

    def story(self) -> str:
        """The last output of the consumers."""
        return self.output.read_text()[-6000:] if self.output.exists() else "nobody said anything"

    def lost(self) -> Counter[str]:
        """How many attempts to book each message were lost with their worker, by the ledger."""
        query = (
            "SELECT redrive_job.key FROM redrive_attempt JOIN redrive_job ON redrive_job.id = job_id "
            "WHERE kind = 'book' AND outcome = 'lost'"
        )
        return Counter(key.split(":")[2] for (key,) in rows(self.url, query))

    def check_crash(self, *ids: str, at: str) -> None:
        """Check that messages are handled once, although the first consumer is killed at a crash point."""
        self.send(*ids)
        status = self.wait(self.hire("until=idle", crash_at=f"{at}:kill"))
        assert status == -signal.SIGKILL, self.story()
        assert self.wait(self.hire("until=idle")) == 0, self.story()
        self.checked(*ids, crashes=1)

    def checked(self, *ids: str, crashes: int) -> None:
        """Check that no message is lost or pending, and that only lost attempts were repeated."""
        booked, scored, lost = self.booked(), self.scored(), self.lost()
        assert [one for one in ids if not booked[one]] == []
        assert [one for one in ids if scored[one] != 1] == []
        assert {one: times for one, times in booked.items() if times > 1 + lost[one]} == {}
        assert max(lost.values(), default=0) <= crashes
        assert self.stall.pending() == 0
        with open_ledger(self.url) as ledger:
            assert ledger.imbalance() == []
