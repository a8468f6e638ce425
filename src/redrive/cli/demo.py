"""`redrive demo`: see it at work."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer


def demo(
    once: Annotated[bool, typer.Option("--once", help="Every scene to its end, without the console; then sum up.")] = False,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, metavar="N", help="Of the console; 0: any. Default: 8321.", show_default=False),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, metavar="N", help="End by itself after so long.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
) -> None:
    """See Redrive at work: a shop on one SQLite file, with flaky services, a worker and the console.

    It says where to look, and goes on until Ctrl+C. With --once it plays every scene to its end without the console, proves that
    nothing was lost or done twice, and sums up.

    Exit status: 0, ended; 1, an extra is missing, the console did not start, or something was lost; 2, a wrong option; 130,
    interrupted.
    """
    said = [*(["--once"] if once else []), *([] if port is None else ["--port", str(port)])]
    said += [] if seconds is None else ["--seconds", str(seconds)]
    said += ["--json"] if as_json else []
    # A program beside the command line, as a user's is: it takes this one's place.
    os.execv(sys.executable, [sys.executable, "-m", "redrive.demo", *said])  # noqa: S606  # our own
