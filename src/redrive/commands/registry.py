"""Registry: the commands of an app, by their names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from ..ledger.aio import AsyncLedger
from ..ledger.ledger import Ledger
from ..worker.kind import Kind
from .command import Command, kind_of
from .terms import Terms


class Registry:
    """The commands of an app, and where they are handed in. Threads may share it, and so may forked children."""

    def __init__(self, ledger: Callable[[], Ledger], /) -> None:
        self._ledger = ledger
        self._kinds: dict[str, Kind] = {}
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

    def add(self, command: Command[..., Any], terms: Terms, /) -> None:
        """ValueError where another function has the name already: the ledger could not tell whose a job is."""
        known = self._terms.get(terms.name)
        if known is not None and not hasattr(sys, "ps1"):  # who sits at a prompt defines a function again and again
            raise ValueError(f"there is a command {terms.name!r} already, {known.place}; {terms.place} needs another name")
        self._terms[terms.name] = terms
        self._kinds[terms.name] = kind_of(command)

    @property
    def kinds(self) -> dict[str, Kind]:
        """What a worker knows of them, by name."""
        return dict(self._kinds)

    @property
    def scheduled(self) -> list[Terms]:
        """Those that fire by themselves."""
        return [terms for terms in self._terms.values() if terms.cron is not None]

    def close(self) -> None:
        """End the thread for event loops, if there is one."""
        held, self._aio = self._aio, None
        if held is not None and held[0] == os.getpid():
            held[1].close()
