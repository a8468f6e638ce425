"""`redrive demo`: see it at work."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer


def demo(
    once: Annotated[bool, typer.Option("--once", help="Every scene to its end without the console, then a summary")] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            metavar="N",
            help="Port of the console (0: any free port, default: 8321)",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", min=0, metavar="N", help="Seconds after which the demo ends (default: none)", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Output as one JSON document")] = False,
) -> None:
    """Run a demo shop with a worker and console.

    The demo uses one SQLite file, unreliable services, a worker and the console. It prints the
    console's address and runs until Ctrl+C. With --once every scene runs to its end without the
    console. The demo then checks that no work was lost or done twice, and prints a summary.

    Examples:
        redrive demo
        redrive demo --once

    Exit codes:
        0: ended
        1: an extra is missing, the console did not start, or work was lost
        2: invalid option
        130: interrupted
    """
    said = [*(["--once"] if once else []), *([] if port is None else ["--port", str(port)])]
    said += [] if seconds is None else ["--seconds", str(seconds)]
    said += ["--json"] if as_json else []
    # A program beside the command line, as a user's is: it takes this one's place.
    os.execv(sys.executable, [sys.executable, "-m", "redrive.demo", *said])  # noqa: S606  # our own
