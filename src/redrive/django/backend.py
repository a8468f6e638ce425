"""The backend of Django's Tasks: tasks are stored as jobs in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.apps import apps
from django.core import checks
from django.db import connections
from django.tasks import Task, TaskResult
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.exceptions import InvalidTaskBackend
from django.tasks.signals import task_enqueued
from django.utils import timezone
from django.utils.json import normalize_json

from ..ledger.model import NewJob
from .options import BackendOptions
from .project import Project, project_of
from .results import TaskCall, job_key, job_priority, new_token, to_aware

KEY_SECONDS = 86_400.0
"""How long the job key of a task is stored after the job is pruned. No other task has it."""
PAYLOAD_VERSION = 1


class TaskBackend(BaseTaskBackend):
    """A backend of `TASKS`: `{"default": {"BACKEND": "redrive.django.Backend"}}`.

    Tasks are jobs in the ledger, which `manage.py redrive_worker` runs. Django makes an object for
    each thread, so none is shared.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        """Read the settings. Problems are errors of `manage.py check`, and of the first `@task`.

        Args:
            alias: Name of the backend in `TASKS`.
            params: Its settings.
        """
        self.checked_options = options = BackendOptions.read(alias, params)
        given = params.get("OPTIONS", {})
        super().__init__(alias, {"QUEUES": options.queues, "OPTIONS": given})

    @property
    def project(self) -> Project:
        """The tasks of this backend, and their App.

        Raises:
            InvalidTaskBackend: The settings are not valid.
        """
        return project_of(self.alias, self.checked_options, type(self))

    def validate_task(self, task: Task, /) -> None:
        """Check a task. Django calls this for each `@task` and `using(...)`.

        Args:
            task: The task.

        Raises:
            InvalidTask: The task does not fit this backend.
            InvalidTaskBackend: The settings are not valid.
        """
        project = self.project
        super().validate_task(task)
        project.add(task)

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Store a task as a job.

        In `atomic()` on the database of the ledger, the job commits with the block.

        Args:
            task: The task.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Returns:
            The result, which is READY.

        Raises:
            TypeError: An argument is not JSON.
            InvalidTask: The task does not fit this backend.
            TransactionManagementError: The transaction has failed. Nothing was stored.
        """
        self.validate_task(task)
        project = self.project
        details = task.queue_name, task.priority, timezone.now(), task.run_after
        try:
            call = TaskCall(normalize_json(list(args)), normalize_json(dict(kwargs)), *details)
            payload = call.to_payload()
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"{task.module_path}: an argument is not JSON: {error}") from None
        kind, token = project.kind_of(task), new_token()
        job = NewJob(
            kind=kind,
            key=job_key(kind, token),
            payload=payload,
            priority=job_priority(task.priority),
            due=None if task.run_after is None else to_aware(task.run_after),
            max_attempts=project.max_attempts(task.module_path),
            keep=KEY_SECONDS,
            version=PAYLOAD_VERSION,
        )
        job_id = project.ledger.submit(job)
        result = call.result(task, f"{job_id}-{token}")
        task_enqueued.send_robust(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Read the result of a task.

        Args:
            result_id: Id of the result.

        Returns:
            The result, as the ledger has it now.

        Raises:
            TaskResultDoesNotExist: There is none, or its job was pruned.
        """
        return self.project.result(result_id)

    def check(self, **_kwargs: Any) -> Iterator[checks.CheckMessage]:
        """Yield the problems of the settings, for `manage.py check`."""
        for problem in self.checked_options.problems:
            yield checks.Error(problem, id="redrive.E001", obj="TASKS")
        if self.checked_options.problems:
            return
        try:
            _ = self.project.app
        except InvalidTaskBackend as error:
            yield checks.Error(str(error), id="redrive.E001", obj="TASKS")
        if not apps.is_installed("redrive.django"):
            yield checks.Error(
                "INSTALLED_APPS: 'redrive.django' is missing, so that there are no migrations and "
                "no worker command",
                hint="Add it to INSTALLED_APPS.",
                id="redrive.E002",
            )
        yield from self._check_database()

    def _check_database(self) -> Iterator[checks.CheckMessage]:
        alias = self.checked_options.database
        if alias is None:
            return
        connection = connections[alias]
        mode = connection.settings_dict["OPTIONS"].get("transaction_mode")
        if connection.vendor == "sqlite" and str(mode).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
            yield checks.Warning(
                f"DATABASES[{alias!r}]: a transaction that reads before it writes fails with "
                "'database is locked' if a worker writes in between",
                hint="Set 'OPTIONS': {'transaction_mode': 'IMMEDIATE'} there.",
                id="redrive.W001",
            )


Backend = TaskBackend
"""The name in the settings."""
