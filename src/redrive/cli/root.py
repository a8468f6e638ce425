"""The root of the command line, with its table of commands."""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import Annotated

import typer

from .lazy import Lazy, LazyGroup
from .render.suggestions import given

UNEXPECTED = 70
"""EX_SOFTWARE of sysexits.h: an error of ours."""

PIPE = 141
"""What a shell makes of SIGPIPE."""

COMMANDS = {
    "init": Lazy("commands.init", "Create redrive.toml and a sample app", "Get started"),
    "demo": Lazy("commands.demo", "Run a demo shop with a worker and console", "Get started"),
    "config": Lazy("commands.config", "Show the effective configuration", "Get started"),
    "work": Lazy("work", "Run the jobs of an app", "Run"),
    "serve": Lazy("serve", "Serve the web console and the REST API", "Run"),
    "overview": Lazy("commands.overview", "Show problems, workers and queues", "Observe"),
    "doctor": Lazy("commands.doctor", "Check a ledger for problems", "Observe"),
    "failures": Lazy("commands.failures", "Group failures by job type and error", "Observe"),
    "journal": Lazy("commands.journal", "Show log records of jobs and partitions", "Observe"),
    "workers": Lazy("workers", "List workers", "Observe"),
    "schedules": Lazy("commands.schedules", "List schedules", "Observe"),
    "jobs": Lazy("commands.jobs", "List and show jobs", "Jobs and messages"),
    "dead": Lazy("commands.dead", "List, replay and discard dead letters", "Jobs and messages"),
    "dlq": Lazy("commands.dead", "Alias of dead", "Jobs and messages"),
    "sweeps": Lazy("sweeps", "Control bulk replays and discards", "Jobs and messages"),
    "events": Lazy("commands.events", "List, show and replay events", "Jobs and messages"),
    "keys": Lazy("commands.keys", "List and release idempotency records", "Jobs and messages"),
    "state": Lazy("partitions.app", "Inspect and control partitions", "Data"),
    "backfill": Lazy("partitions.backfill", "Plan and run backfills", "Data"),
    "plan": Lazy("commands.plan", "Show and apply saved plans", "Data"),
    "batch": Lazy("commands.batch", "List and reopen rejected batch items", "Data"),
    "storage": Lazy("storage", "List, read, write and copy stored files", "Data"),
    "ledger": Lazy("commands.ledger", "Migrate and inspect the ledger", "Maintain"),
    "audit": Lazy("commands.audit", "List and verify the audit log", "Maintain"),
    "erase": Lazy("commands.erase", "Erase the data of one user", "Maintain"),
    "classify": Lazy("commands.classify", "Explain whether an error is retried", "Understand"),
    "layers": Lazy("commands.layers", "Show the worst case of nested retries", "Understand"),
}
"""Every command: its module, which is loaded when it runs, its summary (a test compares), and its section."""


class Root(LazyGroup):
    """The root's own commands."""

    table = COMMANDS


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, cls=Root)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415  # 50 ms that only --version needs

        typer.echo(f"redrive {version('redrive')}")
        raise typer.Exit


@app.callback()
def redrive(
    _version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version")] = False,
) -> None:
    """Run and operate durable jobs and data.

    Retries, idempotency keys and background jobs, with dead letters, backfills and a web console.
    """
    given(None)


def run() -> None:
    """Run the command line. An internal error is one line and exit code 70; REDRIVE_DEBUG=1 shows its traceback."""
    gc.set_threshold(50_000, 20, 20)  # importing makes many objects and no garbage: collecting cost a tenth of the start
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign gets a question mark, not a traceback
    try:
        app()
    except SystemExit:
        # Click ends a command whose reader went away (`| head`) with 1, which means something here, and leaves this behind.
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            sys.exit(PIPE)
        raise
    except Exception as problem:
        if os.environ.get("REDRIVE_DEBUG"):
            raise
        from .render.output import BAD_INPUT, complain  # noqa: PLC0415  # Rich: 40 ms that `--help` need not wait for

        if isinstance(problem, OverflowError) and "SQLite INTEGER" in str(problem):
            complain(f"number too large: the maximum is {2**63 - 1}")
            sys.exit(BAD_INPUT)
        complain(f"unexpected {type(problem).__name__}: {problem}; set REDRIVE_DEBUG=1 for a traceback")
        sys.exit(UNEXPECTED)
