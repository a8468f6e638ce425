"""`redrive init`: the first files of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ...ops.init import MODULE, create_project
from ...ops.render import document
from ...ops.user_code import Unreadable
from ..options import NOT_DONE, AsJson
from ..render.output import complain, console, print_json, show


def init(
    folder: Annotated[
        str | None, typer.Argument(metavar="FOLDER", help="Target folder (default: the current directory)", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create redrive.toml and a sample app.

    Writes a commented redrive.toml and a working app into FOLDER. Both files are written, or
    neither. Existing files are never overwritten.

    Examples:
        redrive init
        redrive init shop

    Exit codes:
        0: files written
        1: a file exists already, or the folder is not writable
        2: invalid option
    """
    try:
        done = create_project(Path(folder or "."))
    except Unreadable as wrong:
        complain(str(wrong))
        raise typer.Exit(NOT_DONE) from None
    if as_json:
        print_json(document(done))
        return
    go = "" if folder is None else f"cd {folder} && "
    show(
        console(),
        Text(f"Written: {', '.join(done.files)}\n\n")
        + Text(f"→ {go}python {MODULE}.py  # submits three jobs\n", style="dim")
        + Text("→ redrive work       # runs them until Ctrl+C\n→ redrive jobs list  # shows their state", style="dim"),
    )
