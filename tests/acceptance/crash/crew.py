"""Worker processes on one ledger, and the invariants that hold after they end."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from tests.zygote import Zygote

from .diary import read
from .oracle import DEAD, DONE, prepare, rows
from .worker import submit_jobs

PATIENCE = 120
"""Seconds, long enough for a very busy machine."""


class Crew:
    """Workers on one ledger: named, started and waited for."""

    def __init__(self, zygote: Zygote, url: str, folder: Path, *, lease: float) -> None:
        self.zygote = zygote
        self.url = url
        self.diary, self.output, self.gate = folder / "diary", folder / "output", folder / "gate"
        self.lease = lease
        self.hired = 0

    def submit(self, **counts: int) -> None:
        """An empty ledger with this number of jobs of each type."""
        prepare(self.url)
        submit_jobs(self.url, **counts).close()

    def hire(self) -> int:
        """Start another worker and return its process id."""
        self.hired += 1
        arguments = [self.url, str(self.diary), f"worker{self.hired}", str(self.lease), str(self.gate)]
        return self.zygote.fork("tests.acceptance.crash.worker", arguments, output=self.output)

    def until(self, *words: str) -> None:
        """Wait for a line in the diary with this beginning."""
        deadline = time.monotonic() + PATIENCE
        while not any(tuple(line[: len(words)]) == words for line in read(self.diary)):
            assert time.monotonic() < deadline, f"nobody noted {words}: {self.story()}"
            time.sleep(0.005)

    def effects(self, kind: str) -> list[list[str]]:
        """Return the effects outside of transactions, in order: key, worker and fence."""
        return [line[2:] for line in read(self.diary) if line[:2] == ["effect", kind]]

    def finish(self, *pids: int) -> None:
        """Wait until all of these processes have ended."""
        for pid in pids:
            assert self.zygote.wait(pid) == 0, self.story()

    def story(self) -> str:
        """Return their last output."""
        return self.output.read_text()[-3000:] if self.output.exists() else "nobody said anything"

    def check(self, **counts: int) -> None:
        """Check that every job is done exactly once, or dead after three crashes."""
        ran = Counter((line[1], line[2]) for line in read(self.diary) if line[0] == "effect")
        paid = Counter(rows(self.url, "SELECT kind, key FROM effect"))
        lost = dict(rows(self.url, "SELECT job_id, count(*) FROM redrive_attempt WHERE outcome = 'lost' GROUP BY job_id"))
        jobs = rows(self.url, "SELECT kind, key, state, id, crashes FROM redrive_job")
        expected = {(kind.replace("_", "-"), f"k{n:03}") for kind, count in counts.items() for n in range(count)}
        assert {(kind, key) for kind, key, *_ in jobs} == expected
        assert len(jobs) == len(expected)
        for kind, key, state, job_id, crashes in jobs:
            work = (kind, key)
            done = state == DONE
            assert done or (state == DEAD and crashes == 3), (work, state, crashes)
            assert done <= ran[work] <= done + lost.get(job_id, 0), (work, state, ran[work], lost.get(job_id))
            if kind.endswith("paid"):
                assert paid[work] == done, (work, state, paid[work])
