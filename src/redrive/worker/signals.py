"""Signals: a worker that is its process's own. The first SIGTERM or SIGINT drains, the second stops at once."""

from __future__ import annotations

import signal
import threading
from typing import Any

from .worker import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def until_told(worker: Worker, /) -> int | None:
    """Work until a signal comes, then drain. The second signal's number, if there was one: then nothing was waited for.

    Outside of the main thread there are no signals: until `worker.stop()`.
    """
    if threading.current_thread() is not threading.main_thread():
        worker.run()
        return None
    came: list[int] = []

    def told(number: int, _frame: Any) -> None:
        came.append(number)
        worker.stop(now=len(came) > 1)

    before = {number: signal.signal(number, told) for number in SIGNALS}
    try:
        worker.run()
    finally:
        worker.hurry()  # the process ends: a thread that waits for a silent database must not hold it
        for number, handler in before.items():
            signal.signal(number, handler)
    return came[1] if len(came) > 1 else None
