"""Registry: the commands of an app, by their names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..core.codec import from_bytes
from ..ledger.aio import AsyncLedger
from ..ledger.ledger import Ledger
from ..ledger.record import Job as Row
from ..ledger.record import Submitted
from ..worker.job_type import JobType
from .command import Command, Work, made
from .job import Job
from .running import kind_of
from .terms import Terms, named, terms


class AsJson:
    """Results of what is no command here."""

    def loaded(self, result: bytes | None, /) -> Any:
        """What JSON has, or the bytes where it has nothing."""
        try:
            return None if result is None else from_bytes(result)
        except ValueError:
            return result


class Registry:
    """The commands of an app, and where they are handed in. Threads may share it, and so may forked children."""

    def __init__(self, ledger: Callable[[], Ledger], /) -> None:
        self._ledger = ledger
        self._kinds: dict[str, JobType] = {}
        self._terms: dict[str, Terms] = {}
        self._aio: tuple[int, AsyncLedger] | None = None
        self.stepped = False

    @property
    def ledger(self) -> Ledger:
        """The app's, opened at first use."""
        return self._ledger()

    @property
    def aio(self) -> AsyncLedger:
        """The same for event loops, through one thread."""
        ledger = self._ledger()
        held = self._aio
        if held is None or held[0] != os.getpid() or held[1].ledger is not ledger:
            self.close()
            held = self._aio = (os.getpid(), AsyncLedger(ledger))
        return held[1]

    def decorator(self, name: str, /, **told: Any) -> Callable[[Callable[..., Any]], Command[..., Any]]:
        """What registers a function under a name, on these terms."""
        named(name)  # at once: a bare `@app.command` is called with a function, and never again

        def decorated(fn: Callable[..., Any]) -> Command[..., Any]:
            checked = terms(name, fn, **told)
            self._add(checked, fn)
            return made(self, fn, checked)

        return decorated

    def submit_many(self, works: Sequence[Work[Any]], tx: Any, /) -> list[Job[Any]]:
        """Many at once, all or none."""
        for work in works:
            if not isinstance(work, Work):
                raise TypeError(f"submit_many takes results of `command.bind(...)`, not {type(work).__name__}: {work!r}")
            if work.post is not self:
                raise ValueError(f"{work.job.kind} is a command of another App; submit it there")
        found = self.ledger.submit_many([work.job for work in works], tx=tx)
        return [work.held(one) for work, one in zip(works, found, strict=True)]

    def _add(self, terms: Terms, fn: Callable[..., Any]) -> None:
        """ValueError where another function has the name already: the ledger could not tell whose a job is."""
        known = self._terms.get(terms.name)
        if known is not None and not hasattr(sys, "ps1"):  # who sits at a prompt defines a function again and again
            raise ValueError(f"command {terms.name!r} is already registered by {known.place}; use another name for {terms.place}")
        self._terms[terms.name] = terms
        self._kinds[terms.name] = kind_of(terms, fn)

    def place(self, name: str, /) -> str | None:
        """Where the command of this name stands; None: there is none."""
        found = self._terms.get(name)
        return None if found is None else f"the command {found.place}"

    def chosen(
        self, only: Collection[str] | None, others: Sequence[JobType] = (), /, *, beside: Collection[str] = ()
    ) -> list[JobType]:
        """What a worker knows of them and of others of the app, or of these only. ValueError names one that is not known.

        beside: what else a worker may be told to do, which is no kind of job.
        """
        known = self._kinds | {kind.name: kind for kind in others}
        if isinstance(only, str):
            raise TypeError(f"only must be a collection of names, not one text; pass [{only!r}]")
        for name in only or ():
            if name not in known and name not in beside:
                there = ", ".join(sorted([*known, *beside])) or "no names"
                raise ValueError(f"{name!r} is not registered; registered: {there}")
        if not known and not beside:
            raise ValueError("no commands and no handlers are registered; list their modules in App(include=[...])")
        return [kind for name, kind in known.items() if only is None or name in only]

    def __contains__(self, name: object, /) -> bool:
        """Whether a command is registered by this name."""
        return name in self._kinds

    @property
    def scheduled(self) -> list[Terms]:
        """Those that fire by themselves."""
        return [terms for terms in self._terms.values() if terms.cron is not None]

    def job(self, row: Row, /) -> Job[Any]:
        """The job of a row, as who submitted it holds it; the result of one that is no command is what JSON has."""
        found = Submitted(row.id, row.kind, row.key, row.state, False, row.request_hash)
        terms = self._terms.get(row.kind)
        return Job(self, AsJson() if terms is None else terms.envelope, found, row.due_at)

    def close(self) -> None:
        """End the thread for event loops, if there is one."""
        held, self._aio = self._aio, None
        if held is not None and held[0] == os.getpid():
            held[1].close()
