"""A worker of an app in the user's code, as its own process."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..app import App
from ..core.lazy import deferred
from ..core.text import pluralise
from ..errors import LedgerError
from ..journal import bus
from ..journal.record import Record
from ..journal.redaction import redact_text
from ..journal.sinks.logging import WARNING, format_record, level_of
from ..settings import Configuration
from ..worker.status import Status
from .project.settings import known
from .project.target import DATABASES
from .project.user_code import Unreadable, import_object, names_object, search_current_folder

if TYPE_CHECKING:
    from ..worker import worker as workers
    from ..worker.worker import Worker
    from . import ledger, metrics
    from .metrics import MetricsServer
else:  # SQLAlchemy, and the server of metrics: not before a worker is made
    (workers,) = deferred("redrive.worker", "worker")
    ledger, metrics = deferred(__package__, "ledger", "metrics")

__all__ = [
    "Status",
    "WorkOptions",
    "WorkerProcess",
    "WorkerSummary",
    "start_worker",
    "start_worker_of",
]


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """What a worker is going to run."""

    name: str
    url: str
    """Address of the ledger, without its password."""
    threads: int
    kinds: tuple[str, ...]
    datasets: tuple[str, ...]
    scheduled: Mapping[str, str]
    """Scheduled commands and datasets, with their cron lines."""
    unknown: Mapping[str, int]
    """Job types with queued jobs that are not registered here, and the number of jobs. They stay
    queued."""
    metrics: str | None = None
    """Address of /metrics. The same server has /health."""
    handlers: tuple[str, ...] = ()
    """Job types of event handlers. The others are commands."""
    processes: int = 0
    """Number of processes. 0: no command has an isolation."""
    executor: str | None = None
    """Address of the Dask scheduler that runs extractions. None: they run in the worker."""
    engine: str | None = None
    """Server that runs commands. None: they run on the ledger."""


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """Options of a worker. None: from the environment or redrive.toml, or else the default."""

    threads: int | None = None
    only: Sequence[str] | None = None
    drain: float | None = None
    name: str | None = None
    metrics_port: int | None = None
    metrics_host: str | None = None
    processes: int | None = None
    executor: str | None = None


class WorkerProcess:
    """A worker that is ready to run. Belongs to the main thread."""

    def __init__(
        self, worker: Worker, summary: WorkerSummary, server: MetricsServer | None
    ) -> None:
        self._worker = worker
        self._server = server
        self.summary = summary

    @property
    def status(self) -> Status:
        """The current status."""
        return self._worker.status

    def run(self, show: Show | None = None, /) -> int | None:
        """Run until a signal, then drain.

        Args:
            show: Called for every failure, unless the program has set up logging.

        Returns:
            Number of the second signal, which ends the drain. None: there was none.
        """
        failures = nullcontext() if show is None else show_failures(show)
        with nullcontext() if self._server is None else self._server, failures:
            return workers.run_until_signal(self._worker)

    @property
    def problem(self) -> str | None:
        """After `run`: why results could not be written to the ledger. None: all were."""
        return self._worker.problem

    @property
    def is_ledger_removed(self) -> bool:
        """Whether the worker ended because its SQLite file was removed or replaced."""
        return self._worker.is_ledger_removed


def start_worker(source: str | None, options: WorkOptions, /) -> WorkerProcess:
    """Create the worker of `module:app`, by default of the app in the settings.

    Raises:
        Unreadable: It is not an app, nothing is registered, or metrics cannot be served.
        LedgerError: The ledger cannot be reached.
    """
    settings = known()
    source = source or settings.app
    if source is None:
        raise Unreadable(
            "no app; run `redrive work module:app`, set REDRIVE_APP, or name it in redrive.toml"
        )
    return start_worker_of(_import_app(source), options, source=source)


def start_worker_of(app: App, options: WorkOptions, /, *, source: str) -> WorkerProcess:
    """Create the worker of an app.

    Args:
        app: The app.
        options: Options of the worker.
        source: Names the app in messages.

    Raises:
        Unreadable: Nothing is registered, or metrics cannot be served.
        LedgerError: The ledger cannot be reached.
    """
    try:
        return _create(app, _with_settings(options, known()))
    except (LedgerError, Unreadable):
        raise
    except (ValueError, ImportError) as wrong:
        raise Unreadable(f"{source}: {wrong}") from wrong
    except Exception as problem:
        if type(problem).__module__.partition(".")[0] in DATABASES:
            first_line = str(problem).strip().partition("\n")[0]
            raise LedgerError(f"the database failed: {redact_text(first_line)}") from problem
        raise Unreadable(f"{source}: {type(problem).__name__}: {problem}") from problem


def _with_settings(options: WorkOptions, settings: Configuration) -> WorkOptions:
    worker, served = settings.worker, settings.metrics
    return WorkOptions(
        threads=options.threads or worker.threads,
        only=options.only or worker.only,
        drain=worker.drain if options.drain is None else options.drain,
        name=options.name or worker.name,
        metrics_port=served.port if options.metrics_port is None else options.metrics_port,
        metrics_host=options.metrics_host or served.host,
        processes=options.processes or worker.processes,
        executor=options.executor or worker.executor,
    )


def _create(app: App, options: WorkOptions) -> WorkerProcess:
    threads, only = options.threads or 1, options.only or None
    worker = app.worker(
        threads=threads,
        processes=options.processes,
        only=only,
        drain=options.drain or 0,
        name=options.name,
        executor=options.executor,
    )
    summary = _summarise(app, worker.name, threads, only)
    executor = options.executor if summary.datasets else None
    temporal = app.registrations.temporal
    engine = None if temporal is None else f"Temporal {temporal.connection.engine.address}"
    summary = replace(summary, processes=worker.processes, executor=executor, engine=engine)
    if options.metrics_port is None:
        return WorkerProcess(worker, summary, None)
    try:
        exporter = metrics.prometheus_endpoint(app)
    except ImportError as missing:
        raise Unreadable(str(missing)) from missing
    host, port = options.metrics_host or "127.0.0.1", options.metrics_port
    server = metrics.MetricsServer(exporter, lambda: worker.is_healthy, host=host, port=port)
    return WorkerProcess(
        worker, replace(summary, metrics=f"http://{server.address}/metrics"), server
    )


def _import_app(source: str) -> App:
    if not names_object(source) or "/" in source:
        raise Unreadable(f"{source!r} is not an app; use module:app, such as shop.work:app")
    search_current_folder()
    app = import_object(source)
    if not isinstance(app, App):
        raise Unreadable(f"{source} must be an App, not {type(app).__name__}")
    return app


def _summarise(app: App, name: str, threads: int, only: Sequence[str] | None) -> WorkerSummary:
    kinds = tuple(sorted(kind.name for kind in app.kinds(only)))
    datasets = app.datasets.select(only)
    registered = {kind.name for kind in app.kinds()}
    unknown: dict[str, int] = {}
    for kind in ledger.status(app.ledger).kinds:
        queued = sum(kind.states[state] for state in ("queued", "retry_wait", "replaying"))
        if queued and kind.name not in registered:
            unknown[kind.name] = queued
    commands = {
        terms.name: str(terms.cron) for terms in app.commands.scheduled if terms.name in kinds
    }
    extractions = {each.name: str(each.cron) for each in datasets if each.cron is not None}
    return WorkerSummary(
        name=name,
        url=redact_text(app.url),
        threads=threads,
        kinds=kinds,
        datasets=tuple(sorted(dataset.name for dataset in datasets)),
        scheduled=commands | extractions,
        unknown=unknown,
        handlers=tuple(kind for kind in kinds if kind not in app.commands),
    )


KINDS = frozenset(
    ("retry", "giveup", "blocked", "lost_lease", "late", "rejected", "lost", "worker_gone")
)
"""Records that are printed beside all warnings."""
MOST = 20
"""Lines in a window of attempts that will be retried, and of dead letters and all other records.

