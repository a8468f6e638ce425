"""`redrive classify`: whether an error is retried, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from ....ops.project.user_code import Unreadable
from ....ops.render import document
from ....ops.retries.classify import Classified, classified, of_traceback
from ...errors import exit_on_error
from ...options import AsJson
from ...render import detail_view, print_json, show

NOT_RETRIED = 1
VERDICT_STYLES = {"transient": "bold green", "permanent": "bold red", "unknown": "bold yellow"}


def classify(
    *,
    error: Annotated[
        str,
        typer.Argument(
            metavar="ERROR",
            help="Exception such as httpx.ReadTimeout, HTTP status, gRPC status, printed error, "
            "or file with a traceback (-: standard input)",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Explain whether an error is retried.

    Prints the verdict (transient, permanent or unknown), the rule that decided, the default
    behaviour of calls and jobs, and how to change it. An unknown error is not retried in a call,
    but is retried in a job. Only the module of the exception is imported. No other code of yours
    runs.

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
    with exit_on_error():
        verdict = _classify(error)
    if as_json:
        print_json(document(verdict) | {"retried": verdict.retried})
    else:
        show(_verdict(verdict))
    raise typer.Exit(0 if verdict.retried else NOT_RETRIED)


def _classify(error: str) -> Classified:
    if error == "-":
        return of_traceback(sys.stdin.read())
    file = Path(error)
    if not file.is_file():
        return classified(error)
    try:
        return of_traceback(file.read_text(encoding="utf-8", errors="replace"))
    except OSError as problem:
        raise Unreadable(f"{error}: cannot be read ({problem.strerror})") from problem


def _verdict(verdict: Classified) -> Group:
    depends = verdict.depends and verdict.verdict == "unknown"
    word = "depends on the error" if depends else verdict.verdict
    detail = f" ({verdict.kind})" if verdict.kind != verdict.verdict else ""
    has_family = verdict.family not in (None, "HTTP status")
    family = f" (family {verdict.family})" if has_family else ""
    rule = f"{verdict.rule}{family}" if verdict.rule else "none: no rule knows this error"
    return detail_view(
        verdict.subject,
        {
            "verdict": Text(word, style=VERDICT_STYLES[verdict.verdict]) + Text(detail),
            "rule": rule,
            "notes": list(verdict.notes),
            "in a call": verdict.calls,
            "in a job": verdict.jobs,
            "change": list(verdict.change),
        },
    )
