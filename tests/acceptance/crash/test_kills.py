"""Workers are killed at random times under load, and by a job that kills its worker."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from redrive.ledger import open_ledger
from tests.zygote import Zygote

from .crew import Crew
from .diary import read
from .oracle import an_hour_passes


@pytest.mark.req("L-3", "L-8")
def test_workers_killed_at_random_under_load_lose_no_job(url: str, zygote: Zygote, tmp_path: Path) -> None:
    keys = {"plain": 80, "own": 80, "paid": 80}
    crew = Crew(zygote, url, tmp_path, lease=1)
    crew.submit(**keys)
    dice = random.Random(7)  # the times depend on the machine anyway
    alive = [crew.hire() for _ in range(3)]
    killed = 0
    with open_ledger(url) as ledger:
        for _ in range(10):
            time.sleep(dice.uniform(0.01, 0.15))
            at = dice.randrange(len(alive))
            if zygote.ended(alive[at]) is None:
                os.kill(alive[at], signal.SIGKILL)
                killed += zygote.wait(alive[at]) == -signal.SIGKILL
                alive[at] = crew.hire()
            assert ledger.imbalance() == []  # at any time, not only at the end
        crew.finish(*alive)
        assert killed > 0
        crew.check(**keys)
        assert ledger.imbalance() == []


@pytest.mark.req("L-3")
def test_a_job_that_kills_its_worker_runs_alone_and_last_and_three_times(url: str, zygote: Zygote, tmp_path: Path) -> None:
    keys = {"own": 12, "poison": 1, "paid": 12}
    crew = Crew(zygote, url, tmp_path, lease=3600)
    crew.submit(**keys)
    deaths = 0
    while (status := zygote.wait(crew.hire())) != 0:
        assert status == -signal.SIGKILL, crew.story()
        deaths += 1
        assert deaths <= 3, crew.story()
        an_hour_passes(url)
    assert deaths == 3
    runs = [line[1] for line in read(crew.diary) if line[0] == "effect"]
    # It was first claimed in a batch, and later only after all other jobs were done.
    assert runs[-2:] == ["poison", "poison"]
    assert sorted(runs) == ["own"] * 12 + ["paid"] * 12 + ["poison"] * 3
    crew.check(**keys)
    with open_ledger(url) as ledger:
        (letter,) = ledger.dead_letters()
        assert (letter.kind, letter.reason, letter.attempts) == ("poison", "crashed_worker", 3)
        assert [attempt.outcome for attempt in ledger.attempts(letter.job_id or 0)] == ["lost"] * 3
        assert ledger.imbalance() == []
