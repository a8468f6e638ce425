"""A worker frozen beyond its lease resumes after another has finished: it changes nothing and is counted as late."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from redrive.ledger import open_ledger
from tests.zygote import Zygote

from .crew import Crew
from .diary import read
from .oracle import an_hour_passes, rows


@pytest.mark.req("L-4")
@pytest.mark.parametrize("kind", ["gated", "gated-own", "gated-paid"])
def test_a_late_settle_is_rejected_and_counted(kind: str, url: str, zygote: Zygote, tmp_path: Path) -> None:
    crew = Crew(zygote, url, tmp_path, lease=3600)
    crew.submit(**{kind.replace("-", "_"): 1})
    zombie = crew.hire()
    crew.until("effect", kind, "k000", "worker1")
    os.kill(zombie, signal.SIGSTOP)
    an_hour_passes(url)
    crew.gate.touch()
    crew.finish(crew.hire())

    os.kill(zombie, signal.SIGCONT)
    crew.finish(zombie)
    assert [line[:2] + line[3:] for line in read(crew.diary) if line[0] == "late"] == [["late", kind, "worker1"]]
    assert crew.effects(kind) == [["k000", "worker1", "1"], ["k000", "worker2", "2"]]
    assert rows(url, "SELECT worker, fence, state, crashes FROM redrive_job") == [("worker2", 2, 2, 1)]
    assert rows(url, "SELECT fence, outcome, worker FROM redrive_attempt") == [(1, "lost", "worker1")]
    crew.check(**{kind.replace("-", "_"): 1})  # writes in the zombie's transaction were rolled back
    with open_ledger(url) as ledger:
        assert ledger.counts()[kind].late == 1
        assert ledger.imbalance() == []
