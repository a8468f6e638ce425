"""Tasks in a worker: results, retries, dead letters, context and signals, on SQLite and on Postgres."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.tasks.signals import task_finished, task_started
from django.test import override_settings

from redrive import RetryPolicy
from redrive.django import Backend, get_app
from redrive.testing import sandbox
from redrive.worker.worker import Worker
from tests.unit.django import sample_tasks
from tests.unit.django.conftest import use_backend
from tests.unit.django.sample_tasks import BROKEN, add, count_groups, leave, read_context, return_value, send_mail, wait

pytestmark = pytest.mark.req("X-2")


class Signals:
    """The signals that were sent: name, status, number of attempts and number of errors, by the id of the result."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._changed = threading.Condition()
        self.receivers = {"started": self._receiver("started"), "finished": self._receiver("finished")}

    def _receiver(self, name: str) -> Any:
        def receive(sender: Any, task_result: Any, **_: Any) -> None:
            assert sender is Backend
            with self._changed:
                status, errors = str(task_result.status), len(task_result.errors)
                self._seen[task_result.id].append((name, status, task_result.attempts, errors))
                self._changed.notify_all()

        return receive

    def wait_for(self, result_id: str, count: int) -> list[tuple[Any, ...]]:
        """Return the signals of a task, when there are this many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._seen[result_id]) >= count, 60), self._seen
            return self._seen[result_id]


@pytest.fixture
def signals() -> Iterator[Signals]:
    seen = Signals()
    task_started.connect(seen.receivers["started"])
    task_finished.connect(seen.receivers["finished"])
    yield seen
    task_started.disconnect(seen.receivers["started"])
    task_finished.disconnect(seen.receivers["finished"])


@pytest.fixture
def mail_is_down() -> Iterator[None]:
    BROKEN.add("mail")
    yield
    BROKEN.discard("mail")


def test_a_task_returns_its_value(worker: Worker, signals: Signals) -> None:
    result = wait(add.enqueue(1, 2, times=2))
    assert (result.status, result.return_value, result.attempts, result.errors) == ("SUCCESSFUL", 6, 1, [])
    assert result.worker_ids == [worker.name]
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert signals.wait_for(result.id, 2) == [
        ("started", "RUNNING", 1, 0),
        ("finished", "SUCCESSFUL", 1, 0),
    ]


def test_an_async_task_uses_the_database(worker: Worker) -> None:
    name = f"async {worker.name}"
    Group.objects.create(name=name)
    assert wait(count_groups.enqueue(name)).return_value == 1


def test_a_task_gets_its_context(worker: Worker) -> None:
    result = wait(read_context.enqueue())
    assert result.return_value == [result.id, 1, "RUNNING", 0, 1]


def test_a_failed_task_is_retried(worker: Worker, signals: Signals) -> None:
    result = wait(read_context.enqueue(fail_until=3))
    assert result.return_value == [result.id, 3, "RUNNING", 2, 1]
    assert (result.attempts, len(result.worker_ids)) == (3, 3)
    assert [error.exception_class for error in result.errors] == [LookupError, LookupError]
    assert "LookupError: attempt 2\n" in result.errors[1].traceback
    assert "sample_tasks.py" in result.errors[1].traceback
    assert signals.wait_for(result.id, 4) == [
        ("started", "RUNNING", 1, 0),
        ("started", "RUNNING", 2, 1),
        ("started", "RUNNING", 3, 2),
        ("finished", "SUCCESSFUL", 3, 2),
    ]


def test_a_task_without_attempts_left_is_a_dead_letter_and_is_replayed(
    worker: Worker, signals: Signals, mail_is_down: None, caplog: pytest.LogCaptureFixture
) -> None:
    to = f"ann at {worker.name}"
    with caplog.at_level(logging.INFO, logger="django.tasks"):
        result = wait(send_mail.enqueue(to))
        assert signals.wait_for(result.id, 4)[-1] == ("finished", "FAILED", 3, 3)
    assert (result.status, result.attempts) == ("FAILED", 3)
    assert [error.exception_class for error in result.errors] == [ConnectionError] * 3
    assert result.finished_at >= result.last_attempted_at > result.started_at
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    (failure,) = [record for record in caplog.records if record.levelno == logging.ERROR and record.name == "django.tasks"]
    assert failure.exc_info is not None
    assert f"no mail to {to}" in str(failure.exc_info[1])

    ledger = get_app().ledger
    (letter,) = ledger.dead_letters(kind=send_mail.module_path, status="pending")
    assert (letter.reason, letter.error is not None and to in letter.error) == ("attempts", True)
    BROKEN.clear()
    ledger.replay([letter.id], actor="ann", because="mail is up")
    replay = ledger.find(letter.kind, letter.key)
    assert replay is not None
    assert get_app().commands.job(replay).result(60) == to
    assert send_mail.get_result(result.id).return_value == to
    assert signals.wait_for(result.id, 6)[-1] == ("finished", "SUCCESSFUL", 1, 0)  # under the id that the caller knows
    assert Group.objects.filter(name=f"mail to {to}").count() == 1


@pytest.mark.parametrize("name", sample_tasks.NOT_JSON)
def test_a_result_that_cannot_be_stored_fails_the_task_at_once(worker: Worker, signals: Signals, name: str) -> None:
    result = wait(return_value.enqueue(name))
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert result.errors[0].exception_class is TypeError
    assert "return_value has run, but its result cannot be stored: " in result.errors[0].traceback
    assert signals.wait_for(result.id, 2) == [("started", "RUNNING", 1, 0), ("finished", "FAILED", 1, 1)]


def test_the_exit_of_a_task_ends_the_task_only(worker: Worker) -> None:
    result = wait(leave.enqueue())
    assert (result.status, result.attempts, result.errors[0].exception_class) == ("FAILED", 3, SystemExit)
    assert wait(add.enqueue(1)).return_value == 1


def test_a_cancelled_task_has_failed(backend: None) -> None:
    result = add.enqueue()
    get_app().ledger.control.cancel([int(result.id.partition("-")[0])], actor="ann", because="not needed")
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 0)
    assert [error.exception_class_path for error in result.errors] == ["redrive.errors.Cancelled"]


def test_a_worker_runs_the_queues_that_it_is_given(backend: None) -> None:
    there, here = add.using(queue_name="mail").enqueue(1), add.enqueue(2)
    only = [add.module_path]
    with get_app().worker(only=only, drain=5):
        assert wait(here).return_value == 2
    there.refresh()
    assert there.status == "READY"
    with get_app().worker(only=[f"{add.module_path}@mail"], drain=5):
        assert wait(there).return_value == 1


def test_policies_and_limits_of_a_task_are_applied(database: str) -> None:
    own = {read_context.module_path: {"retry": RetryPolicy(1), "concurrency": 2, "rate": 50}}
    with use_backend(retry=RetryPolicy(2, backoff_base=0, backoff_max=0, jitter=0), tasks=own):
        job_types = {job_type.name: job_type for job_type in get_app().kinds()}
        limited = job_types[read_context.module_path]
        assert (limited.concurrency, limited.rate, limited.settings.max_attempts) == (2, 50, 1)
        assert job_types[add.module_path].settings.max_attempts == 2
        with get_app().worker(drain=5):
            assert wait(read_context.enqueue(fail_until=9)).attempts == 1
            assert wait(leave.enqueue()).attempts == 2


def test_commands_run_beside_tasks(backend: None) -> None:
    app = get_app()

    @app.command("numbers.double", key="shop::{number}:double:v1")
    def double(number: int) -> int:
        return number * 2

    with app.worker(drain=5):
        assert double.submit(21).result(60) == 42
        assert wait(add.enqueue(1)).return_value == 1


def test_a_sandbox_runs_tasks_without_a_worker(backend: None) -> None:
    before = Group.objects.count()
    with sandbox(get_app()) as box:
        result = send_mail.enqueue("sandbox")
        assert send_mail.get_result(result.id).status == "READY"
        box.drain()
        assert send_mail.get_result(result.id).return_value == "sandbox"
    assert Group.objects.count() == before + 1
    assert get_app().ledger.find(send_mail.module_path, f"task::{result.id.partition('-')[2]}:{send_mail.module_path}:v1") is None


def test_changed_settings_make_a_new_app(backend: None) -> None:
    first = get_app()
    assert get_app() is first
    with override_settings(TASKS={"default": {"BACKEND": "redrive.django.Backend"}}):
        assert get_app() is not first
