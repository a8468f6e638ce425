"""Crash points (failpoints): named steps between two durable effects, at which a test can crash.

With `REDRIVE_CRASH_AT=name[:nth][:exit|kill]` the process dies at the nth time (from 1) that the
step is reached, by `os._exit(137)` or by SIGKILL. Without the variable a crash point does nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from typing import NoReturn

VARIABLE = "REDRIVE_CRASH_AT"
_COMMIT = ("before_commit", "after_commit")


def _points(verbs: Iterable[str], steps: Iterable[str] = _COMMIT, /, prefix: str = "") -> list[str]:
    return [f"{prefix}{verb}.{step}" for verb in verbs for step in steps]


VERBS = (
    *("submit", "start", "renew", "settle", "turn", "reap", "replay", "discard", "prune", "fold"),
    *("beat", "caller", "migrate", "sweep", "step", "cancel", "reschedule", "suspend", "signal"),
    *("sequence", "pause", "resume", "limits", "schedule", "fire", "token", "session"),
)
POINTS = (*_points(VERBS), "submit.in_caller", "settle.in_caller", "signal.in_caller")
"""Crash points of jobs and of what operators do. before_commit: everything is written, nothing is
durable. after_commit: durable, but the caller does not know. in_caller: written in the caller's
transaction."""
KEY_VERBS = ("begin", "complete", "fail", "free")
KEY_POINTS = (
    *_points(KEY_VERBS, (*_COMMIT, "in_caller"), prefix="key."),
    *_points(("renew", "release", "sweep"), prefix="key."),
)
"""Crash points of idempotency keys."""
ITEM_VERBS = ("increment", "give_up", "spare", "acknowledge", "reopen")
BATCH_POINTS = (
    *_points(ITEM_VERBS, prefix="item."),
    *("batch.sent", "batch.counted", "batch.given_up"),
)
"""Crash points of batches. sent: the sender has its responses, nothing is counted. counted and
given_up: that is durable, the rest is not."""
WORKER_VERBS = ("park", "pardon", "bury", "limited", "activity")
WORKER_POINTS = (
    *_points(WORKER_VERBS),
    *("worker.claimed", "worker.ran", "worker.drained"),
)
"""Crash points of a worker. claimed: no claimed job has started. ran: nothing is settled. drained:
all jobs are released, but the worker is not deregistered."""
MESSAGE_POINTS = (
    *("receive.between", "receive.before_commit", "receive.after_commit"),
    *("read.after", "ack.before", "ack.after", "tell.after"),
)
"""Crash points of messages, from the stream to the ledger and back."""
PARTITION_VERBS = (
    *("claim", "renew", "return", "reap", "judge", "rollback", "fire", "sweep", "withdraw"),
    *("mark", "source"),
)
PARTITION_POINTS = tuple(_points(PARTITION_VERBS, prefix="partition."))
"""Crash points of partitions in the ledger."""
RUN_POINTS = (
    *("extract.claimed", "run.payload", "run.before_manifest", "run.after_manifest"),
    "extract.judged",
)
"""Crash points of an extraction. payload: a part of a file is written. judged: no verdict is
durable."""
TEMPORAL_POINTS = ("temporal.started", "temporal.recorded")
"""Crash points of commands on Temporal. started: the activity of a job in the ledger is running.
recorded: the dead letter is durable, and the server does not know of the failure."""
CELERY_POINTS = ("celery.sent",)
"""Crash points of replays of Celery tasks. sent: the broker has the message, and the ledger does
not know it."""
ALL_POINTS = (
    *(*POINTS, *KEY_POINTS, *BATCH_POINTS, *WORKER_POINTS),
    *(*MESSAGE_POINTS, *PARTITION_POINTS, *RUN_POINTS, *TEMPORAL_POINTS, *CELERY_POINTS),
)
STATUS = 137


def parse(setting: str, /) -> tuple[str, int, Callable[[], NoReturn]]:
    """Parse the variable: the crash point, the nth time, and how to die.

    Raises:
        ValueError: The setting is not valid.
    """
    name, *rest = setting.split(":")
    if name not in ALL_POINTS:
        raise ValueError(
            f"{VARIABLE}: unknown crash point {name!r}; known: {', '.join(ALL_POINTS)}"
        )
    way = rest.pop() if rest and rest[-1] in WAYS else "exit"
    if len(rest) > 1 or not all(part.isdecimal() and int(part) > 0 for part in rest):
        raise ValueError(f"{VARIABLE}: write name[:nth][:exit|kill], not {setting!r}")
    return name, int(rest[0]) if rest else 1, WAYS[way]


def _exit() -> NoReturn:
    os._exit(STATUS)


def _kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


WAYS: dict[str, Callable[[], NoReturn]] = {"exit": _exit, "kill": _kill}


def arm(setting: str, /) -> Callable[[str], None]:
    """Return a crash point that dies as the setting says."""
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


crash_point: Callable[[str], None] = (
    arm(os.environ[VARIABLE]) if VARIABLE in os.environ else _nothing
)
