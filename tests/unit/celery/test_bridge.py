"""Connecting an app with a Celery app, and what the end of a task means. Without a broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Context
from celery.exceptions import MaxRetriesExceededError, NotRegistered, Reject, TimeLimitExceeded, WorkerLostError

from redrive import App
from redrive.celery import CeleryBridge, connect
from redrive.celery.task_end import TaskEnd, is_requeued
from redrive.worker.job_type import Undecodable
from tests.ledgers import sqlite_ledger

pytestmark = pytest.mark.req("X-8")


@pytest.fixture
def celery() -> Iterator[Any]:
    made = Celery("shop", broker="memory://", set_as_current=False)
    yield made
    made.close()


@pytest.fixture
def app(tmp_path: Any) -> Iterator[App]:
    with App(sqlite_ledger(tmp_path)) as made:
        yield made


def charge(order: str) -> None: ...


def test_a_connected_app_has_a_job_type_for_each_task(app: App, celery: Any) -> None:
    celery.task(name="shop.charge", shared=False)(charge)
    bridge = connect(app, celery)
    assert not app.opener.is_open, "connecting opens nothing"
    names = [job_type.name for job_type in app.kinds()]
    assert [name for name in names if not name.startswith("celery:celery.")] == ["celery:shop.charge"]
    assert "celery:celery.backend_cleanup" not in names
    assert "celery:celery.map" in names
    with pytest.raises(ValueError, match="the Celery app 'shop' is connected already; call connect once"):
        connect(app, celery)
    bridge.disconnect()
    assert isinstance(connect(app, celery), CeleryBridge)


def test_arguments_of_connect_are_checked(app: App, celery: Any) -> None:
    with pytest.raises(TypeError, match=r"the first argument must be a redrive\.App, not Celery; write connect\(app, celery\)"):
        connect(celery, app)
    with pytest.raises(TypeError, match=r"the second argument must be a celery\.Celery, not str"):
        connect(app, "shop")
    with pytest.raises(ValueError, match="replay_timeout"):
        connect(app, celery, replay_timeout=0)


def test_an_eager_task_makes_no_dead_letter(app: App, celery: Any) -> None:
    def fail() -> None:
        raise ValueError("at once")

    connect(app, celery)
    celery.task(name="shop.fail", shared=False)(fail).apply()
    assert app.ledger.dead_letters(status=None) == []


def test_a_payload_is_checked_against_the_parameters_of_its_task(app: App, celery: Any) -> None:
    celery.task(name="shop.charge", shared=False)(charge)
    connect(app, celery)
    check = app.registrations.payload_problem
    assert check("celery:shop.charge", b'{"task": "x", "args": [{"order": 1}], "kwargs": {}}') is None
    assert check("celery:shop.charge", b'{"task": "x", "args": [], "kwargs": {}}') == "missing a required argument: 'order'"
    assert check("celery:shop.charge", b"{}") == "the payload is not the message of a Celery task"
    assert check("celery:shop.charge", b"\xff{}") is None, "a pickle is not opened to check it"
    assert check("celery:shop.gone", b"{}") is None
    assert check("shop.charge", b"{}") is None


@pytest.mark.parametrize(
    ("error", "retries", "reason"),
    [
        (ValueError("no"), 0, "not_retryable"),
        (ValueError("no"), 3, "attempts"),
        (MaxRetriesExceededError(), 0, "attempts"),
        (WorkerLostError("signal 9"), 3, "crashed_worker"),
        (NotRegistered("shop.gone"), 0, "undecodable"),
        (Reject("no", requeue=False), 1, "not_retryable"),
    ],
)
def test_the_reason_of_a_dead_letter(error: BaseException, retries: int, reason: str) -> None:
    task = SimpleNamespace(max_retries=3)
    end = TaskEnd.of_failure(task, Context(id="t-1", retries=retries, hostname="celery@a"), error)
    assert (end.outcome, end.reason, end.attempts, end.worker) == ("dead", reason, retries + 1, "celery@a")


def test_a_report_survives_the_ledger_and_another_signal_is_rejected() -> None:
    end = TaskEnd("dead", "attempts", "ValueError: no", "ValueError: no", 3, "celery@a")
    assert TaskEnd.of_signal({**end.as_signal(), "new": 1}) == end
    error = end.as_error()
    assert error is not None
    assert (error.outcome, error.reason, error.attempts) == ("dead", "attempts", 3)
    assert TaskEnd("done").as_error() is None
    for payload in (None, "done", {"outcome": "other"}):
        with pytest.raises(Undecodable, match="not the report of a Celery worker"):
            TaskEnd.of_signal(payload)


@pytest.mark.parametrize(
    ("task", "is_final"),
    [
        ({"acks_late": False, "acks_on_timeout": False}, True),
        ({"acks_late": True, "acks_on_timeout": True}, True),
        ({"acks_late": True, "acks_on_timeout": False}, False),
        ({"acks_late": True}, True),  # before Celery 5.7
    ],
)
def test_a_task_that_goes_back_to_its_queue_has_not_failed_for_good(task: dict[str, bool], is_final: bool) -> None:
    assert is_requeued(SimpleNamespace(**task), TimeLimitExceeded(1)) is not is_final
    assert not is_requeued(SimpleNamespace(**task), ValueError("no"))


def test_a_missing_library_is_one_line_with_its_extra() -> None:
    program = "import sys; sys.modules['celery'] = None\nfrom redrive.celery import connect"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == 'ImportError: redrive.celery.connect needs celery: pip install "redrive[celery]"'
