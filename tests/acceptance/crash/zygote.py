"""A process that has imported what is slow to import, and forks programs off: each is a real process, without its half second.

The programs may be killed, stopped and waited for; they end with the zygote, and the zygote ends with its test run.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from redrive.ledger import crashpoint
from tests.servers.process import die_with_parent

ROOT = Path(__file__).parents[3]
LOADED = ("psycopg", "alembic.command", "alembic.config", "redrive.ledger.ledger")


class Zygote:
    """Forks programs off. One thread at a time."""

    def __init__(self, *loaded: str) -> None:
        """loaded: modules beyond the usual ones."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_CRASH")}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", __name__, *loaded],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=clean | {"PYTHONPATH": str(ROOT)},
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

    def fork(self, program: str, arguments: Sequence[str], *, output: Path, crash_at: str = "") -> int:
        """Start `main(arguments)` of a module; its process id. What it prints is added to the file.

        crash_at: what REDRIVE_CRASH_AT says to a program that is started in the usual way.
        """
        pid = self._ask(act="fork", program=program, arguments=arguments, output=str(output), crash_at=crash_at)
        assert pid is not None
        return pid

    def wait(self, pid: int) -> int:
        """Until it has ended; its status, or minus the signal that killed it."""
        status = self._ask(act="wait", pid=pid)
        assert status is not None
        return status

    def ended(self, pid: int) -> int | None:
        """Its status, if it has ended."""
        return self._ask(act="poll", pid=pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def arm(setting: str) -> None:
    """What importing redrive does where the variable is set: here it was imported before."""
    if setting:
        nothing, point = crashpoint.crash_point, crashpoint.armed(setting)
        for module in list(sys.modules.values()):
            if getattr(module, "crash_point", None) is nothing:
                vars(module)["crash_point"] = point


def _run(asked: Mapping[str, Any]) -> NoReturn:
    """In the forked child."""
    status = 1
    try:
        die_with_parent()
        output = os.open(asked["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        arm(asked["crash_at"])
        status = importlib.import_module(asked["program"]).main(asked["arguments"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Serve, until nobody asks any more."""
    for module in (*LOADED, *sys.argv[1:]):
        importlib.import_module(module)
    ended: dict[int, int] = {}
    answer: int | None
    while line := sys.stdin.readline():
        asked = json.loads(line)
        if asked["act"] == "fork":
            answer = os.fork()
            if answer == 0:
                _run(asked)
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
