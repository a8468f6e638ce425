"""Runs the `redrive` commands of a page: each in a process forked from one that has loaded the modules."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import tempfile
from typing import NoReturn

from tests.servers.process import die_with_parent

OF_A_SHELL = frozenset("|&;<>$`*?")


class Shell:
    """Created before the page runs, so that forked processes are independent of the page."""

    def __init__(self) -> None:
        self._asking, served = socket.socketpair()
        if os.fork() == 0:
            self._asking.close()
            _serve(served)
        served.close()

    @staticmethod
    def knows(command: str) -> bool:
        """Return whether it is a `redrive` command without shell syntax."""
        return command.startswith("redrive ") and not OF_A_SHELL & set(command)

    def run(self, command: str) -> tuple[int, str]:
        """Return its status and its output."""
        with self._asking.makefile("rw", encoding="utf-8") as line:
            line.write(json.dumps([shlex.split(command)[1:], dict(os.environ)]) + "\n")
            line.flush()
            status, printed = json.loads(line.readline())
        return status, printed


def _serve(asked: socket.socket) -> NoReturn:
    """End with the page."""
    die_with_parent()
    with asked.makefile("rw", encoding="utf-8") as lines:
        while line := lines.readline():
            with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
                child = os.fork()
                if child == 0:
                    os.dup2(output.fileno(), 1)
                    os.dup2(errors.fileno(), 2)
                    _run(*json.loads(line))
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                printed = b"".join(os.pread(file.fileno(), 1_000_000, 0) for file in (output, errors))
            lines.write(json.dumps([status, printed.decode("utf-8")]) + "\n")
            lines.flush()
    os._exit(0)


def _run(arguments: list[str], environment: dict[str, str]) -> NoReturn:
    from redrive.cli import main
    from redrive.cli.render import output

    os.environ.clear()
    os.environ.update(environment)
    output.UNLIMITED_COLUMNS = 100  # as at a terminal of this width: pages show the output that a reader sees
    sys.argv = ["redrive", *arguments]
    status = 1
    try:
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
