"""The tasks of a Django project, and the App that runs them.

Django has an object of each backend for each thread. The App and the tasks of a backend are shared
by all of them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from django.apps import apps as installed_apps
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, Task, task_backends
from django.tasks.exceptions import InvalidTaskBackend, TaskResultDoesNotExist
from django.utils.module_loading import autodiscover_modules

from ..core.lazy import deferred
from ..journal.bus import subscribe
from ..ledger.model import Attempt, NewJob
from .database import DjangoDatabase, JobRow
from .options import BackendOptions
from .results import QUEUE_SIGN, find_declared, original_id, read_result

if TYPE_CHECKING:
    from django.tasks import TaskResult

    from .. import app as apps
    from ..app import App
    from ..commands import options as command_options
    from ..ledger.ledger import Ledger
    from ..worker import job_type as job_types
    from . import runner
else:  # only a program that has the App needs them
    (apps,) = deferred("redrive", "app")
    (command_options,) = deferred("redrive.commands", "options")
    (job_types,) = deferred("redrive.worker", "job_type")
    (runner,) = deferred(__package__, "runner")


class OwnLedger:
    """The ledger of an app, as the results of tasks read it. Threads may share it."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def _ledger(self) -> Ledger:
        return self._app.ledger

    def submit(self, job: NewJob, /) -> int:
        """Store a job in a transaction of its own. Return its id."""
        return self._ledger.submit(job).id

    def find(self, job_id: int, /) -> JobRow | None:
        """Return a job by its id."""
        job = self._ledger.get(job_id) if 0 < job_id < 2**63 else None
        return None if job is None else JobRow.of(job)

    def find_current(self, kind: str, key: str, /) -> JobRow | None:
        """Return the current job of a key."""
        job = self._ledger.find(kind, key)
        return None if job is None else JobRow.of(job)

    def attempts(self, job_id: int, /) -> list[Attempt]:
        """Return the attempts of a job that failed, were lost or do not count."""
        return self._ledger.attempts(job_id)


class Project:
    """The tasks of one backend in `TASKS`, and their App. Threads may share one."""

    def __init__(self, alias: str, options: BackendOptions, backend_class: type) -> None:
        self.alias = alias
        self.options = options
        self.backend_class = backend_class
        """The sender of signals."""
        self.tasks: dict[str, Task] = {}
        """As declared, by path."""
        self.database = None if options.database is None else DjangoDatabase(options.database)
        self._app: App | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._lock = threading.RLock()

    def add(self, task: Task, /) -> None:
        """Note a task of the backend. A task that was declared with other settings is found too."""
        path = task.module_path
        if path not in self.tasks:
            self.tasks[path] = find_declared(path) or task

    def find(self, path: str, /) -> Task | None:
        """Return the task of a path, for this backend."""
        task = self.tasks.get(path) or find_declared(path)
        return None if task is None else task.using(backend=self.alias)

    # --- Job types

    def kind_of(self, task: Task, /) -> str:
        """Return the job type of a task: its path, and its queue if that is not the declared one.

        Without `QUEUES`, a worker cannot know all queues, so that they share a job type.
        """
        path: str = task.module_path
        declared = self.tasks.get(path, task)
        if not self.options.queues or task.queue_name == declared.queue_name:
            return path
        return f"{path}{QUEUE_SIGN}{task.queue_name}"

    def kinds(self, queues: frozenset[str] | None = None, /) -> Iterator[tuple[str, Task]]:
        """Yield the job types of all tasks, or those of these queues, with their tasks."""
        for path, task in sorted(self.tasks.items()):
            for queue in sorted({task.queue_name, *self.options.queues}):
                if queues is None or queue in queues:
                    is_declared = queue == task.queue_name
                    yield path if is_declared else f"{path}{QUEUE_SIGN}{queue}", task

    def max_attempts(self, path: str, /) -> int:
        """Return how often a task is attempted."""
        return job_types.durable_settings(path, self.options.retry_of(path)).max_attempts

    # --- The App

    @property
    def app(self) -> App:
        """The App. Creating it opens nothing.

        Raises:
            InvalidTaskBackend: One of its options is not valid.
        """
        with self._lock:
            if self._app is None:
                self._app = self._make_app()
            return self._app

    def _make_app(self) -> App:
        database, options = self.database, self.options.app
        try:
            if database is None:
                app = apps.App(self.options.ledger, **options)
            else:
                app = apps.App(lambda: database.url, migrate=False, **options)
        except (TypeError, ValueError) as error:
            raise InvalidTaskBackend(f"TASKS[{self.alias!r}]['OPTIONS']: {error}") from error
        app.registrations.on_load.append(partial(self._register_tasks, app))
        return app

    def _register_tasks(self, app: App) -> None:
        """Register all tasks as commands that are not registered yet.

        Raises:
            InvalidTaskBackend: The options name a task that does not exist.
        """
        self._discover()
        unknown = sorted(self.options.tasks.keys() - self.tasks.keys())
        if unknown:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise InvalidTaskBackend(
                f"TASKS[{self.alias!r}]['OPTIONS']['tasks']: unknown task {unknown[0]!r}; "
                f"tasks: {known}"
            )
        for kind, task in list(self.kinds()):
            if kind in app.commands:
                continue
            own = self.options.tasks.get(task.module_path, {})
            options = command_options.CommandOptions(
                key=None,
                retry=self.options.retry_of(task.module_path),
                concurrency=own.get("concurrency"),
                rate=own.get("rate"),
                priority=0,
                spent="dead",
                cron=None,
                timezone="UTC",
                in_transaction=False,
            )
            app.commands.decorator(kind, options)(runner.task_function(self, task))
        if self._unsubscribe is None:
            self._unsubscribe = subscribe(runner.FinishedTasks(self))

    def _discover(self) -> None:
        """Import the `tasks` modules of all apps, and note their tasks.

        A module may have been imported with other settings, in which its tasks had another backend.
        """
        autodiscover_modules("tasks")
        for config in installed_apps.get_app_configs():
            module = sys.modules.get(f"{config.name}.tasks")
            for value in list(vars(module).values()) if module is not None else ():
                if isinstance(value, Task) and value.backend == self.alias:
                    self.add(value)

    def close(self) -> None:
        """Close the connections of the App, and send no more signals."""
        with self._lock:
            if self._app is not None:
                self._app.close()
            if self._unsubscribe is not None:
                self._unsubscribe()
                self._unsubscribe = None

    # --- The ledger

    @property
    def ledger(self) -> DjangoDatabase | OwnLedger:
        """Where jobs are stored and read: through Django's connection, or by the App.

        In a sandbox, the App has the ledger of the test.
        """
        app = self._app
        if self.database is None or (app is not None and app.commands.is_sandboxed):
            return OwnLedger(self.app)
        return self.database

    def result(self, result_id: str, /) -> TaskResult:
        """Return the result of a task. Raise TaskResultDoesNotExist if there is none."""
        result = read_result(self.ledger, result_id, self.find)
        if result is None:
            raise TaskResultDoesNotExist(result_id)
        return result

    def original_id(self, result_id: str, /) -> str:
        """Return the id that a task got when it was enqueued. A replay is another job."""
        return original_id(self.ledger, result_id)


