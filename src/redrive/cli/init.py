"""`redrive init`: the first files of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..ops.document import document
from ..ops.imported import Unreadable
from ..ops.init import MODULE, begun
from .options import NOT_DONE, AsJson
from .output import complain, console, print_json, show


def init(
    folder: Annotated[
        str | None, typer.Argument(metavar="FOLDER", help="Where. Default: the directory you are in.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Begin: write a commented redrive.toml and a small app that works, here or in FOLDER.

    Writes both or neither, and never over a file that is there.

    Exit status: 0, written; 1, one of them is there already, or the folder cannot be written to; 2, a wrong option.
    """
    try:
        done = begun(Path(folder or "."))
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
        + Text(f"→ {go}python {MODULE}.py    submits three commands\n", style="dim")
        + Text("→ redrive work      runs them; Ctrl+C ends it\n→ redrive jobs list shows what became of them", style="dim"),
    )
