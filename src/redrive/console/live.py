"""Live: tells open pages that something has changed. One poller for all of them, on the read side; none while nobody looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from starlette.concurrency import run_in_threadpool

SOONEST, LATEST = 1.0, 8.0
"""Seconds between looks: each that finds nothing new doubles the wait."""
MOST = 500
"""Who may listen at once: each keeps a connection."""
SIGN_OF_LIFE = 15.0
"""Seconds after which a silent stream says that it is there, so that proxies keep it."""


class Live:
    """Who listens, and the one task that looks for them. Belongs to one event loop at a time."""

    def __init__(self, look: Callable[[], str]) -> None:
        self._look = look
        self._ears: set[asyncio.Queue[str]] = set()
        self._new: set[asyncio.Queue[str]] = set()
        """Who has come since the last look: what changed between their page and that look, nobody would tell them."""
        self._task: asyncio.Task[None] | None = None
        self.looks = 0
        """How often it has looked, ever."""

    @property
    def full(self) -> bool:
        """Whether nobody more can listen."""
        return len(self._ears) >= MOST

    async def stream(self) -> AsyncGenerator[str, None]:
        """Server-sent events: `change` with a name for what is there now; comments between."""
        ear: asyncio.Queue[str] = asyncio.Queue(1)
        self._ears.add(ear)
        self._new.add(ear)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._looking())
        try:
            yield "retry: 3000\n\n"
            while True:
                try:
                    told = await asyncio.wait_for(ear.get(), SIGN_OF_LIFE)
                    yield f"event: change\ndata: {told}\n\n"
                except TimeoutError:
                    yield ": here\n\n"
        finally:
            self._ears.discard(ear)
            self._new.discard(ear)
            if not self._ears and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _looking(self) -> None:
        before: str | None = None
        wait = SOONEST
        while True:
            fresh, self._new = self._new, set()
            try:
                now = await run_in_threadpool(self._look)
            except Exception:  # the ledger is away: pages are told when it is back
                now = "away"
            self.looks += 1
            wait = SOONEST if now != before else min(2 * wait, LATEST)
            changed = before is not None and now != before
            self._tell(now, self._ears if changed else fresh & self._ears)
            before = now
            await asyncio.sleep(wait)

    @staticmethod
    def _tell(now: str, ears: set[asyncio.Queue[str]]) -> None:
        for ear in ears:
            if ear.full():
                ear.get_nowait()  # it has not read the last one yet: this one says all
            ear.put_nowait(now)
