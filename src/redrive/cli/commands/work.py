"""`redrive work`: a worker of an app, with its status as a live line, as lines or as JSON.

`redrive workers` lists the workers of a ledger.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from ...core.text import format_duration, pluralise
from ...ops.context import QUIET
from ...ops.render import ago, document
from ...ops.worker_process import Status, WorkerProcess, WorkerSummary, WorkOptions, start_worker
from ...ops.workers import TASK_VERBS, WorkerLine
from ..command import CommandGroup
from ..errors import NO_LEDGER, exit_on_error, fail
from ..options import HeartbeatTimeout, ReadOptions, argument, flag, open_operator, option
from ..render import Column, console, print_rows
from ..render.output import CONTROL_CHARACTERS
from ..suggestions import expand_commands

STATUS_SECONDS = 10.0
"""Seconds between two status lines outside of a terminal."""
MAX_NAMES = 4
GIVEN_UP_KINDS = frozenset(("giveup", "blocked"))
"""Kinds of records of a job that is not retried."""
REMOVED_PREFIX = "LedgerRemoved: "
"""Begins a problem that ends the worker. Only the error message at the end reports it."""
PARTITION_OUTCOMES = {"terminal": "gave up", "returned": "returned", "late": "too late"}
workers = CommandGroup(help="List workers.")
PRESENCES = {
    "alive": ("●", "online", "green"),
    "silent": ("✗", "offline", "bold red"),
    "lost": ("✗", "lost", "red"),
    "ended": ("○", "stopped", "dim"),
}
"""Sign, printed word and style of each presence. JSON has the stored word."""


def work(
    *,
    app: Annotated[
        str | None,
        argument(
            "MODULE:APP",
            "App in your code, found from the current directory "
            "(default: $REDRIVE_APP, redrive.toml)",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        option(
            "--threads",
            "N",
            "Number of sync functions that run at the same time (default: 8)",
            min=1,
        ),
    ] = None,
    processes: Annotated[
        int | None,
        option(
            "--processes",
            "N",
            "Number of processes for commands with isolation (default: number of cores)",
            min=1,
        ),
    ] = None,
    executor: Annotated[
        str | None,
        option(
            "--executor",
            "ADDRESS",
            "Dask scheduler for extractions, as dask://host:8786 (default: none)",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        option("--only", "NAME", "Only this command, handler or dataset (repeatable)"),
    ] = None,
    drain: Annotated[
        float | None,
        option(
            "--drain",
            "SECONDS",
            "Seconds that running jobs have to finish after a stop signal (default: 30)",
            min=0,
        ),
    ] = None,
    name: Annotated[
        str | None, option("--name", "NAME", "Name of the worker (default: host and process ID)")
    ] = None,
    metrics_port: Annotated[
        int | None,
        option(
            "--metrics-port",
            "PORT",
            "Port for /metrics and /health (default: none)",
            min=0,
            max=65535,
        ),
    ] = None,
    metrics_host: Annotated[
        str | None,
        option(
            "--metrics-host", "ADDRESS", "Address for /metrics and /health (default: 127.0.0.1)"
        ),
    ] = None,
    log_format: Annotated[
        Literal["text", "json"], typer.Option("--log-format", help="Format of the output")
    ] = "text",
    as_json: Annotated[
        bool, flag("--json", "Output as JSON lines, same as --log-format json")
    ] = False,
) -> None:
    """Run the jobs of an app.

    Claims jobs from the app's ledger and runs them until SIGTERM or Ctrl+C. The first signal drains
    the worker: no new job starts, and running jobs have --drain seconds to finish. A job that does
    not finish in time goes back to the queue, which does not count as an attempt. The second signal
    stops the worker immediately.

    Each failed attempt and each dead letter is logged as one line. In 10 seconds, at most 20 lines
    of attempts that will be retried and 20 lines of dead letters and other problems are printed,
    and 5 lines of failed calls inside jobs. Another line says how many were left out. If the app
    configures logging, its log handlers receive all of them instead. Options override the
    environment and redrive.toml.

    Examples:
        redrive work shop:app
        redrive work shop:app --only crm.sync --threads 4
        redrive work shop:app --log-format json
        redrive work lake:app --executor dask://scheduler:8786

    Exit codes:
        0: drained
        2: invalid option, unknown app, or no job type registered
        3: ledger not reachable, or its schema is from another version, or its file was removed
        130: stopped immediately by a second SIGINT
        143: stopped immediately by a second SIGTERM
    """
    with exit_on_error():
        worker = start_worker(
            app,
            WorkOptions(
                threads, only, drain, name, metrics_port, metrics_host, processes, executor
            ),
        )
    signal = run_visibly(worker, as_json=as_json or log_format == "json")
    if signal is not None:
        raise typer.Exit(128 + signal)
    problem = describe_problem(worker)
    if problem is not None:
        fail(NO_LEDGER, problem)


def run_visibly(worker: WorkerProcess, /, *, as_json: bool) -> int | None:
    """Run a worker until a signal, and print its status and its failures.

    Returns:
        Number of the second signal, which ends the drain. None: there was none.
    """
    out = console()

    def report_failure(line: str, kind: str, record: Mapping[str, Any]) -> None:
        if as_json:
            _print_json("failure", {"kind": kind, **document(record)})
        elif record.get("error_class") == "LedgerRemoved":
            pass  # The error message at the end says it once.
        elif out.is_terminal:
            out.print(Text(_clean(line), style="bold red" if kind in GIVEN_UP_KINDS else "yellow"))
        else:
            _print_line(line)

    if as_json:
        status = _json_lines(worker)
    else:
        status = _live_line(worker, out) if out.is_terminal else _text_lines(worker)
    with status:
        return worker.run(report_failure)


def describe_problem(worker: WorkerProcess, /) -> str | None:
    """Return why a worker that has ended could not store all results. None: it could."""
    if worker.problem is None:
        return None
    if worker.is_ledger_removed:
        return f"ledger: {worker.problem}"
    retried = "jobs that were still running are retried when their leases expire"
    return f"ledger: not all results were stored ({worker.problem}); {retried}"


# --- Three forms of output


@contextmanager
def _live_line(worker: WorkerProcess, out: Console) -> Iterator[None]:
    """Keep a status line below the output of the jobs."""
    for line in describe_worker(worker.summary):
        out.print(Text(line))
    rate = Rate()

    def picture() -> RenderableType:
        return Text(_clean(status_line(worker, rate)), overflow="ellipsis", no_wrap=True)

    with Live(get_renderable=picture, console=out, refresh_per_second=4) as live:
        yield
        live.refresh()


@contextmanager
def _text_lines(worker: WorkerProcess) -> Iterator[None]:
    for line in describe_worker(worker.summary):
        _print_line(line)
    rate = Rate()
    with _on_change(worker, lambda: _print_line(status_line(worker, rate))):
        yield
    _print_line(status_line(worker, rate))


@contextmanager
def _json_lines(worker: WorkerProcess) -> Iterator[None]:
    _print_json("started", document(worker.summary))
    with _on_change(worker, lambda: _print_json("status", document(worker.status))):
        yield
    _print_json("ended", document(worker.status))


@contextmanager
def _on_change(worker: WorkerProcess, report: Callable[[], None]) -> Iterator[None]:
    """Call `report` from a thread every few seconds, if the status has changed."""
    is_over = threading.Event()

    def watch() -> None:
        last = None
        while not is_over.wait(STATUS_SECONDS):
            status = worker.status
            if status != last:
                report()
            last = status

    thread = threading.Thread(target=watch, name="redrive-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(1)


def _print_line(text: str) -> None:
    print(_clean(text), flush=True)


def _print_json(event: str, values: Mapping[str, Any]) -> None:
    print(json.dumps({"event": event, **values}, default=str), flush=True)


def _clean(text: str) -> str:
    return CONTROL_CHARACTERS.sub("", text.replace("\n", " "))


# --- Texts


def describe_worker(summary: WorkerSummary) -> list[str]:
    """Return the lines that a worker prints when it starts."""
    commands = tuple(kind for kind in summary.kinds if kind not in summary.handlers)
    groups = {"command": commands, "handler": summary.handlers, "dataset": summary.datasets}
    parts = [_count_names(noun, names) for noun, names in groups.items() if names]
    threads = pluralise(summary.threads, "thread")
    if summary.processes:
        threads += f", {pluralise(summary.processes, 'process', 'processes')}"
    lines = [f"Worker {summary.name} on {summary.url}: {'; '.join(parts)}; {threads}."]
    if summary.engine is not None:
        lines.append(f"Commands on {summary.engine}.")
    if summary.executor is not None:
        lines.append(f"Extractions on {summary.executor}.")
    if summary.metrics is not None:
        lines.append(f"Metrics at {summary.metrics}.")
    lines += [f"Schedule: {kind} `{line}`." for kind, line in summary.scheduled.items()]
    for kind, count in summary.unknown.items():
        jobs = pluralise(count, "job")
        lines.append(f"Not registered here: {kind}, {jobs} queued; kept for other workers.")
    return lines


def _count_names(noun: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{pluralise(len(names), noun)}, {', '.join(names[:MAX_NAMES])}{more}"


class Rate:
    """Jobs that end in a second, measured over at least one second."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._done = 0
        self._rate = 0.0

    def update(self, done: int) -> float:
        """Return the rate, given the number of jobs that have ended so far."""
        seconds = time.monotonic() - self._since
        if seconds >= 1:
            self._rate = (done - self._done) / seconds
            self._since, self._done = self._since + seconds, done
        return self._rate


