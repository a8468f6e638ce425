"""`redrive classify`: why an error is retried or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...ops.classify import Classified, classified, of_traceback
from ...ops.render import document
from ...ops.user_code import Unreadable
from ..options import AsJson
from ..render.details import indented
from ..render.output import BAD_INPUT, complain, console, heading, pairs, print_json, show

NOT_RETRIED = 1
STYLES = {"transient": "bold green", "permanent": "bold red", "unknown": "bold yellow"}


def classify(
    error: Annotated[
        str,
        typer.Argument(
            metavar="ERROR",
            help="Exception such as httpx.ReadTimeout, HTTP status, gRPC status, printed error, or file with a traceback "
            "(-: standard input)",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Explain whether an error is retried.

    Prints the verdict (transient, permanent or unknown), the rule that decided, the default behaviour
    of calls and jobs, and how to change it. An unknown error is not retried in a call, but is retried in
    a job. Only the module of the exception is imported. No other code of yours runs.

    Also takes errors as the CLI prints them, and the output of `redrive dead show ID` or
    `redrive jobs show ID` on standard input.

    Examples:
        redrive classify httpx.ReadTimeout
        redrive classify requests.exceptions.ConnectionError
        redrive classify 503
        redrive classify UNAVAILABLE
        redrive classify "TimeoutError: no answer from the warehouse"
        redrive classify traceback.txt

    Exit codes:
        0: retried by default
        1: not retried by default in a call (permanent or unknown)
        2: invalid option, unknown exception, or no exception in the traceback
    """
    try:
        found = _found(error)
    except Unreadable as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        print_json(document(found) | {"retried": found.retried})
    else:
        show(console(), _report(found))
    raise typer.Exit(0 if found.retried else NOT_RETRIED)


def _found(error: str) -> Classified:
    if error == "-":
        return of_traceback(sys.stdin.read())
    file = Path(error)
    if file.is_file():
        try:
            return of_traceback(file.read_text(encoding="utf-8", errors="replace"))
        except OSError as wrong:
            raise Unreadable(f"{error}: cannot be read ({wrong.strerror})") from wrong
    return classified(error)


def _report(found: Classified) -> RenderableType:
    made = pairs()
    detail = f" ({found.kind})" if found.kind != found.verdict else ""
    word = "depends on the error" if found.depends and found.verdict == "unknown" else found.verdict
    made.add_row("verdict", Text(word, style=STYLES[found.verdict]) + Text(detail))
    family = f" (family {found.family})" if found.family not in (None, "HTTP status") else ""
    made.add_row("rule", f"{found.rule}{family}" if found.rule else "none: no rule knows this error")
    for place, note in enumerate(found.notes):
        made.add_row("" if place else "notes", note)
    made.add_row("in a call", found.calls)
    made.add_row("in a job", found.jobs)
    for place, way in enumerate(found.change):
        made.add_row("" if place else "change", way)
    return Group(heading(found.subject), indented(made))
