"""The root of the command line: the commands of every noun hang on it."""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import Annotated

import typer

from .followup import given
from .lazy import Lazy, LazyGroup

UNEXPECTED = 70
"""EX_SOFTWARE of sysexits.h: an error of ours."""

PIPE = 141
"""What a shell makes of SIGPIPE."""

COMMANDS = {
    "init": Lazy("init", "Begin: write a commented redrive.toml and a small app that works, here or in FOLDER."),
    "work": Lazy("work", "Work: take jobs of the app's commands from its ledger and run them, until SIGTERM or Ctrl+C."),
    "serve": Lazy("serve", "Serve the web console: all that these commands do, in a browser, and a REST API under /api."),
    "overview": Lazy("overview", "Show what is going on, and what is wrong: since when, and whether it grows."),
    "failures": Lazy(
        "failures",
        "Show what fails, grouped by kind and by what the errors are alike in: how many, since when, growing; one as a sample.",
    ),
    "journal": Lazy("journal", "The journal: what happened to jobs and partitions, and what was decided."),
    "jobs": Lazy("jobs", "Jobs: list them, look at one."),
    "dead": Lazy("dead", "Dead letters: list them, look at one, replay or discard."),
    "dlq": Lazy("dead", "The same as dead."),
    "sweeps": Lazy("sweeps", "Replays and discards of many: how far they are; pause, resume, cancel."),
    "events": Lazy("events", "Events: list them, look at one, have them handled once more."),
    "state": Lazy("state", "Partitions: how they stand and why; retry, reprocess, revalidate, roll back, pause."),
    "backfill": Lazy("backfill", "Backfills: ranges of days; plan, apply, how far, pause, resume, cancel, share."),
    "plan": Lazy("plan", "Plans that were kept: look at one, apply it."),
    "batch": Lazy("batch", "Items of batches: how they stand, which were given up; open those again."),
    "workers": Lazy("workers", "Workers: who is there, and what each has in its hands."),
    "schedules": Lazy("schedules", "Schedules: what fires by itself, when, and what was missed."),
    "keys": Lazy("keys", "Idempotency keys: list them, look at one, release one."),
    "audit": Lazy("audit", "The audit: who decided what, when and why."),
    "ledger": Lazy("ledger", "The ledger: make or bring up its tables, see how it stands."),
    "storage": Lazy("storage", "Files of the configured stores: list, read, write, copy; see whether all is well."),
    "doctor": Lazy(
        "doctor",
        "Look for what is wrong with a ledger: each finding says since when, how many, and what mends it. Changes nothing.",
    ),
    "layers": Lazy("layers", "Show what a stack of retrying layers can do in the worst case, and which layer owns which error."),
    "erase": Lazy("erase", "Erase what the ledger knows of one user: payloads, results, errors, headers and keys of theirs."),
    "demo": Lazy("demo", "See Redrive at work: a shop on one SQLite file, with flaky services, a worker and the console."),
    "config": Lazy("config", "Show what redrive.toml and the environment say, and which of them said it."),
}
"""Every command: the module of its noun, which is loaded when it is run, and what it says of itself (a test compares)."""


class Root(LazyGroup):
    """The root's own commands."""

    table = COMMANDS


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, cls=Root)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415  # 50 ms that nobody else need wait for

        typer.echo(f"redrive {version('redrive')}")
        raise typer.Exit


@app.callback()
def redrive(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version, and leave.")
    ] = False,
) -> None:
    """Failed work, tried again safely, never lost, and always in an operator's sight."""
    given(None)


def run() -> None:
    """Run the command line. An error of ours is one line and status 70; with REDRIVE_DEBUG=1 its traceback is shown."""
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
        from .output import BAD_INPUT, complain  # noqa: PLC0415  # Rich: 40 ms that `--help` need not wait for

        if isinstance(problem, OverflowError) and "SQLite INTEGER" in str(problem):
            complain(f"a number is too large: what the ledger counts goes to {2**63 - 1}")
            sys.exit(BAD_INPUT)
        complain(f"unexpected {type(problem).__name__}: {problem} (REDRIVE_DEBUG=1 shows where)")
        sys.exit(UNEXPECTED)