def status_line(worker: WorkerProcess, rate: Rate) -> str:
    """Return the status of a worker in one line."""
    status = worker.status
    per_second = rate.update(status.done + status.partitions.get("accepted", 0))
    pace = f" ({per_second:,.3g}/s)" if per_second else ""
    has_jobs = bool(worker.summary.kinds) or not status.partitions
    parts = [_job_counts(status, pace)] if has_jobs else []
    if status.partitions:
        parts.append(_partition_counts(status.partitions, "" if has_jobs else pace))
    if status.parked:
        paused = ", ".join(f"{kind} ({reason})" for kind, reason in status.parked.items())
        parts.append(f"paused after an outage: {paused}")
    problems = {} if status.trouble is None else {"ledger": status.trouble}
    problems |= {
        f"cannot {TASK_VERBS.get(task, task)}": reason for task, reason in status.failing.items()
    }
    parts += [
        f"{subject}: {reason}"
        for subject, reason in problems.items()
        if not reason.startswith(REMOVED_PREFIX)
    ]
    return f"{status.state}: {'; '.join(parts)}"


def _job_counts(status: Status, pace: str) -> str:
    parts = [f"{status.running:,} running"] if status.running or status.state != "ended" else []
    parts += [
        f"{status.done:,} done{pace}",
        pluralise(status.again, "retry", "retries"),
        pluralise(status.dead, "dead letter"),
    ]
    parts += [f"{pluralise(status.late, 'result')} too late"] if status.late else []
    parts += [f"{status.overdue:,} overdue"] if status.overdue else []
    return ", ".join(parts)