An outage fails thousands of attempts, which must not fill a disk. Each group has its own limit, so
that failed attempts cannot hide the dead letters.
"""
MOST_CALLS = 5
"""Lines in a window of calls that failed inside a job. A line of the job follows."""
WINDOW = 10.0
"""Seconds of a window."""

Show = Callable[[str, str, Mapping[str, Any]], None]
"""Takes the line, the record's kind and its fields."""


def _start_timer(seconds: float, function: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()


class FailureLines:
    """A journal sink that shows failures. Threads may share one.

    Args:
        show: Shows a line.
        clock: Seconds of a monotonic clock.
        call_later: Calls a function after some seconds. After a burst, no record may follow that
            would show how many lines were left out.
    """

    def __init__(
        self,
        show: Show,
        clock: Callable[[], float] = monotonic,
        call_later: Callable[[float, Callable[[], None]], None] = _start_timer,
        /,
    ) -> None:
        self._show, self._clock, self._call_later = show, clock, call_later
        self._lock = threading.Lock()
        self._until = 0.0
        self._shown: Counter[str] = Counter()
        self._hidden = self._hidden_dead = 0

    def __call__(self, record: Record, /) -> None:
        """Show this record, unless the window is full."""
        fields = record.fields
        loud = level_of(record.kind, fields.get("reason"), fields.get("item")) >= WARNING
        if record.kind not in KINDS and not loud:
            return
        with self._lock:
            now = self._clock()
            if now >= self._until:
                self._show_hidden()
                self._until = now + WINDOW
                self._shown.clear()
            if self._has_room(record):
                self._show(format_record(record), record.kind, fields)
                return
            if not self._hidden:
                self._call_later(self._until - now, self.finish)
            self._hidden += 1
            self._hidden_dead += record.kind == "giveup" and "job_id" in fields

    def _has_room(self, record: Record) -> bool:
        """Count a line of its group."""
        group = "calls" if is_call(record) else "retries" if record.kind == "retry" else "others"
        self._shown[group] += 1
        return self._shown[group] <= (MOST_CALLS if group == "calls" else MOST)

    def finish(self) -> None:
        """Show how many lines were left out."""
        with self._lock:
            self._show_hidden()

    def _show_hidden(self) -> None:
        hidden, dead = self._hidden, self._hidden_dead
        self._hidden = self._hidden_dead = 0
        if hidden:
            plural = "failure was" if hidden == 1 else "failures were"
            part = f" ({pluralise(dead, 'dead letter')})" if dead else ""
            hint = "`redrive failures` groups all of them"
            text = f"{hidden:,} more {plural} not printed{part}; {hint}"
            self._show(text, "more", {"hidden": hidden, "hidden_dead": dead})


def is_call(record: Record, /) -> bool:
    """Whether the record is about an attempt of a call, not of a job, a partition or an item."""
    is_attempt = record.kind in ("retry", "giveup")
    return is_attempt and not record.fields.keys() & {"job_id", "logical_date", "item"}


@contextmanager
def show_failures(show: Show, /) -> Iterator[None]:
    """Show failures in the block, unless the program has set up logging, which has them too."""
    if is_logging():
        yield
        return
    lines = FailureLines(show)
    unsubscribe = bus.subscribe(lines)
    try:
        yield
    finally:
        bus.flush(2.0)
        unsubscribe()
        lines.finish()


def is_logging() -> bool:
    """Whether the program has given the `redrive` logger, or the root, a handler."""
    logging = sys.modules.get("logging")
    if logging is None:
        return False
    handlers = [*logging.getLogger("redrive").handlers, *logging.getLogger().handlers]
    return any(not isinstance(each, logging.NullHandler) for each in handlers)
