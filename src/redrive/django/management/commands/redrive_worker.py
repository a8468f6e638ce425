"""`manage.py redrive_worker`: a worker for the tasks and commands of a Django project."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.tasks.exceptions import InvalidTaskBackend

from redrive.cli.commands.work import describe_problem, run_visibly
from redrive.django.project import Project, find_project
from redrive.errors import LedgerError
from redrive.ops.project.user_code import Unreadable
from redrive.ops.worker_process import WorkOptions, start_worker_of

MAX_PORT = 65535


def _number(kind: Callable[[str], float], least: float, most: float | None = None) -> Callable[[str], float]:
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
        add = parser.add_argument
        add("--backend", metavar="ALIAS", help="Backend in TASKS (default: the one of Redrive)")
        add("--queue", action="append", metavar="NAME", help="Only tasks of this queue (repeatable)")
        add("--only", action="append", metavar="NAME", help="Only this task, command, handler or dataset (repeatable)")
        add("--threads", type=_number(int, 1), metavar="N", help="Number of sync functions that run at the same time (default: 8)")
        add("--processes", type=_number(int, 1), metavar="N", help="Number of processes for commands with isolation (default: number of cores)")
        add("--drain", type=_number(float, 0), metavar="SECONDS", help="Seconds that running tasks have to finish after a stop signal (default: 30)")
        add("--name", metavar="NAME", help="Name of the worker (default: host and process ID)")
        add("--metrics-port", type=_number(int, 0, MAX_PORT), metavar="PORT", help="Port for /metrics and /health (default: none)")
        add("--metrics-host", metavar="ADDRESS", help="Address for /metrics and /health (default: 127.0.0.1)")
        add("--json", action="store_true", dest="as_json", help="Output as JSON lines")

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
        except (InvalidTaskBackend, LedgerError, Unreadable) as error:
            raise CommandError(str(error)) from error
        try:
            signal = run_visibly(worker, as_json=options["as_json"])
        finally:
            project.close()
        if signal is not None:
            raise SystemExit(128 + signal)
        if problem := describe_problem(worker):
            raise CommandError(problem, returncode=3)

    @staticmethod
    def _names(project: Project, queues: list[str] | None, only: list[str] | None) -> list[str] | None:
        """Return the names of job types to run. None: all."""
        if queues is None:
            return only
        known = project.options.queues
        for queue in queues:
            if not known:
                raise CommandError(f"--queue {queue}: TASKS[{project.alias!r}] has QUEUES = [], so that its queues are not known; list them there")
            if queue not in known:
                raise CommandError(f"--queue {queue}: unknown queue; QUEUES of TASKS[{project.alias!r}] are {', '.join(sorted(known))}")
        project.app.registrations.load()
        return [*(kind for kind, _ in project.kinds(frozenset(queues))), *(only or ())]


Command = WorkerCommand
"""The name that Django expects."""
