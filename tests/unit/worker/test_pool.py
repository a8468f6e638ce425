"""Whatever a thread has done, it tells."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from datetime import datetime, timezone
from typing import Any

from redrive.engine.settings import Settings
from redrive.worker.finished import Finished
from redrive.worker.kind import Kind
from redrive.worker.pool import Pool
from redrive.worker.scope import Around

from .test_outcome import lease


class Shared(deque[Any]):
    """Looks, the first time it is looked at when it is empty, as if there were one more: another thread takes it just then."""

    lied = False

    def __bool__(self) -> bool:
        if not len(self) and not self.lied:
            self.lied = True
            return True
        return bool(len(self))


def test_what_was_done_is_told_though_another_thread_took_the_last_one() -> None:
    told: list[Finished] = []
    all_told = threading.Event()

    def tell(finished: list[Finished]) -> None:
        told.extend(finished)
        if len(told) == 3:
            all_told.set()

    around = Around(contextvars.copy_context(), lambda: datetime.now(timezone.utc))
    pool = Pool(None, around, 1, tell, "pool")  # type: ignore[arg-type]  # plain work has no ledger
    todo = Shared()
    pool._todo = todo
    mail = Kind("mail", lambda lease: None, "plain", Settings())
    pool.give([(mail, lease(job_id=number)) for number in range(3)], 1)
    assert all_told.wait(60)
    assert sorted(one.lease.job_id for one in told) == [0, 1, 2]
    assert todo.lied
    pool.close()
