"""The behaviours that Django's own tests of backends check, on SQLite and on Postgres. The page of Django lists the rest."""

from __future__ import annotations

import asyncio
import logging
import pickle
from datetime import datetime, timedelta
from typing import Any

import django
import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.tasks import Task, TaskResultStatus, default_task_backend, task
from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
from django.tasks.signals import task_enqueued
from django.test import override_settings
from django.utils import timezone

from redrive import App
from redrive.django import Backend, get_app
from tests.unit.django import sample_tasks
from tests.unit.django.conftest import use_backend
from tests.unit.django.sample_tasks import add, count_groups, send_mail

pytestmark = [pytest.mark.req("X-2"), pytest.mark.usefixtures("backend")]


def stored_jobs() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM redrive_job")
        count: int = cursor.fetchone()[0]
    return count


# --- Enqueue


@pytest.mark.parametrize("sample", [add, count_groups], ids=["sync", "async"])
def test_an_enqueued_task_is_ready(sample: Task) -> None:
    result = sample.enqueue(1, (2, 3), times=4)
    assert isinstance(default_task_backend.get_result(result.id).task.get_backend(), Backend)
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)
    assert (result.task, result.backend, result.errors) == (sample, "default", [])
    assert (result.args, result.kwargs) == ([1, [2, 3]], {"times": 4})
    assert abs(timezone.now() - result.enqueued_at) < timedelta(minutes=1)
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value


def test_a_task_is_enqueued_and_read_in_async_code() -> None:
    async def enqueue() -> None:
        result = await add.aenqueue(1)
        assert await add.aget_result(result.id) == result
        await result.arefresh()
        assert result.status == "READY"
        with pytest.raises(TypeError, match="Unsupported type"):
            await add.aenqueue(datetime.now(timezone.get_current_timezone()))

    asyncio.run(enqueue())


def test_arguments_that_are_not_json_store_nothing() -> None:
    before = stored_jobs()
    with pytest.raises(TypeError, match="Unsupported type"):
        add.enqueue(datetime.now(timezone.get_current_timezone()))
    for value in (float("nan"), "\ud800", b"\xff"):
        with pytest.raises(TypeError, match=r"sample_tasks\.add: an argument is not JSON: "):
            add.enqueue([value])
    with pytest.raises(ValueError, match="takes at most 1048576"):
        add.enqueue("x" * 2_000_000)
    assert stored_jobs() == before


def test_options_of_a_call_are_read_back() -> None:
    later = timezone.now() + timedelta(hours=1)
    changed = add.using(priority=-7, queue_name="mail", run_after=later)
    result = changed.enqueue()
    read = add.get_result(result.id)
    assert read == result
    assert read.task == changed
    assert (read.task.priority, read.task.queue_name, read.task.run_after) == (-7, "mail", later)
    assert (add.priority, add.queue_name, add.run_after) == (0, "default", None)
    job = get_app().ledger.get(int(result.id.partition("-")[0]))
    assert job is not None
    assert (job.kind, job.priority, job.due_at) == (f"{add.module_path}@mail", 1, later)


@pytest.mark.parametrize(
    ("given", "stored"), [(100, -2), (51, -2), (50, -1), (1, -1), (0, 0), (-1, 1), (-50, 1), (-51, 2), (-100, 2)]
)
def test_priorities_keep_their_order(given: int, stored: int) -> None:
    job = get_app().ledger.get(int(add.using(priority=given).enqueue().id.partition("-")[0]))
    assert job is not None
    assert job.priority == stored


def test_times_are_local_without_time_zone_support() -> None:
    with override_settings(USE_TZ=False):
        later = datetime.now() + timedelta(hours=1)  # noqa: DTZ005  # as Django wants it then
        result = add.using(run_after=later).enqueue()
        read = add.get_result(result.id)
        assert read == result
        assert (read.task.run_after, read.enqueued_at.tzinfo) == (later, None)


def test_a_receiver_that_fails_does_not_undo_the_task() -> None:
    seen = []

    def receive(task_result: Any, **_: Any) -> None:
        seen.append(task_result.id)
        raise ZeroDivisionError

    task_enqueued.connect(receive)
    try:
        result = add.enqueue()
    finally:
        task_enqueued.disconnect(receive)
    assert seen == [result.id]
    assert add.get_result(result.id) == result


def test_enqueueing_is_logged_by_django(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="django.tasks"):
        result = add.enqueue()
    assert [record.getMessage() for record in caplog.records if record.name == "django.tasks"] == [
        f"Task id={result.id} path={add.module_path} enqueued backend=default"
    ]


