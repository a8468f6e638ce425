"""The status of a worker while its ledger is offline, and afterwards."""

from __future__ import annotations

import pytest

from redrive.errors import LedgerUnavailable
from redrive.journal.redaction.secrets import forget_values, keep_secret
from redrive.worker.status import MAX_PROBLEM_CHARS, describe_problem
from redrive.worker.work_source import FailingTasks

AWAY = LedgerUnavailable("Postgres cannot be reached: db-1:5432: Connection refused")


@pytest.mark.req("E-8")
def test_an_outage_of_the_ledger_is_not_reported_for_each_task() -> None:
    failing = FailingTasks()
    failing.on_error("sweeps", AWAY)
    failing.on_error("read orders", ConnectionError("no Redis"))
    assert failing.problems(is_ledger_away=True) == {"read orders": "ConnectionError: no Redis"}
    assert failing.problems(is_ledger_away=False).keys() == {"sweeps", "read orders"}


@pytest.mark.req("E-8")
def test_errors_of_the_ledger_are_forgotten_when_it_is_back() -> None:
    failing = FailingTasks()
    failing.on_error("audit anchors", AWAY)
    failing.on_error("read orders", AWAY)
    failing.on_error("read orders", ConnectionError("no Redis"))
    failing.on_ledger_back()
    assert failing.problems(is_ledger_away=False) == {"read orders": "ConnectionError: no Redis"}
    failing.on_success("read orders")
    assert failing.problems(is_ledger_away=False) == {}


def test_a_task_is_logged_once_while_the_ledger_is_offline() -> None:
    failing = FailingTasks()
    assert [failing.on_error("sweeps", AWAY) for _ in range(3)] == [True, False, False]
    assert failing.on_error("sweeps", ValueError("another error"))
    assert failing.on_error("sweeps", ValueError("another error"))
    failing.on_success("sweeps")
    assert failing.on_error("sweeps", AWAY)


@pytest.mark.req("E-8")
def test_a_problem_is_one_short_line_without_secrets() -> None:
    keep_secret("S3cretPw")
    try:
        text = describe_problem(ValueError("first\n\tline S3cretPw " + "x" * 900))
    finally:
        forget_values()
    assert text.startswith("ValueError: first line ")
    assert len(text) == MAX_PROBLEM_CHARS
    assert "S3cret" not in text
