"""The command as its user meets it: as a process of its own, with and without a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = "from redrive.cli import main; main()"
LEFT_OUT = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "REDRIVE_LEDGER", "REDRIVE_DEBUG")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Without a terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *arguments],
        env=kept | {"PYTHONIOENCODING": "utf-8", "COLUMNS": "100"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def on_terminal(*arguments: str, typed: str = "", **environment: str) -> tuple[int, str]:
    """On a terminal, at which somebody types after the colon of the question; exit status and all that was printed."""
    main, other = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    environment = kept | {"TERM": "xterm-256color", "COLUMNS": "80", "NO_COLOR": "1"} | environment
    program = [sys.executable, "-c", PROGRAM, *arguments]
    with subprocess.Popen(program, stdin=other, stdout=other, stderr=other, env=environment) as process:
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
            pass  # the terminal is gone when the program is
    os.close(main)
    return process.returncode, printed.decode()


def sqlite(folder: Path) -> str:
    """The address of a ledger in this folder."""
    return f"sqlite:///{folder / 'ledger.db'}"
