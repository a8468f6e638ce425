"""Work: a worker of an app in the user's code, as its own process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..app import App
from ..errors import LedgerError
from ..journal.redaction import redact_text
from ..worker.status import Status
from . import failure_lines
from .failure_lines import Show
from .settings import known
from .target.imported import Unreadable, imported
from .target.target import DATABASES

if TYPE_CHECKING:
    from ..worker.worker import Worker
    from .metrics.server import Exposure

__all__ = ["Shift", "Status", "Terms", "Work", "hired"]


@dataclass(frozen=True, slots=True)
class Shift:
    """What a worker is about to work on."""

    name: str
    url: str
    """Where the ledger is, without its password."""
    threads: int
    kinds: tuple[str, ...]
    datasets: tuple[str, ...]
    scheduled: Mapping[str, str]
    """Commands and datasets that fire by themselves, and by which line."""
    unknown: Mapping[str, int]
    """Kinds that wait in the ledger and that are not registered here, with how many there are: kept, for whoever has them."""
    metrics: str | None = None
    """Where /metrics and /health are served."""
    handlers: tuple[str, ...] = ()
    """Which of the kinds are handlers of events, or read for them; the others are commands."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a worker is to work; None: as the environment or redrive.toml says, else the default."""

    threads: int | None = None
    only: Sequence[str] | None = None
    drain: float | None = None
    name: str | None = None
    metrics_port: int | None = None
    metrics_host: str | None = None


class Work:
    """A worker, ready to begin. Belongs to the main thread."""

    def __init__(self, worker: Worker, shift: Shift, exposure: Exposure | None) -> None:
        self._worker = worker
        self._exposure = exposure
        self.shift = shift

    @property
    def status(self) -> Status:
        """How it is now."""
        return self._worker.status

    def run(self, show: Show | None = None, /) -> int | None:
        """Until a signal comes, then drain. The second signal's number, where there was one: then nothing was waited for.

        show: is called for every failure, unless the program has set up logging.
        """
        from ..worker.worker import run_until_signal  # noqa: PLC0415  # SQLAlchemy: not before a ledger is wanted

        failures = nullcontext() if show is None else failure_lines.shown(show)
        with nullcontext() if self._exposure is None else self._exposure, failures:
            return run_until_signal(self._worker)

    @property
    def problem(self) -> str | None:
        """After `run`: why the ledger could not be told of everything; None: it was."""
        return self._worker.problem

    @property
    def is_ledger_removed(self) -> bool:
        """Whether the worker ended because its SQLite file was removed or replaced."""
        return self._worker.is_ledger_removed


def hired(given: str | None, terms: Terms, /) -> Work:
    """The worker of `module:app`, by default the one that is set. Unreadable: that is no app, nothing is registered, or its
    metrics cannot be served. LedgerError: the ledger cannot be reached."""
    found = known()
    source = given or found.app
    if source is None:
        raise Unreadable("no app; run `redrive work module:app`, set REDRIVE_APP, or name it in redrive.toml")
    terms = Terms(
        threads=terms.threads or found.worker.threads,
        only=terms.only or found.worker.only,
        drain=found.worker.drain if terms.drain is None else terms.drain,
        name=terms.name or found.worker.name,
        metrics_port=found.metrics.port if terms.metrics_port is None else terms.metrics_port,
        metrics_host=terms.metrics_host or found.metrics.host,
    )
    app = _app(source)
    try:
        return _hired(app, terms)
    except (LedgerError, Unreadable):
        raise
    except (ValueError, ModuleNotFoundError) as wrong:
        raise Unreadable(f"{source}: {wrong}") from wrong
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] in DATABASES:
            first = str(problem).strip().partition("\n")[0]
            raise LedgerError(f"the database failed: {redact_text(first)}") from problem
        raise Unreadable(f"{source}: {type(problem).__name__}: {problem}") from problem


def _hired(app: App, terms: Terms) -> Work:
    threads, only = terms.threads or 1, terms.only or ()
    worker = app.worker(threads=threads, only=only or None, drain=terms.drain or 0, name=terms.name)
    shift = _shift(app, worker.name, threads, only)
    if terms.metrics_port is None:
        return Work(worker, shift, None)
    from .metrics.collect import prometheus_endpoint  # noqa: PLC0415  # likewise
    from .metrics.server import Exposure  # noqa: PLC0415  # an HTTP server: not before one is wanted

    try:
        shown = prometheus_endpoint(app)
    except ImportError as missing:
        raise Unreadable(str(missing)) from missing
    exposure = Exposure(shown, lambda: worker.is_healthy, host=terms.metrics_host or "127.0.0.1", port=terms.metrics_port)
    return Work(worker, replace(shift, metrics=f"http://{exposure.address}/metrics"), exposure)


def _app(source: str) -> App:
    module, colon, name = source.partition(":")
    if not colon or not module or not name or "/" in source:
        raise Unreadable(f"{source!r} is not an app; use module:app, such as shop.work:app")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # for as long as it works: `include` names modules that are there too
    found = imported(module, name)
    if not isinstance(found, App):
        raise Unreadable(f"{source} must be an App, not {type(found).__name__}")
    return found


def _shift(app: App, name: str, threads: int, only: Sequence[str]) -> Shift:
    from .ledger import status  # noqa: PLC0415  # likewise

    kinds = tuple(sorted(kind.name for kind in app.kinds(only or None)))
    datasets = app.datasets.chosen(only or None)
    registered = {kind.name for kind in app.kinds()}
    waiting = {
        kind.name: kind.states["queued"] + kind.states["retry_wait"] + kind.states["replaying"]
        for kind in status(app.ledger).kinds
        if kind.name not in registered
    }
    return Shift(
        name=name,
        url=redact_text(app.url),
        threads=threads,
        kinds=kinds,
        datasets=tuple(sorted(one.name for one in datasets)),
        scheduled={terms.name: str(terms.cron) for terms in app.commands.scheduled if terms.name in kinds}
        | {one.name: str(one.cron) for one in datasets if one.cron is not None},
        unknown={kind: many for kind, many in waiting.items() if many},
        handlers=tuple(kind for kind in kinds if kind not in app.commands),
    )
