"""The first line and the status line of `redrive work`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

from redrive.cli.commands.work import Rate, describe_worker, status_line
from redrive.ops.worker_process import Status, WorkerSummary

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
TALLY = {"running": 2, "accepted": 40, "rejected": 3, "terminal": 1, "returned": 0, "late": 0}


def summary(*, kinds: tuple[str, ...] = (), datasets: tuple[str, ...] = (), handlers: tuple[str, ...] = ()) -> WorkerSummary:
    return WorkerSummary("w1", "sqlite:///shop.db", 8, kinds, datasets, {}, {}, handlers=handlers)


def line(partitions: dict[str, int], **told: Any) -> str:
    status = Status("w1", "working", NOW, 1, 2, 3, 4, 0, 0, {}, None, partitions)
    return status_line(SimpleNamespace(status=status, summary=summary(**told)), Rate())  # type: ignore[arg-type]  # all it looks at


def test_the_first_line_names_commands_handlers_and_datasets() -> None:
    assert describe_worker(summary(kinds=("a",))) == ["Worker w1 on sqlite:///shop.db: 1 command, a; 8 threads."]
    assert describe_worker(replace(summary(kinds=("a",)), engine="Temporal t:7233, namespace shop"))[1:] == [
        "Commands on Temporal t:7233, namespace shop."
    ]
    assert describe_worker(summary(datasets=("crm/orders",))) == [
        "Worker w1 on sqlite:///shop.db: 1 dataset, crm/orders; 8 threads."
    ]
    mixed = describe_worker(summary(kinds=("a", "qscore"), handlers=("qscore",)))
    assert mixed == ["Worker w1 on sqlite:///shop.db: 1 command, a; 1 handler, qscore; 8 threads."]
    both = describe_worker(summary(kinds=("a", "b"), datasets=tuple(f"crm/q{n}" for n in range(6))))
    assert both == [
        "Worker w1 on sqlite:///shop.db: 2 commands, a, b; 6 datasets, crm/q0, crm/q1, crm/q2, crm/q3 and 2 more; 8 threads."
    ]


def test_the_status_line_counts_jobs_and_partitions() -> None:
    jobs = "1 running, 2 done, 3 retries, 4 dead letters"
    partitions = "partitions: 2 running, 40 accepted, 3 rejected, 1 gave up"
    assert line({}, kinds=("a",)) == f"working: {jobs}"
    assert line(TALLY, datasets=("crm/orders",)) == f"working: {partitions}"
    assert line(TALLY | {"returned": 5}, kinds=("a",), datasets=("crm/orders",)) == f"working: {jobs}; {partitions}, 5 returned"


def test_the_last_line_counts_no_running_jobs_if_none_runs() -> None:
    status = Status("w1", "ended", NOW, 0, 3, 3, 0, 0, 0, {}, None, {})
    said = status_line(SimpleNamespace(status=status, summary=summary(kinds=("a",))), Rate())  # type: ignore[arg-type]  # the same
    assert said == "ended: 3 done, 3 retries, 0 dead letters"
