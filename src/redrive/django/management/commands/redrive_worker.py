"""`manage.py redrive_worker`: a worker for the tasks and commands of a Django project."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

from redrive.django import require_packages
from redrive.django.project import Project, find_project
from redrive.errors import LedgerError
from redrive.ops.project.user_code import Unreadable
from redrive.ops.worker_process import WorkOptions, start_worker_of

require_packages("manage.py redrive_worker", "cli", "rich", "typer")

from redrive.cli.commands.work import describe_problem, run_visibly  # noqa: E402  # it needs them

MAX_PORT = 65535


def _number(
    kind: Callable[[str], float], least: float, most: float | None = None
) -> Callable[[str], float]:
    """Return a type of argparse: a number in a range."""

    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            form = "a number" if kind is float else "a whole number"
            until = "" if most is None else f" to {most}"
            raise ArgumentTypeError(f"{text!r} is not {form} from {least}{until}")
        return number

    return read


OPTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("--backend", "Backend in TASKS (default: the one of Redrive)", {"metavar": "ALIAS"}),
    ("--queue", "Only tasks of this queue (repeatable)", {"metavar": "NAME", "action": "append"}),
    (
        "--only",
        "Only this task, command, handler or dataset (repeatable)",
        {"metavar": "NAME", "action": "append"},
    ),
    (
        "--threads",
        "Number of sync functions that run at the same time (default: 8)",
        {"metavar": "N", "type": _number(int, 1)},
    ),
    (
        "--processes",
        "Number of processes for commands with isolation (default: number of cores)",
        {"metavar": "N", "type": _number(int, 1)},
    ),
    (
        "--drain",
        "Seconds that running tasks have to finish after a stop signal (default: 30)",
        {"metavar": "SECONDS", "type": _number(float, 0)},
    ),
    ("--name", "Name of the worker (default: host and process ID)", {"metavar": "NAME"}),
    (
        "--metrics-port",
        "Port for /metrics and /health (default: none)",
        {"metavar": "PORT", "type": _number(int, 0, MAX_PORT)},
    ),
    (
        "--metrics-host",
        "Address for /metrics and /health (default: 127.0.0.1)",
        {"metavar": "ADDRESS"},
    ),
    ("--json", "Output as JSON lines", {"action": "store_true", "dest": "as_json"}),
)
"""Name, help and options of argparse."""


class WorkerCommand(BaseCommand):
    """Run the tasks and commands of this project."""

    help = (
        "Run the tasks and commands of this project until SIGTERM or Ctrl+C. The first signal "
        "drains the worker: no new task starts, and running tasks have --drain seconds to finish. "
        "The second signal stops it immediately."
    )
    requires_system_checks = "__all__"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of `redrive work`, and those of Django."""
        for name, help_text, options in OPTIONS:
            parser.add_argument(name, help=help_text, **options)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run the worker.

        Raises:
            CommandError: It cannot start, or not all results were stored.
        """
        try:
            project = find_project(options["backend"])
            work_options = WorkOptions(
                threads=options["threads"],
                only=self._names(project, options["queue"], options["only"]),
                drain=options["drain"],
                name=options["name"],
                metrics_port=options["metrics_port"],
                metrics_host=options["metrics_host"],
                processes=options["processes"],
            )
            if project.database is not None:
                project.database.require_tables()
            worker = start_worker_of(project.app, work_options, source=f"TASKS[{project.alias!r}]")
        except (ImproperlyConfigured, LedgerError, Unreadable) as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            first_line = str(error).partition("\n")[0]
            raise CommandError(f"the database failed: {first_line}") from error
        finally:
            connections.close_all()  # this thread needs them no more
        try:
            signal = run_visibly(worker, as_json=options["as_json"])
        finally:
            project.close()
        if signal is not None:
            raise SystemExit(128 + signal)
        if problem := describe_problem(worker):
            raise CommandError(problem, returncode=3)

    @staticmethod
    def _names(
        project: Project, queues: list[str] | None, only: list[str] | None
    ) -> list[str] | None:
        """Return the names of job types to run. None: all."""
        if queues is None:
            return only
        known, place = project.options.queues, f"TASKS[{project.alias!r}]['QUEUES']"
        for queue in queues:
            if not known:
                raise CommandError(
                    f"--queue {queue}: {place} is empty, so that all queues share their workers; "
                    "list the queues there"
                )
            if queue not in known:
                names = ", ".join(sorted(known))
                raise CommandError(f"--queue {queue}: unknown queue; {place} has {names}")
        project.app.registrations.load()
        return [*(kind for kind, _ in project.kinds(frozenset(queues))), *(only or ())]


Command = WorkerCommand
"""The name that Django expects."""
