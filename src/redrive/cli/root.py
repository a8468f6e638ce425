"""The root of the command line: the commands of every noun hang on it."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


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
