"""Runs the blocks of one page, passed as JSON on standard input, in its own process, so that pages are independent.

Its own names stay out of the page's namespace, which is `__main__` as in a reader's script.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.docs.shell import Shell


def run(page: str, steps: list[dict[str, Any]]) -> None:
    shell = Shell() if any(step["run"] and step["language"] == "console" for step in steps) else None
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.path.insert(0, str(Path.cwd()))  # as in a reader's script: it can import files that the page writes
    for step in steps:
        if step["file"]:
            Path(step["file"]).write_text(step["source"], encoding="utf-8")
        if step["language"] == "python":
            # Empty lines first, so that a traceback has the line number of the page.
            code = compile("\n" * (step["line"] - 1) + step["source"], page, "exec")
            if step["run"]:
                exec(code, vars(module))
        elif step["run"] and shell:
            console(page, step["line"], step["source"], step["status"], shell)


def console(page: str, line: int, source: str, expected_status: int, shell: Shell) -> None:
    for part in re.split(r"(?m)^\$ ", source)[1:]:
        command, _, shown = part.partition("\n")
        status, printed = shell.run(command) if shell.knows(command) else outside(command)
        if status != expected_status:
            sys.exit(f"{page}:{line}: `{command}` ended with {status}:\n{printed}")
        expected = ".*".join(re.escape(piece) for piece in shown.strip().split("..."))
        if shown.strip() and not re.fullmatch(expected, printed.strip(), re.DOTALL):
            sys.exit(f"{page}:{line}: `{command}` printed\n{printed}\ninstead of\n{shown}")


def outside(command: str) -> tuple[int, str]:
    """Run it like a shell, with the commands of this environment first on PATH."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main(_arguments: Sequence[str]) -> NoReturn:
    """In the new process, which ends like a regular one."""
    given = json.load(sys.stdin)
    run(given["page"], given["steps"])
    sys.exit()
