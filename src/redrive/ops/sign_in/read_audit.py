"""Reads of payloads in the audit log, for those who need to know who has seen which data."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, TypeAlias

Record: TypeAlias = Callable[[str, str, Mapping[str, Any]], None]
"""Writes an entry of the audit log: action, reason and details."""
AGAIN_SECONDS = 300.0
"""A page updates itself. The same read of the same actor is recorded once in this time."""
MAX_REMEMBERED = 10_000
ACTION = "payload.read"
BECAUSE = "opened, with secrets masked"


class ReadAudit:
    """Records who read the payload of which job, dead letter or event. Threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recorded: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    def record(self, actor: str, noun: str, id_: int | str, record: Record, /) -> None:
        """Record a read, unless the same was recorded within five minutes.

        Args:
            actor: Who reads.
            noun: What is read: `job`, `dead`, `event` or `key`.
            id_: Its id.
            record: Writes the entry.
        """
        read = (actor, noun, str(id_))
        now = monotonic()
        with self._lock:
            if now - self._recorded.get(read, float("-inf")) < AGAIN_SECONDS:
                return
        record(ACTION, BECAUSE, {noun: id_})
        with self._lock:
            self._recorded[read] = now
            self._recorded.move_to_end(read)
            while len(self._recorded) > MAX_REMEMBERED:
                self._recorded.popitem(last=False)