_PROJECTS: dict[str, Project] = {}
_LOCK = threading.Lock()


def project_of(alias: str, options: BackendOptions, backend_class: type, /) -> Project:
    """Return the project of a backend.

    Raises:
        InvalidTaskBackend: Its settings are not valid.
    """
    if options.problems:
        raise InvalidTaskBackend("; ".join(options.problems))
    with _LOCK:
        project = _PROJECTS.get(alias)
        if project is None:
            project = _PROJECTS[alias] = Project(alias, options, backend_class)
        return project


def get_app(alias: str | None = None, /) -> App:
    """Return the App of a backend, for `@app.command` and everything else that an App can do.

    Args:
        alias: Name of the backend in `TASKS`. Default: `"default"` if it is one of Redrive,
            otherwise the first that is.

    Returns:
        The App. Each call returns the same one. Creating it opens nothing.

    Raises:
        InvalidTaskBackend: `TASKS` has no such backend, it is not one of Redrive, or its settings
            are not valid.
    """
    return find_project(alias).app


def find_project(alias: str | None, /) -> Project:
    """Return the project of a backend of Redrive. See `get_app`."""
    if alias is None:
        aliases = sorted(task_backends, key=lambda name: name != DEFAULT_TASK_BACKEND_ALIAS)
        alias = next(filter(_is_ours, aliases), DEFAULT_TASK_BACKEND_ALIAS)
    backend: Any = task_backends[alias]
    if not _is_ours(alias):
        name = f"{type(backend).__module__}.{type(backend).__qualname__}"
        raise InvalidTaskBackend(
            f"TASKS[{alias!r}] has the backend {name}; set it to 'redrive.django.Backend'"
        )
    project: Project = backend.project
    return project


def _is_ours(alias: str) -> bool:
    return hasattr(task_backends[alias], "checked_options")


@receiver(setting_changed)
def forget_projects(*, setting: str, **_: Any) -> None:
    """Forget the projects when a test changes the settings of tasks or databases."""
    if setting in ("TASKS", "DATABASES"):
        with _LOCK:
            projects = list(_PROJECTS.values())
            _PROJECTS.clear()
        for project in projects:
            project.close()
