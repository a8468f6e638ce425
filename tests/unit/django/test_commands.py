"""`manage.py redrive`, and the options that `manage.py redrive_worker` rejects. tests/acceptance/django runs a worker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.tasks.exceptions import InvalidTaskBackend
from django.test import override_settings

from redrive.django.project import find_project
from tests.django_project import django_databases, django_settings
from tests.unit.django.conftest import use_backend
from tests.unit.django.sample_tasks import add, send_mail

pytestmark = pytest.mark.req("X-2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--queue", "post"], "--queue post: unknown queue; TASKS['default']['QUEUES'] has default, mail"),
        (["--only", "shop.nothing"], "TASKS['default']: 'shop.nothing' is not registered; registered: "),
        (["--threads", "0"], "Error: argument --threads: '0' is not a whole number from 1"),
        (["--drain", "soon"], "Error: argument --drain: 'soon' is not a number from 0"),
        (["--metrics-port", "70000"], "Error: argument --metrics-port: '70000' is not a whole number from 0 to 65535"),
        (["--backend", "other"], "The connection 'other' doesn't exist."),
    ],
)
def test_a_wrong_option_is_rejected_with_the_fix(tmp_path: Path, arguments: list[str], message: str) -> None:
    with django_databases(default=django_settings(f"sqlite:///{tmp_path / 'shop.sqlite3'}")), use_backend():
        call_command("migrate", verbosity=0, run_syncdb=True)
        with pytest.raises(CommandError) as raised:
            call_command("redrive_worker", *arguments)
    assert str(raised.value).startswith(message)


def test_the_command_line_of_redrive_uses_the_ledger_of_the_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with django_databases(default=django_settings(f"sqlite:///{tmp_path / 'shop.sqlite3'}")), use_backend():
        call_command("migrate", verbosity=0, run_syncdb=True)
        result = add.enqueue(1)
        with pytest.raises(SystemExit) as ended:
            call_command("redrive", "jobs", "list", "--json", skip_checks=True)
        assert ended.value.code == 0
        (job,) = json.loads(capsys.readouterr().out)
        assert (str(job["id"]), job["kind"]) == (result.id.partition("-")[0], add.module_path)
        with pytest.raises(SystemExit) as ended:
            call_command("redrive", "dead", "shwo", skip_checks=True)
        assert ended.value.code == 2
    dummy = {"BACKEND": "django.tasks.backends.dummy.DummyBackend"}
    with override_settings(TASKS={"default": dummy}), pytest.raises(CommandError, match="set it to 'redrive.django.Backend'"):
        call_command("redrive", "dead", "list", skip_checks=True)


def test_queues_without_names_cannot_be_chosen() -> None:
    with use_backend(queues=[], ledger="sqlite://"), pytest.raises(CommandError) as raised:
        call_command("redrive_worker", "--queue", "mail", skip_checks=True)
    assert str(raised.value) == (
        "--queue mail: TASKS['default']['QUEUES'] is empty, so that all queues share their workers; list the queues there"
    )


def test_a_queue_has_the_job_types_of_all_tasks() -> None:
    """A task may be enqueued into each queue, and its declared queue is in no name."""
    with use_backend(ledger="sqlite://"):
        kinds = [kind for kind, _ in find_project(None).kinds(frozenset(["mail"]))]
        assert send_mail.module_path in kinds
        assert f"{add.module_path}@mail" in kinds
        assert add.module_path not in kinds
        with pytest.raises(InvalidTaskBackend):
            find_project("other")


def test_the_command_line_hides_the_secrets_of_the_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with django_databases(default=django_settings(f"sqlite:///{tmp_path / 'shop.sqlite3'}")), use_backend(secrets=["iban_code"]):
        call_command("migrate", verbosity=0, run_syncdb=True)
        result = add.enqueue({"iban_code": "DE02-1203"})
        with pytest.raises(SystemExit):
            call_command("redrive", "jobs", "show", result.id.partition("-")[0], "--json", skip_checks=True)
    shown = capsys.readouterr().out
    assert "iban_code" in shown
    assert "DE02-1203" not in shown


def test_the_command_line_names_the_worker_command() -> None:
    with use_backend(ledger="sqlite://"), pytest.raises(CommandError, match="^redrive work: .*; run `manage.py redrive_worker`$"):
        call_command("redrive", "work", skip_checks=True)
