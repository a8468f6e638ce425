"""Work: a worker of an app in the user's code, as its own process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..app import App
from ..errors import LedgerError
from ..journal.redaction import redacted_text
from .imported import Unreadable, imported
from .source import DATABASES

if TYPE_CHECKING:
    from ..worker.status import Status
    from ..worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Shift:
    """What a worker is about to work on."""

    name: str
    url: str
    """Where the ledger is, without its password."""
    threads: int
    kinds: tuple[str, ...]
    scheduled: Mapping[str, str]
    """Commands that fire by themselves, and by which line."""
    unknown: Mapping[str, int]
    """Kinds that wait in the ledger and that are not registered here, with how many there are: kept, for whoever has them."""


class Work:
    """A worker, ready to begin. Belongs to the main thread."""

    def __init__(self, worker: Worker, shift: Shift) -> None:
        self._worker = worker
        self.shift = shift

    @property
    def status(self) -> Status:
        """How it is now."""
        return self._worker.status

    def run(self) -> int | None:
        """Until a signal comes, then drain. The second signal's number, where there was one: then nothing was waited for."""
        from ..worker.signals import until_told  # noqa: PLC0415  # SQLAlchemy: not before a ledger is wanted

        return until_told(self._worker)


def hired(source: str, /, *, threads: int, only: Sequence[str], drain: float, name: str | None) -> Work:
    """The worker of `module:app`. Unreadable: that is no app, or nothing is registered. LedgerError: it cannot be reached."""
    app = _app(source)
    try:
        worker = app.worker(threads=threads, only=only or None, drain=drain, name=name)
        return Work(worker, _shift(app, worker.name, threads, only))
    except LedgerError:
        raise
    except (ValueError, ModuleNotFoundError) as wrong:
        raise Unreadable(f"{source}: {wrong}") from wrong
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] in DATABASES:
            first = str(problem).strip().partition("\n")[0]
            raise LedgerError(f"the database failed: {redacted_text(first)}") from problem
        raise Unreadable(f"{source}: {type(problem).__name__}: {problem}") from problem


def _app(source: str) -> App:
    module, colon, name = source.partition(":")
    if not colon or not module or not name or "/" in source:
        raise Unreadable(f"{source!r} is no app: write module:app, such as shop.work:app")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # for as long as it works: `include` names modules that are there too
    found = imported(module, name)
    if not isinstance(found, App):
        raise Unreadable(f"{source} is no App, but {type(found).__name__}")
    return found


def _shift(app: App, name: str, threads: int, only: Sequence[str]) -> Shift:
    from .ledger import status  # noqa: PLC0415  # likewise

    kinds = tuple(sorted(kind.name for kind in app.kinds(only or None)))
    registered = {kind.name for kind in app.kinds()}
    waiting = {
        kind.name: kind.states["queued"] + kind.states["retry_wait"] + kind.states["replaying"]
        for kind in status(app.ledger).kinds
        if kind.name not in registered
    }
    return Shift(
        name=name,
        url=redacted_text(app.url),
        threads=threads,
        kinds=kinds,
        scheduled={terms.name: str(terms.cron) for terms in app.commands.scheduled if terms.name in kinds},
        unknown={kind: many for kind, many in waiting.items() if many},
    )
