"""The root of the command line: the commands of every noun hang on it."""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from . import audit, batch, dead, doctor, events, jobs, keys, layers, ledger, storage, sweeps, work
from .output import complain

UNEXPECTED = 70
"""EX_SOFTWARE of sysexits.h: an error of ours."""

PIPE = 141
"""What a shell makes of SIGPIPE."""

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(layers.layers)
app.command()(doctor.doctor)
app.command()(work.work)
app.add_typer(jobs.app, name="jobs")
app.add_typer(dead.app, name="dead")
app.add_typer(dead.app, name="dlq", help="The same as dead.")
app.add_typer(sweeps.app, name="sweeps")
app.add_typer(events.app, name="events")
app.add_typer(keys.app, name="keys")
app.add_typer(batch.app, name="batch")
app.add_typer(audit.app, name="audit")
app.add_typer(ledger.app, name="ledger")
app.add_typer(storage.app, name="storage")


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"redrive {version('redrive')}")
        raise typer.Exit


@app.callback()
def redrive(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version, and leave.")
    ] = False,
) -> None:
    """Failed work, tried again safely, never lost, and always in an operator's sight."""


def run() -> None:
    """Run the command line. An error of ours is one line and status 70; with REDRIVE_DEBUG=1 its traceback is shown."""
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
        complain(f"unexpected {type(problem).__name__}: {problem} (REDRIVE_DEBUG=1 shows where)")
        sys.exit(UNEXPECTED)
