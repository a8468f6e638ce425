"""Crash points: every step between two durable effects has a name, and a test can make the process die there.

`REDRIVE_CRASH_AT=name[:nth][:exit|kill]` dies at the nth time (from 1) that the step is reached, by `os._exit(137)` or by
SIGKILL. Without the variable a crash point is an empty function.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

VARIABLE = "REDRIVE_CRASH_AT"
VERBS = (
    "submit", "start", "renew", "settle", "turn", "reap", "replay", "discard", "prune", "fold", "beat", "caller", "migrate",
    "sweep",
)  # fmt: skip
POINTS = (
    *(f"{verb}.{step}" for verb in VERBS for step in ("before_commit", "after_commit")),
    "submit.in_caller",
    "settle.in_caller",
)
"""All there are. before_commit: everything is written, nothing is durable. after_commit: durable, nobody knows.
in_caller: written in the caller's transaction, which is the caller's to commit."""
KEY_VERBS = ("begin", "complete", "fail", "free")
KEY_POINTS = (
    *(f"key.{verb}.{step}" for verb in KEY_VERBS for step in ("before_commit", "after_commit", "in_caller")),
    *(f"key.{verb}.{step}" for verb in ("renew", "release", "sweep") for step in ("before_commit", "after_commit")),
)
"""Those of idempotency keys, which have a matrix of their own."""
ITEM_VERBS = ("increment", "give_up", "spare", "acknowledge", "reopen")
BATCH_POINTS = (
    *(f"item.{verb}.{step}" for verb in ITEM_VERBS for step in ("before_commit", "after_commit")),
    "batch.sent",
    "batch.counted",
    "batch.given_up",
)
"""Those of batches. sent: the sender has its answers, nothing is counted. counted, given_up: that is durable, the rest is not."""
WORKER_VERBS = ("park", "pardon", "bury", "limited")
WORKER_POINTS = (
    *(f"{verb}.{step}" for verb in WORKER_VERBS for step in ("before_commit", "after_commit")),
    "worker.claimed",
    "worker.ran",
    "worker.drained",
)
"""Those of a worker. claimed: leases in hand, nothing begun. ran: nothing settled. drained: all given back, nobody told."""
MESSAGE_POINTS = (
    "receive.between", "receive.before_commit", "receive.after_commit", "read.after", "ack.before", "ack.after", "tell.after",
)  # fmt: skip
"""Those of messages, from the stream to the ledger and back."""
PARTITION_VERBS = (
    "claim", "renew", "return", "reap", "judge", "rollback", "fire", "sweep", "withdraw", "mark", "source",
)  # fmt: skip
PARTITION_POINTS = tuple(f"partition.{verb}.{step}" for verb in PARTITION_VERBS for step in ("before_commit", "after_commit"))
"""Those of partitions in the ledger."""
RUN_POINTS = ("extract.claimed", "run.payload", "run.before_manifest", "run.after_manifest", "extract.judged")
"""Those of an extraction, from its lease to its verdict. payload: a piece of a file is on its way. judged: nothing of it is
durable."""
STATUS = 137


def parse(setting: str, /) -> tuple[str, int, Callable[[], NoReturn]]:
    """What the variable says: where, at which time, and how to die. ValueError says what is wrong with it."""
    name, *rest = setting.split(":")
    known = (*POINTS, *KEY_POINTS, *BATCH_POINTS, *WORKER_POINTS, *MESSAGE_POINTS, *PARTITION_POINTS, *RUN_POINTS)
    if name not in known:
        raise ValueError(f"{VARIABLE}: unknown crash point {name!r}; known: {', '.join(known)}")
    how = rest.pop() if rest and rest[-1] in WAYS else "exit"
    if len(rest) > 1 or not all(part.isdecimal() and int(part) > 0 for part in rest):
        raise ValueError(f"{VARIABLE}: write name[:nth][:exit|kill], not {setting!r}")
    return name, int(rest[0]) if rest else 1, WAYS[how]


def _exit() -> NoReturn:
    os._exit(STATUS)


def _kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


WAYS: dict[str, Callable[[], NoReturn]] = {"exit": _exit, "kill": _kill}


def armed(setting: str, /) -> Callable[[str], None]:
    """A crash point that dies as told."""
    name, nth, die = parse(setting)
    left = [nth]

    def point(reached: str, /) -> None:
        if reached == name:
            left[0] -= 1
            if left[0] == 0:
                die()

    return point


def _nothing(_reached: str, /) -> None:
    pass


crash_point: Callable[[str], None] = armed(os.environ[VARIABLE]) if VARIABLE in os.environ else _nothing
