"""`redrive init`, `redrive demo` and `redrive config`: get started with a project."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from ...ops.project.init import MODULE, create_project
from ...ops.project.settings import Setting, list_settings
from ...ops.project.user_code import Unreadable
from ..errors import NOT_DONE, complain, exit_on_error, fail
from ..options import AsJson, argument, flag, option
from ..render import Column, print_json, print_table, show


def init(
    *,
    folder: Annotated[
        str | None, argument("FOLDER", "Target folder (default: the current directory)")
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
        files = create_project(Path(folder or "."))
    except Unreadable as error:
        fail(NOT_DONE, str(error))
    if as_json:
        print_json(files)
        return
    cd = "" if folder is None else f"cd {folder} && "
    hints = [
        f"→ {cd}python {MODULE}.py  # submits three jobs",
        "→ redrive work       # runs them until Ctrl+C",
        "→ redrive jobs list  # shows their state",
    ]
    show(f"Written: {', '.join(files.files)}\n")
    show("\n".join(hints), style="dim")


def demo(
    *,
    once: Annotated[
        bool, flag("--once", "Every scenario to its end without the console, then a summary")
    ] = False,
    port: Annotated[
        int | None,
        option(
            "--port", "N", "Port of the console (0: any free port, default: 8321)", min=0, max=65535
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        option("--seconds", "N", "Seconds after which the demo ends (default: none)", min=0),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a demo shop with a worker and console.

    The demo uses one SQLite file, unreliable services, a worker and the console. It prints the
    console's address and runs until Ctrl+C. With --once every scenario runs to its end without the
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
    arguments = ["--once"] if once else []
    arguments += [] if port is None else ["--port", str(port)]
    arguments += [] if seconds is None else ["--seconds", str(seconds)]
    arguments += ["--json"] if as_json else []
    # The demo is a program of its own, as a user's app is. It replaces this process.
    os.execv(sys.executable, [sys.executable, "-m", "redrive.demo", *arguments])  # noqa: S606


def config(*, as_json: AsJson = False) -> None:
    """Show the effective configuration.

    Each setting is shown with its value and its origin. An option of a command overrides the
    environment, which overrides redrive.toml. Secrets are hidden. A secret in clear text in
    redrive.toml causes a warning.

    Examples:
        redrive config
        redrive config --json

    Exit codes:
        0: shown
        2: unknown name or invalid value in the configuration
    """
    with exit_on_error():
        settings = list_settings()
    if as_json:
        print_json(settings)
        return
    print_table(SETTING_COLUMNS, settings)
    for setting in settings:
        if setting.warns is not None:
            complain(f"{setting.name} {setting.warns}")


def _value(setting: Setting) -> str | None:
    value = setting.value
    if value is None or value == ():
        return None
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


SETTING_COLUMNS: list[Column[Setting]] = [
    Column("name", lambda setting: setting.name),
    Column("value", _value, min_width=24),
    Column("set by", lambda setting: setting.said_by, min_width=12),
    Column("variable", lambda setting: setting.variable, drop_order=1),
]
