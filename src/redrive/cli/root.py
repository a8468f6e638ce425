"""The root of the command line: the table of commands, `--version` and internal errors."""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import Annotated

import typer

from ..core.version import VERSION
from .command import LazyCommand, LazyGroup
from .suggestions import remember_ledger

INTERNAL_ERROR = 70
"""EX_SOFTWARE of sysexits.h."""
BROKEN_PIPE = 141
"""The exit code that shells report for SIGPIPE."""

START, RUN, OBSERVE, JOBS = "Get started", "Run", "Observe", "Jobs and messages"
DATA, MAINTAIN, UNDERSTAND = "Data", "Maintain", "Understand"
COMMANDS = {
    "init": LazyCommand("setup:init", "Create redrive.toml and a sample app", START),
    "demo": LazyCommand("setup:demo", "Run a demo shop with a worker and console", START),
    "config": LazyCommand("setup:config", "Show the effective configuration", START),
    "work": LazyCommand("work:work", "Run the jobs of an app", RUN),
    "serve": LazyCommand("serve:serve", "Serve the web console and the REST API", RUN),
    "overview": LazyCommand("health:overview", "Show problems, workers and queues", OBSERVE),
    "doctor": LazyCommand("health:doctor", "Check a ledger for problems", OBSERVE),
    "activity": LazyCommand(
        "activity:activity", "Show throughput and durations over time", OBSERVE
    ),
    "failures": LazyCommand("failures:failures", "Group failures by job type and error", OBSERVE),
    "journal": LazyCommand("journal:app", "Show log records of jobs and partitions", OBSERVE),
    "workers": LazyCommand("work:workers", "List workers", OBSERVE),
    "schedules": LazyCommand("controls.schedules:app", "List and fire schedules", OBSERVE),
    "find": LazyCommand("find:find", "Find jobs and dead letters", JOBS),
    "jobs": LazyCommand("jobs:app", "List, cancel and reschedule jobs", JOBS),
    "pause": LazyCommand("controls.pauses:pausing", "Pause job types, sources, schedules", JOBS),
    "resume": LazyCommand("controls.pauses:resuming", "Resume job types, sources, schedules", JOBS),
    "limits": LazyCommand("controls.limits:app", "Set limits of job types at run time", JOBS),
    "dead": LazyCommand("dead:app", "List, replay and discard dead letters", JOBS),
    "dlq": LazyCommand("dead:app", "Alias of dead", JOBS, is_alias=True),
    "sweeps": LazyCommand("sweeps:app", "Control bulk replays and discards", JOBS),
    "events": LazyCommand("events:app", "List, show and replay events", JOBS),
    "keys": LazyCommand("keys:app", "List and release idempotency records", JOBS),
    "state": LazyCommand("partitions.state:app", "Inspect and control partitions", DATA),
    "backfill": LazyCommand("partitions.backfill:app", "Plan and run backfills", DATA),
    "plan": LazyCommand("partitions.plan:app", "Show and apply saved plans", DATA),
    "batch": LazyCommand("batch:app", "List and reopen rejected batch items", DATA),
    "storage": LazyCommand("storage:app", "List, read, write and copy stored files", DATA),
    "ledger": LazyCommand("ledger:app", "Migrate and inspect the ledger", MAINTAIN),
    "audit": LazyCommand("audit:app", "List and verify the audit log", MAINTAIN),
    "erase": LazyCommand("ledger:erase", "Erase the data of one user", MAINTAIN),
    "classify": LazyCommand("retries:classify", "Explain whether an error is retried", UNDERSTAND),
    "layers": LazyCommand("retries:layers", "Show the worst case of nested retries", UNDERSTAND),
}
"""Every command with its place in `redrive.cli.commands`, its summary and its help section."""


class RootGroup(LazyGroup):
    """The commands of `redrive`."""

    table = COMMANDS


app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, cls=RootGroup
)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"redrive {VERSION}")
        raise typer.Exit


@app.callback()
def redrive(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """Run and operate durable jobs and data.

    Retries, idempotency keys and background jobs, with dead letters, backfills and a web console.
    """
    remember_ledger(None)


def run() -> None:
    """Run the command line. REDRIVE_DEBUG=1 shows the traceback of an internal error."""
    # Imports create many objects and no garbage. Collection took a tenth of the start-up time.
    gc.set_threshold(50_000, 20, 20)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot encode a character gets "?" instead of a traceback.
            stream.reconfigure(errors="replace")
    try:
        app()
    except SystemExit:
        # After a broken pipe (`| head`) Click exits with 1, which has another meaning here. The
        # replaced stdout tells the two apart.
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            sys.exit(BROKEN_PIPE)
        raise
    except Exception as error:
        if os.environ.get("REDRIVE_DEBUG"):
            raise
        from .errors import BAD_INPUT, complain  # noqa: PLC0415  # `--help` does not load it

        if isinstance(error, OverflowError) and "SQLite INTEGER" in str(error):
            complain(f"number too large: the maximum is {2**63 - 1}")
            sys.exit(BAD_INPUT)
        name = type(error).__name__
        complain(f"unexpected {name}: {error}; set REDRIVE_DEBUG=1 for a traceback")
        sys.exit(INTERNAL_ERROR)
