"""A process that has imported slow modules, and forks programs: each is a real process that starts half a second faster.

The programs may be killed, stopped and waited for. They end with the zygote, and the zygote ends with its test run.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redrive.ledger import failpoint
from tests.servers.process import die_with_parent

ROOT = Path(__file__).parents[1]
LOADED = ("psycopg", "alembic.command", "alembic.config", "redrive.ledger")
"""Modules that programs on a ledger need. A package of redrive is loaded with all its modules, lazy ones too."""
COMMANDS = ("pydantic.fields", "pydantic.main", "pydantic.type_adapter", "pydantic.types", "redrive.settings", "redrive.cli")
"""Modules that commands need in addition."""


class Zygote:
    """Forks programs. One thread at a time."""

    def __init__(self, *loaded: str) -> None:
        """loaded: additional modules."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_CRASH")}
        clean["PYTHONPATH"] = f"{ROOT}/src{os.pathsep}{ROOT}"  # these sources, not those of an installed package
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", __name__, *LOADED, *loaded],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=clean,
            start_new_session=True,  # Ctrl+C in the terminal is for the test run
        )  # fmt: skip

    def _ask(self, **asked: Any) -> int | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the zygote has died with status {self._process.wait()}")
        found: int | None = json.loads(answer)
        return found

    def fork(
        self,
        program: str,
        arguments: Sequence[str],
        *,
        output: Path,
        errors: Path | None = None,
        input: Path = Path(os.devnull),  # noqa: A002  # its stdin
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        crash_at: str = "",
    ) -> int:
        """Start `main(arguments)` of a module, and return its process id. Its output is appended to the file.

        The files are open when this returns. A terminal is a file too. errors: a separate file for stderr.

        folder, environment: complete replacements of the zygote's.

        crash_at: the value of REDRIVE_CRASH_AT for a regular program.
        """
        pid = self._ask(
            act="fork",
            program=program,
            arguments=arguments,
            files=[str(input), str(output), str(errors or output)],
            folder=str(folder) if folder else None,
            environment=environment if environment is None else dict(environment),
            crash_at=crash_at,
        )
        assert pid is not None
        return pid

    def wait(self, pid: int) -> int:
        """Wait until it has ended. Return its status, or minus the signal that killed it."""
        status = self._ask(act="wait", pid=pid)
        assert status is not None
        return status

    def ended(self, pid: int) -> int | None:
        """Return its status, if it has ended."""
        return self._ask(act="poll", pid=pid)

    def close(self) -> None:
        """End it and its children."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("null\n")  # a forked child of the test run may hold its input open
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it has already ended
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()


@functools.cache
def warm() -> Zygote:
    """The zygote for commands and pages, of this process and until its end."""
    made = Zygote(*COMMANDS)
    atexit.register(made.close)
    return made


def arm(setting: str) -> None:
    """Apply the variable as importing redrive does. Here redrive was imported before."""
    if setting:
        nothing, point = failpoint.crash_point, failpoint.arm(setting)
        for module in list(sys.modules.values()):
            if getattr(module, "crash_point", None) is nothing:
                vars(module)["crash_point"] = point


def _load(asked: Mapping[str, Any]) -> None:
    """Import the program in the zygote, once for all its processes. A program with its own environment may read it then."""
    if asked["environment"] is None:
        with contextlib.suppress(Exception):  # the new process raises it again and prints it
            importlib.import_module(asked["program"])


def _fork(asked: Mapping[str, Any]) -> int:
    """Fork the new process in the zygote. In the new process it does not return."""
    given, output, errors = asked["files"]
    flags = os.O_NOCTTY | os.O_CLOEXEC
    added = os.O_WRONLY | os.O_APPEND | os.O_CREAT | flags
    files = [os.open(given, os.O_RDONLY | flags), os.open(output, added, 0o666), os.open(errors, added, 0o666)]
    pid = os.fork()
    if pid == 0:
        _run(asked, files)
    for each in files:
        os.close(each)
    return pid


def _run(asked: Mapping[str, Any], files: Sequence[int]) -> None:
    """Run in the forked child. A program that exits with SystemExit ends normally. Others end here."""
    status = 1
    try:
        die_with_parent()
        for target, source in enumerate(files):
            os.dup2(source, target)
        _settle_in(asked["environment"], asked["folder"])
        arm(asked["crash_at"])
        status = importlib.import_module(asked["program"]).main(asked["arguments"])
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _settle_in(environment: Mapping[str, str] | None, folder: str | None) -> None:
    """Set up the interpreter as at its start."""
    if folder is not None:
        os.chdir(folder)
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:1] = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    sys.stdin = open(0, encoding=encoding, errors=errors or "strict", closefd=False)  # noqa: SIM115  # open until the end
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, encoding=encoding, errors=errors or "strict", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding=encoding, errors=errors or "backslashreplace", closefd=False)  # noqa: SIM115


def main() -> None:
    """Serve until the input ends."""
    for name in sys.argv[1:]:
        module = importlib.import_module(name)
        if name.startswith("redrive.") and hasattr(module, "__path__"):
            for inner in pkgutil.walk_packages(module.__path__, f"{name}."):
                if ".migrations" not in inner.name:  # Alembic runs those
                    importlib.import_module(inner.name)
    ended: dict[int, int] = {}
    answer: int | None
    while line := sys.stdin.readline():
        asked = json.loads(line)
        if asked is None:
            return
        if asked["act"] == "fork":
            _load(asked)
            gc.freeze()  # at its end, a process would scan and copy all modules: 0.25 s of the 0.35 s of a command
            answer = _fork(asked)
            ended.pop(answer, None)  # the process id may have belonged to another process before
        else:
            pid = asked["pid"]
            if pid not in ended:
                found, status = os.waitpid(pid, 0 if asked["act"] == "wait" else os.WNOHANG)
                if found:
                    ended[pid] = os.waitstatus_to_exitcode(status)
            answer = ended.get(pid)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
