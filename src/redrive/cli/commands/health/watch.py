"""`redrive watch`: checks a ledger regularly, and sends alerts to a webhook and to Slack."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any, Literal

import typer

from ....core.text import format_duration, pluralise
from ....ops.alerts.message import describe_change, label_of
from ....ops.alerts.watch import MIN_INTERVAL_SECONDS, Watcher, WatchOptions, WatchReport
from ....ops.context import QUIET
from ....ops.render import document, utc
from ...errors import NO_LEDGER, NOT_DONE, complain, exit_on_error, refuse_option
from ...options import AppArgument, HeartbeatTimeout, LedgerAddress, choose_target, flag, option
from ...render.output import CONTROL_CHARACTERS
from ...suggestions import complete_command, expand_commands


def watch(
    *,
    app: AppArgument = None,
    interval: Annotated[
        float | None,
        option(
            "--interval",
            "SECONDS",
            "Seconds between two checks (default: 300)",
            min=MIN_INTERVAL_SECONDS,
        ),
    ] = None,
    repeat: Annotated[
        float | None,
        option(
            "--repeat",
            "SECONDS",
            "Seconds after which an open problem is reported again, 0 for never (default: 14400)",
            min=0,
        ),
    ] = None,
    severity: Annotated[
        Literal["warning", "critical"],
        typer.Option("--severity", help="Lowest severity that is reported"),
    ] = "warning",
    once: Annotated[bool, flag("--once", "Check once, then exit, for cron")] = False,
    test: Annotated[bool, flag("--test", "Send a test alert to each target, then exit")] = False,
    heartbeat_timeout: HeartbeatTimeout = QUIET,
    target: LedgerAddress = None,
    as_json: Annotated[bool, flag("--json", "Output as JSON lines, one for each check")] = False,
) -> None:
    """Send alerts about problems of a ledger.

    Runs the checks of `redrive doctor` every --interval seconds. New problems, problems that
    become critical, and resolved problems are sent to the webhook in REDRIVE_ALERTS_WEBHOOK and to
    Slack, with the webhook in REDRIVE_ALERTS_SLACK. REDRIVE_ALERTS_WEBHOOK_FILE and
    REDRIVE_ALERTS_SLACK_FILE name files with these URLs.

    The ledger stores what each target was told. A restart, or a second watcher, sends nothing
    twice. An alert that cannot be delivered is sent at the next check.

    Examples:
        redrive watch shop:app
        redrive watch --interval 60 --severity critical
        redrive watch --once --json

    Exit codes:
        0: stopped by a signal, or with --once: all alerts were delivered
        1: with --once: an alert was not delivered
        2: invalid option, no target, or an invalid URL
        3: with --once: the ledger could not be checked
    """
    if once and test:
        refuse_option("--once, --test", "pass one of the two")
    source = choose_target(app, target)
    options = WatchOptions(interval, repeat, severity, heartbeat_timeout)
    output = _JsonLines() if as_json else _TextLines()
    with (
        exit_on_error(),
        closing(Watcher(source, options, complete=_complete)) as watcher,
    ):
        if once or test:
            report = watcher.test() if test else watcher.check()
            (output.show if test else output.show_once)(report)
            raise typer.Exit(_exit_code(report))
        output.begin(watcher)
        with _stop_signals() as stop:
            watcher.run(stop, output.show)


def _complete(fix: str) -> str:
    return complete_command(expand_commands(fix))


def _exit_code(report: WatchReport) -> int:
    if any(target.delivery == "failed" for target in report.targets):
        return NOT_DONE
    return 0 if report.is_ledger_checked else NO_LEDGER


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Return an event that the first SIGTERM or SIGINT sets. The second one ends the process."""
    stop = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def on_signal(_number: int, _frame: Any) -> None:
        # In a thread: this one may hold the lock of the event, because it waits for it.
        threading.Thread(target=stop.set).start()
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)

    handlers = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


# --- Two forms of output


class _JsonLines:
    """One JSON document for each check."""

    def begin(self, watcher: Watcher) -> None:
        """Print the targets and the interval."""
        settings = {"interval": watcher.interval, "repeat": watcher.repeat}
        print(json.dumps({"event": "started", "targets": watcher.targets, **settings}), flush=True)

    def show(self, report: WatchReport) -> None:
        """Print a check."""
        health = {"severity": report.health.severity}
        values = document(report) | {"health": document(report.health) | health}
        print(json.dumps({"event": "check", **values}), flush=True)

    show_once = show


class _TextLines:
    """A line for each alert, and one line when a target begins to fail."""

    def __init__(self) -> None:
        self._failed_checks: dict[str, int] = {}

    def begin(self, watcher: Watcher) -> None:
        """Print the targets and the interval."""
        every = f"Checking every {format_duration(watcher.interval)}"
        _print(f"{every}; alerts to {' and '.join(watcher.targets)}.")

    def show(self, report: WatchReport) -> None:
        """Print the changes."""
        for target in report.targets:
            failed_checks = self._failed_checks.get(target.target, 0)
            if target.delivery == "failed":
                self._failed_checks[target.target] = failed_checks + 1
                if not failed_checks:
                    complain(target.problem or "")
            elif target.delivery == "sent":
                self._failed_checks.pop(target.target, None)
                late = pluralise(failed_checks, "failed check")
                after = f", after {late}" if failed_checks else ""
                for change in target.changes:
                    text = f"{label_of(change)}: {describe_change(change, report.at)}"
                    _print(f"{utc(report.at)} UTC {target.target}{after}: {text}")

    def show_once(self, report: WatchReport) -> None:
        """Print the changes, and a summary."""
        self.show(report)
        count = len(report.health.findings)
        problems = f"{pluralise(count, 'problem')} found" if count else "No problems found"
        sent = sum(len(target.changes) for target in report.targets if target.delivery == "sent")
        _print(f"{problems}; {pluralise(sent, 'alert')} sent.")


def _print(line: str) -> None:
    print(CONTROL_CHARACTERS.sub("", line.replace("\n", " ")), flush=True)
