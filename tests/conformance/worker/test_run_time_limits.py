"""Limits at run time: they replace those in the code, over all workers, within a second."""

from __future__ import annotations

from typing import Any

import pytest

from redrive.ledger import Ledger, open_ledger
from redrive.ledger.jobs import limits
from redrive.worker.worker import Worker

from .test_limits import Crowd
from .world import Refreshes, kind, submit, until, wait_for_jobs

WHO: Any = {"actor": "ann", "because": "INC-42"}


def set_limit(ledger: Ledger, name: str, **values: Any) -> None:
    with ledger.connections.write.use() as session:
        limits.set_limit(session, name, **values, **WHO)


def reset(ledger: Ledger, name: str) -> bool:
    with ledger.connections.write.use() as session:
        return limits.reset_limit(session, name, **WHO)


@pytest.mark.req("Q-5")
@pytest.mark.parametrize("in_code", [None, 20])
def test_a_concurrency_at_run_time_holds_over_all_workers(shared: Ledger, url: str, in_code: int | None) -> None:
    crowd = Crowd(0.02)
    set_limit(shared, "mail", concurrency=2)
    ids = submit(shared, "mail", 40)
    limited = kind("mail", crowd, concurrency=in_code)
    with open_ledger(url) as theirs, Worker(shared, [limited]), Worker(theirs, [limited]):
        wait_for_jobs(shared, *ids)
    assert crowd.most <= 2


@pytest.mark.req("Q-5")
def test_a_rate_at_run_time_holds_for_a_type_without_a_limit_in_code(shared: Ledger, url: str) -> None:
    crowd = Crowd(0.0)
    set_limit(shared, "mail", rate=20)
    ids = submit(shared, "mail", 30)
    with open_ledger(url) as theirs, Worker(shared, [kind("mail", crowd)]), Worker(theirs, [kind("mail", crowd)]):
        wait_for_jobs(shared, *ids)
    took = max(crowd.starts) - min(crowd.starts)
    assert (30 - 2) / 20 - 0.15 <= took < 30


@pytest.mark.req("Q-5")
def test_a_changed_limit_and_its_reset_apply_without_a_restart(shared: Ledger, refreshes: Refreshes) -> None:
    crowd = Crowd(0.05)
    with Worker(shared, [kind("mail", crowd)], threads=8):
        set_limit(shared, "mail", concurrency=1)
        refreshes.wait()
        wait_for_jobs(shared, *submit(shared, "mail", 8))
        assert crowd.most == 1
        assert reset(shared, "mail")
        refreshes.wait()
        ids = [job.id for job in shared.submit_many(_jobs("mail", 40))]
        until(lambda: crowd.most > 1, "more at once after the reset")
        wait_for_jobs(shared, *ids)


@pytest.mark.req("Q-5")
def test_a_raised_limit_takes_effect_while_jobs_are_held_back(shared: Ledger, refreshes: Refreshes) -> None:
    crowd = Crowd(0.05)
    ids = submit(shared, "mail", 30)
    with Worker(shared, [kind("mail", crowd, concurrency=1)], threads=8):
        until(lambda: len(crowd.starts) > 2)
        set_limit(shared, "mail", concurrency=4)
        until(lambda: crowd.most == 4)
        wait_for_jobs(shared, *ids)
    assert crowd.most == 4


@pytest.mark.req("Q-5")
def test_values_keep_the_one_that_is_not_passed_and_the_code_shows_in_the_heartbeat(shared: Ledger) -> None:
    set_limit(shared, "mail", concurrency=3)
    set_limit(shared, "mail", rate=2.5)
    with shared.reading() as connection:
        stored = limits.read_limits(connection)["mail"]
    assert (stored.concurrency, stored.rate, stored.actor, stored.because) == (3, 2.5, "ann", "INC-42")
    with Worker(shared, [kind("mail", Crowd(0), concurrency=7), kind("sync", Crowd(0))]):
        until(lambda: bool(shared.workers()))
        assert shared.workers()[0].info["limits"] == {"mail": {"concurrency": 7}}
    assert [entry.action for entry in shared.audit()] == ["limits.set", "limits.set"]
    assert reset(shared, "mail")
    assert not reset(shared, "mail")


@pytest.mark.req("Q-5")
@pytest.mark.parametrize(
    "values",
    [{"concurrency": 0}, {"concurrency": -1}, {"rate": 0}, {"rate": -2.0}, {"rate": float("nan")}, {"concurrency": True},
     {"concurrency": 2**31}, {"rate": float("inf")}, {}],
)  # fmt: skip
def test_limits_that_are_not_positive_are_rejected(shared: Ledger, values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="nothing was changed") as refused:
        set_limit(shared, "mail", **values)
    if values and all(value in (0, -1, -2.0) for value in values.values()) and True not in values.values():
        assert "pause it" in str(refused.value)
    with shared.reading() as connection:
        assert limits.read_limits(connection) == {}
    assert shared.audit() == []


def _jobs(name: str, count: int) -> list[Any]:
    from redrive.ledger import NewJob

    return [NewJob(name, f"shop:bob:{n}:{name}:v1") for n in range(count)]