def _partition_counts(counts: Mapping[str, int], pace: str) -> str:
    always = ("running", "accepted", "rejected", "terminal")
    shown = {name: counts[name] for name in always}
    shown |= {name: count for name, count in counts.items() if count}
    names = {**PARTITION_OUTCOMES, "accepted": f"accepted{pace}"}
    return "partitions: " + ", ".join(
        f"{count:,} {names.get(name, name)}" for name, count in shown.items()
    )


# --- List


@workers.command("list")
def list_(
    *,
    include_stopped: Annotated[bool, flag("--all", "Include workers that stopped")] = False,
    heartbeat_timeout: HeartbeatTimeout = QUIET,
    options: ReadOptions,
) -> None:
    """List workers.

    Online workers come first. An offline worker has sent no heartbeat for --heartbeat-timeout
    seconds. The process of a lost worker was killed or crashed, and other workers have taken over
    its jobs. Workers are listed for a week.

    Examples:
        redrive workers list
        redrive workers list --all

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        report = ops.workers.find(quiet=heartbeat_timeout)
    workers = [worker for worker in report.workers if include_stopped or worker.presence != "ended"]
    stopped = len(report.workers) - len(workers)
    hint = expand_commands("`redrive jobs list --state running` lists their jobs.")
    note = f"{stopped:,} more stopped (--all)" if stopped else hint
    none_online = f"No worker is online; {stopped:,} stopped in the last week (--all)."
    empty = none_online if stopped else "No workers."
    print_rows(workers, options.as_json, _columns(report.now), empty=empty, below=[note])


def _columns(now: datetime) -> list[Column[WorkerLine]]:
    def longest(worker: WorkerLine) -> str | None:
        since = worker.longest_since
        return format_duration(round((now - since).total_seconds())) if since else None

    return [
        Column("worker", lambda worker: worker.name, min_width=18),
        Column("state", _state),
        Column("last heartbeat", lambda worker: ago(worker.seen_at, now)),
        Column("running", lambda worker: str(worker.hands or "–"), is_number=True),
        Column("longest", longest, is_number=True, drop_order=1),
        Column("threads", lambda worker: str(worker.threads or "–"), is_number=True, drop_order=4),
        Column("version", lambda worker: worker.version or None, drop_order=3),
        Column(
            "job types",
            lambda worker: ", ".join(worker.kinds) or None,
            min_width=12,
            wanted_width=20,
            truncate=True,
            drop_order=2,
        ),
    ]


def _state(worker: WorkerLine) -> Text:
    sign, word, style = PRESENCES[worker.presence]
    is_unusual = worker.presence == "alive" and worker.state not in (None, "working")
    return Text(f"{sign} {word}{f' ({worker.state})' if is_unusual else ''}", style=style)
