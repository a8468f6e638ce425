"""A minute of the soak on each database. `make soak` runs for hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.ledger import NewJob, open_ledger
from redrive.ops import Operator
from tests.acceptance.crash.oracle import connection

from .check import check
from .growth import Growth
from .program import EFFECTS_TABLE
from .soak import report, soak

MINUTES = 0.75
NUMBERS = (
    *(("plain", "n-1"), ("paid", "n-2"), ("flaky", "n-3"), ("plain", "n-4")),
    *(("plain", "n-5"), ("ordered", "n-6"), ("ordered", "n-7")),
)


@pytest.mark.req("Z-4")
@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_short_soak_loses_nothing(database: str, tmp_path: Path) -> None:
    result = soak(database, MINUTES, seed=7, folder=tmp_path)
    assert result.outcome.problems == [], report(database, result)
    assert (result.outcome.lost, result.outcome.ended) == (0, result.outcome.acknowledged)
    assert result.outcome.acknowledged > 50
    assert sum(result.faults.values()) > 0
    assert result.growth.picture("Soak").startswith("<svg")


def test_the_picture_has_a_panel_for_each_figure() -> None:
    growth = Growth()
    growth.add(0.0, {"memory": 10.0, "jobs": 0.0})
    growth.add(60.0, {"memory": 12.0, "jobs": 400.0})
    assert growth.lines() == ["memory: 10 at first, at most 12, 12 at last", "jobs: 0 at first, at most 400, 400 at last"]
    assert growth.picture("A & B").count("<polyline") == 2
    assert "A &amp; B" in growth.picture("A & B")


def test_the_check_reports_what_it_finds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with open_ledger(url, migrate=True) as ledger:
        ledger.submit_many([NewJob(kind, f"soak::{number}:{kind}:v1") for kind, number in NUMBERS])
        for lease in ledger.claim({"plain": 9, "paid": 9, "ordered": 9}, worker="w"):
            ledger.settle(lease.done())
    with connection(url) as opened:
        opened.execute(f"CREATE TABLE {EFFECTS_TABLE} (number text)")
        opened.execute(f"INSERT INTO {EFFECTS_TABLE} VALUES ('n-2'), ('n-2'), ('n-9')")
    effects = ["plain n-4 1.0 .", "plain n-4 2.0 .", "plain n-5 1.0", "ordered n-6 1.0 .", "ordered n-7 1.0 ."]
    acknowledged = [f"{kind} {number} ." for kind, number in (*NUMBERS, ("plain", "n-8"))]
    order = ["a n-7 begin .", "a n-6 begin .", "a n-6 end ."]
    for name, lines in (("effects", effects), ("acknowledged", acknowledged), ("order", order)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    outcome = check(url, tmp_path, anchors=[])
    assert (outcome.acknowledged, outcome.ended, outcome.lost, outcome.repeated) == (8, 6, 2, 2)
    told = "\n".join(outcome.problems)
    for problem in (
        "plain n-1: done without its effect",
        "paid n-2: its transaction committed 2 times, and its job is done",
        "flaky n-3: not ended",
        "plain n-4: its effect happened 2 times with 1 leases",
        "effects: a line was cut: ['plain', 'n-5', '1.0']",
        "account a: n-6 started after n-7",
        "plain n-8: acknowledged, and not in the ledger",
        "paid n-9: an effect without a job",
    ):
        assert problem in told


def test_the_check_reports_a_changed_counter_and_a_changed_audit_log(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with open_ledger(url, migrate=True) as ledger:
        ledger.submit(NewJob("plain", "soak::n-1:plain:v1"))
        Operator(ledger, actor="ann").pauses.pause("app", because="test")
    with connection(url) as opened:
        opened.execute(f"CREATE TABLE {EFFECTS_TABLE} (number text)")
        opened.execute("DELETE FROM redrive_job")
        opened.execute("UPDATE redrive_audit SET actor = 'bob'")
    problems = check(url, tmp_path, anchors=[]).problems
    assert [problem.partition(":")[0] for problem in problems] == ["counter", "audit log"]