@pytest.mark.skipif(django.VERSION < (6, 1), reason="Django 6.0 cannot pickle tasks")
def test_tasks_and_results_can_be_pickled() -> None:
    result = add.enqueue(1)
    assert pickle.loads(pickle.dumps(result)) == result
    assert pickle.loads(pickle.dumps(add)) == add


# --- Results


def test_a_result_is_found_by_its_own_id_only() -> None:
    result = add.enqueue()
    number, _, token = result.id.partition("-")
    app = get_app()
    command = app.command("django.other")(add.func)
    wrong = ["123", "", "x", f"{number}-{'0' * 16}", f"{10**18}-{token}", f"{10**25}-{token}", str(command.submit().id)]
    for result_id in wrong:
        with pytest.raises(TaskResultDoesNotExist):
            add.get_result(result_id)
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(123)
    assert asyncio.run(default_task_backend.aget_result(result.id)) == result


def test_the_result_of_another_task_is_rejected() -> None:
    result = add.enqueue()
    with pytest.raises(TaskResultMismatch, match="Task does not match"):
        send_mail.get_result(result.id)


def test_the_result_of_a_removed_task_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    result = add.enqueue()
    monkeypatch.delattr(sample_tasks, "add")
    with use_backend(), pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(result.id)


# --- Validation


def inner() -> Any:
    def function() -> None: ...

    return function


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"priority": 101}, "priority must be a whole number between -100 and 100"),
        ({"priority": 3.1}, "priority must be a whole number between -100 and 100"),
        ({"queue_name": "unknown"}, "Queue 'unknown' is not valid for backend."),
        ({"run_after": datetime(2030, 1, 1)}, "run_after must be an aware datetime."),  # noqa: DTZ001
    ],
)
def test_invalid_options_of_a_task_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTask, match=message):
        add.using(**change)


@pytest.mark.parametrize("function", [any, inner()], ids=["builtin", "nested"])
def test_only_functions_of_a_module_are_tasks(function: Any) -> None:
    with pytest.raises(InvalidTask, match="Task function must be defined at a module level"):
        task(function)


def test_a_task_without_the_parameter_takes_no_context() -> None:
    with pytest.raises(InvalidTask, match="does not have a first argument of 'context'"):
        task(takes_context=True)(add.func)


def test_a_task_is_validated_when_it_is_enqueued() -> None:
    with use_backend(queues=[]):
        anywhere = add.using(queue_name="anywhere")
        result = anywhere.enqueue()
        assert add.get_result(result.id).task == anywhere
    before = stored_jobs()
    with pytest.raises(InvalidTask, match="Queue 'anywhere' is not valid for backend"):
        anywhere.enqueue()
    with pytest.raises(InvalidTask, match="Queue 'anywhere' is not valid for backend"):
        asyncio.run(anywhere.aenqueue())
    assert stored_jobs() == before
    assert add.get_result(result.id).task == add  # the queue of this call is not known any more


def test_a_call_runs_the_function_here() -> None:
    before = stored_jobs()
    assert add.call(1, 2) == 3
    assert asyncio.run(add.acall(1, 2)) == 3
    assert count_groups.call("nobody") == 0
    assert stored_jobs() == before


# --- Transactions


def test_a_task_commits_with_the_rows_of_its_block() -> None:
    with transaction.atomic():
        Group.objects.create(name="committed")
        result = add.enqueue()
        assert add.get_result(result.id) == result
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            inner_result = add.enqueue()
            raise ZeroDivisionError
    assert add.get_result(result.id) == result
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(inner_result.id)


def test_a_rolled_back_task_does_not_exist() -> None:
    before = stored_jobs()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Group.objects.create(name="rolled back")
        result = add.enqueue()
        raise ZeroDivisionError
    with pytest.raises(TaskResultDoesNotExist):
        add.get_result(result.id)
    assert stored_jobs() == before
    assert not Group.objects.filter(name="rolled back").exists()


def test_a_failed_transaction_takes_no_task() -> None:
    before = stored_jobs()
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic(savepoint=False):
            raise ZeroDivisionError
        with pytest.raises(TransactionManagementError, match="current transaction"):
            add.enqueue()
        with pytest.raises(TransactionManagementError, match="current transaction"):
            add.get_result("1-0123456789abcdef")
        transaction.set_rollback(True)
    assert stored_jobs() == before


def test_a_ledger_outside_of_the_databases_is_used_by_its_address(tmp_path: Any) -> None:
    address = f"sqlite:///{tmp_path / 'jobs.db'}"
    before = stored_jobs()
    with use_backend(ledger=address):
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            result = add.enqueue(1)
            raise ZeroDivisionError  # the ledger is not in this transaction
        assert add.get_result(result.id) == result
        with App(address) as app:
            assert [job.kind for job in app.ledger.jobs("ready")] == [add.module_path]
    assert stored_jobs() == before
