"""Run the command in this process, or as a process with and without a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from typer.testing import CliRunner

from redrive.cli.render import output
from redrive.cli.root import app
from tests.zygote import warm

PROGRAM = "from redrive.cli import main; main()"
"""The code that runs the command in another interpreter."""
LEFT_OUT = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "REDRIVE_LEDGER", "REDRIVE_DEBUG")


def call(*arguments: str, width: int = 100, **environment: str) -> tuple[int, str]:
    """Run the command in this process. Return its exit status and output."""
    with columns(width):
        done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(width), "NO_COLOR": "1"} | environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


@contextmanager
def columns(width: int) -> Iterator[None]:
    """As at a terminal of this width. Output without a terminal is not cut."""
    with patch.object(output, "UNLIMITED_COLUMNS", width):
        yield


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Without a terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    environment = kept | {"PYTHONIOENCODING": "utf-8"} | environment
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        child = warm().fork(__name__, arguments, output=out, errors=err, folder=Path.cwd(), environment=environment)
        status = warm().wait(child)
        return subprocess.CompletedProcess(arguments, status, out.read_text("utf-8"), err.read_text("utf-8"))


def on_terminal(*arguments: str, typed: str = "", **environment: str) -> tuple[int, str]:
    """Run at a terminal, and type text after the colon of the prompt. Return the exit status and the output."""
    main, other = pty.openpty()
    terminal = Path(os.ttyname(other))
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    environment = kept | {"TERM": "xterm-256color", "COLUMNS": "80", "NO_COLOR": "1"} | environment
    child = warm().fork(__name__, arguments, input=terminal, output=terminal, folder=Path.cwd(), environment=environment)
    os.close(other)
    printed = b""
    try:
        while block := os.read(main, 65536):
            printed += block
            if typed and b"Type " in printed:
                time.sleep(0.05)
                os.write(main, typed.encode() + b"\n")
                typed = ""
    except OSError:
        pass  # the terminal closes with the program
    status = warm().wait(child)
    os.close(main)
    return status, printed.decode()


def main(arguments: Sequence[str]) -> int:
    """Run in the new process."""
    from redrive.cli import main as command

    sys.modules["__main__"] = types.ModuleType("__main__")  # otherwise the usage would name the zygote
    sys.argv[:] = ["redrive", *arguments]
    command()
    return 0


def sqlite(folder: Path) -> str:
    """The address of a ledger in this folder."""
    return f"sqlite:///{folder / 'ledger.db'}"
