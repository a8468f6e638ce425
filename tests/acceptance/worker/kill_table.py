"""`make kill-table`: workers killed, crashed by poison jobs, suspended and drained, on SQLite and Postgres, as tables.

python -m tests.acceptance.worker.kill_table [rounds]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from redrive.commands.command import Command
from tests.servers.postgres import postgres_server
from tests.servers.process import ServerMissing
from tests.zygote import Zygote

from . import isolated
from .shift import SLOTS, Shift, drain_worker, isolate, kill_workers, run_poison, suspend_worker

LIMIT = 10.0
"""Seconds within which a new worker finishes the jobs of a killed one."""


Scene = Callable[[Shift], tuple[bool, list[str]]]


def kill(shift: Shift, *options: str) -> tuple[bool, list[str]]:
    """One line of the first table."""
    found = kill_workers(shift, *options)
    ok = found.finished == found.jobs and not found.lost and found.seconds < LIMIT
    return ok, [f"{found.finished} of {found.jobs}", str(found.lost), str(found.twice), f"{found.seconds:.1f}"]


def kill_elsewhere(shift: Shift) -> tuple[bool, list[str]]:
    """The same, where other workers cannot see that the process has ended."""
    return kill(shift, "elsewhere")


def poison(shift: Shift) -> tuple[bool, list[str]]:
    """One line of the second table."""
    found = run_poison(shift)
    ok = (found.finished, found.kills, found.reason) == (59, 3, "crashed_worker") and found.charged <= SLOTS
    return ok, [f"{found.finished} of 59", str(found.kills), found.reason, str(found.charged), f"{found.seconds:.1f}"]


def stop(shift: Shift) -> tuple[bool, list[str]]:
    """One line of the third table."""
    found = suspend_worker(shift)
    ok = found.finished == found.jobs and not found.crashes
    return ok, [f"{found.finished} of {found.jobs}", str(found.crashes), str(found.twice), str(found.late)]


def drain(shift: Shift) -> tuple[bool, list[str]]:
    """One line of the fourth table."""
    found = drain_worker(shift, "long=2")
    ok = found.released == found.jobs and not found.charged
    return ok, [f"{found.released} of {found.jobs}", str(found.charged), f"{found.seconds:.1f}"]


def in_process(command: Command[..., object], reason: str, attempts: int) -> Scene:
    """Return the scenario of one poison job in a process."""

    def play(shift: Shift) -> tuple[bool, list[str]]:
        found = isolate(shift, command)
        ok = found[:-1] == (59, reason, attempts, 1, 0, 0)
        cells = [f"{found.finished} of 59", found.reason, found.attempts, found.workers - 1, found.charged, found.left]
        return ok, [*map(str, cells), f"{found.seconds:.1f}"]

    return play


TABLES: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, Scene], ...]], ...] = (
    (
        "200 jobs of 20 ms: all workers are killed half-way, and a new one starts",
        ("finished", "lost", "run twice", "seconds"),
        (("same machine", kill), ("another machine", kill_elsewhere)),
    ),
    (
        "60 jobs, one of which kills its worker: a new worker starts after each crash",
        ("finished", "crashes", "reason of the poison job", "charged without a start", "seconds"),
        (("", poison),),
    ),
    (
        "60 jobs of 20 ms in 2 processes, one of which is poison: the worker is never restarted",
        ("finished", "reason of the poison job", "attempts", "dead workers", "charged to others", "processes left", "seconds"),
        (
            ("segmentation fault", in_process(isolated.segfault, "crashed_process", 3)),
            ("os._exit(0)", in_process(isolated.leave, "crashed_process", 3)),
            ("SIGKILL, as by the OOM killer", in_process(isolated.kill, "crashed_process", 3)),
            ("above its memory limit", in_process(isolated.eat_memory, "attempts", 2)),
            ("endless loop", in_process(isolated.loop, "attempts", 2)),
            ("forks repeatedly", in_process(isolated.fork_often, "attempts", 2)),
            ("ignores SIGTERM", in_process(isolated.ignore_sigterm, "attempts", 2)),
        ),
    ),
    (
        "200 jobs of 20 ms: the worker is suspended past its leases, another finishes, then it resumes",
        ("finished", "crashes", "run twice", "late"),
        (("", stop),),
    ),
    (
        "16 jobs of 2 s: SIGTERM, with 0.5 s to drain",
        ("released", "charged", "seconds"),
        (("", drain),),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Print the tables. Return 1 if there is a problem."""
    rounds = int(arguments[0]) if arguments else 3
    wrong = 0
    with ExitStack() as stack:
        zygote = stack.enter_context(Zygote())
        try:
            databases = {"SQLite": "", "Postgres": stack.enter_context(postgres_server())}
        except ServerMissing as missing:
            print(f"NOT RUN: POSTGRES. TO GET IT: {missing}", file=sys.stderr)
            return 1
        for title, heads, scenes in TABLES:
            print(f"\n{title}\n\n| database | {' | '.join(heads)} | |\n| --- |{' ---: |' * len(heads)} --- |", flush=True)
            for where, scene in scenes:
                for database, url in databases.items():
                    for _ in range(rounds):
                        ok, cells = _run_scene(scene, zygote, url)
                        wrong += not ok
                        named = f"{database}, {where}" if where else database
                        print(f"| {named} | {' | '.join(cells)} | {'ok' if ok else 'WRONG'} |", flush=True)
    print(f"\n{'no problems found' if not wrong else f'{wrong} are WRONG'}")
    return 1 if wrong else 0


def _run_scene(scene: Scene, zygote: Zygote, url: str) -> tuple[bool, list[str]]:
    with tempfile.TemporaryDirectory(prefix="redrive-kill-") as name:
        folder = Path(name)
        try:
            return scene(Shift(zygote, url or f"sqlite:///{folder}/ledger.db", folder))
        except AssertionError as problem:
            return False, [str(problem).partition("\n")[0]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
