"""`Watcher`: checks a ledger with the doctor, and tells targets about changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Literal, TypeAlias

from ...core.clock import SYSTEM, Clock
from ...errors import LedgerError, SchemaMismatch
from ...journal.redaction import redact_text
from ...journal.redaction.secrets import redact_address
from ...ledger.ledger import Ledger
from ..context import QUIET
from ..health.doctor import diagnose, schema_health
from ..health.overview_rules import Finding, Health, Severity
from ..project.settings import known
from ..project.target import ledger_of, open_target, source_of
from ..project.user_code import Unreadable
from .changes import AlertChange, OpenAlert, plan_alerts
from .message import AlertNotice
from .state import AlertState, LedgerState, MemoryState
from .targets import AlertSender, configured_targets

Delivery: TypeAlias = Literal["unchanged", "sent", "failed", "busy"]
"""`busy`: another watcher is sending at this time."""
MIN_INTERVAL_SECONDS = 5.0
TEST_FINDING = Finding(
    "test", "warning", "Test: this is a test alert; nothing is wrong", 1, None, "redrive doctor"
)


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Options of a watcher. None: from the environment or redrive.toml, or else the default."""

    interval: float | None = None
    repeat: float | None = None
    severity: Severity = "warning"
    """Findings below it are not reported."""
    quiet: float = QUIET
    """Seconds without a heartbeat until a worker is offline."""


@dataclass(frozen=True, slots=True)
class TargetReport:
    """What a check did for one target."""

    target: str
    """Name and host. The rest of the URL is secret."""
    delivery: Delivery
    changes: tuple[AlertChange, ...] = ()
    problem: str | None = None
    """Why alerts were not delivered."""


@dataclass(frozen=True, slots=True)
class WatchReport:
    """The result of one check."""

    health: Health
    targets: tuple[TargetReport, ...]
    at: datetime
    """By the clock of the ledger, if it could be reached."""
    is_ledger_checked: bool
    """False: the ledger could not be reached, or the check failed."""


class Watcher:
    """Checks one ledger and tells its targets. Belongs to one thread. Close it at the end.

    Args:
        source: Address of the ledger, or `module:app`. None: the settings decide.
        options: The options.
        complete: Adds the ledger to a command, so that it runs as it is printed.
        clock: Time of checks while the ledger cannot be reached.

    Raises:
        Unreadable: A setting is not valid, no target is set, or an extra is missing.
    """

    def __init__(
        self,
        source: str | None,
        options: WatchOptions,
        /,
        *,
        complete: Callable[[str], str] = str,
        clock: Clock = SYSTEM,
    ) -> None:
        settings = known().alerts
        interval = settings.interval if options.interval is None else options.interval
        if interval < MIN_INTERVAL_SECONDS:
            least = f"at least {MIN_INTERVAL_SECONDS:g} seconds"
            raise Unreadable(f"alerts.interval: must be {least}, not {interval:g}")
        self.interval = interval
        """Seconds between two checks."""
        self.repeat = settings.repeat if options.repeat is None else options.repeat
        """Seconds after which an open problem is reported again. 0: never."""
        self._source, self._options = source, options
        self._complete, self._clock = complete, clock
        self._channels = [
            _Channel(AlertSender(target), MemoryState()) for target in configured_targets(settings)
        ]

    @property
    def targets(self) -> list[str]:
        """Name and host of each target."""
        return [str(channel.sender.target) for channel in self._channels]

    def run(self, stop: threading.Event, show: Callable[[WatchReport], None], /) -> None:
        """Check, show the result, and wait, until `stop` is set."""
        while not stop.is_set():
            show(self.check())
            stop.wait(self.interval)

    def check(self) -> WatchReport:
        """Check the ledger once, and tell each target about changes.

        Raises:
            Unreadable: The source is not an app or a ledger.
        """
        try:
            with open_target(self._source, app_first=True) as app:
                health = diagnose(app, quiet=self._options.quiet)
                return self._tell_all(health, ledger_of(app))
        except Unreadable:
            raise
        except SchemaMismatch as mismatch:
            health = schema_health(mismatch, self._source)
        except Exception as problem:  # A check that fails is a finding. The watcher must go on.
            health = _failed_check(problem, source_of(self._source))
        return self._tell_all(health, None)

    def test(self) -> WatchReport:
        """Send a test alert to each target. Nothing is checked or stored."""
        now = self._clock.now()
        alert = OpenAlert("test", "", "warning", now, now)
        url = redact_text(redact_address(source_of(self._source)))
        health = Health(url, (TEST_FINDING,), (), None, now)
        changes = (AlertChange("new", alert, TEST_FINDING),)
        revision = f"test-{now.timestamp():.6f}"
        targets = [self._send(each, health, changes, now, revision) for each in self._channels]
        return WatchReport(health, tuple(targets), now, True)

    def close(self) -> None:
        """Close the connections to the targets."""
        with ExitStack() as stack:
            for channel in self._channels:
                stack.enter_context(closing(channel.sender))

    def _tell_all(self, health: Health, ledger: Ledger | None) -> WatchReport:
        """Tell each target about changes. Without a ledger, only this process remembers them."""
        at = health.now or self._clock.now()
        targets = tuple(self._tell(channel, health, ledger, at) for channel in self._channels)
        return WatchReport(health, targets, at, ledger is not None)

    def _tell(
        self, channel: _Channel, health: Health, ledger: Ledger | None, now: datetime
    ) -> TargetReport:
        minimum = self._options.severity
        findings = [each for each in health.findings if minimum in ("warning", each.severity)]
        if ledger is None:
            return self._update(channel, health, findings, channel.memory, now)
        report = self._update(channel, health, (), channel.memory, now)
        if report.delivery == "failed":
            return report
        state = LedgerState(ledger, channel.sender.target.target_id)
        stored = self._update(channel, health, findings, state, now)
        is_sent = report.delivery == "sent" and stored.delivery == "unchanged"
        delivery: Delivery = "sent" if is_sent else stored.delivery
        return replace(stored, delivery=delivery, changes=(*report.changes, *stored.changes))

    def _update(
        self,
        channel: _Channel,
        health: Health,
        findings: Sequence[Finding],
        state: AlertState,
        now: datetime,
    ) -> TargetReport:
        stored = state.read()
        plan = plan_alerts(stored.alerts, findings, now, self.repeat)
        report = TargetReport(str(channel.sender.target), "unchanged")
        if not plan.changes and plan.if_sent == stored.alerts:
            return report
        claimed = state.claim(stored)
        if claimed is None:
            return replace(report, delivery="busy")
        if plan.changes:
            revision = f"{claimed.revision}-{_digest(plan.changes)}"
            report = self._send(channel, health, plan.changes, now, revision)
        if report.delivery == "failed":
            state.save(claimed._replace(alerts=plan.if_unsent))
        else:
            revision_after = claimed.revision + bool(plan.changes)
            state.save(claimed._replace(alerts=plan.if_sent, revision=revision_after))
        return report

    def _send(
        self,
        channel: _Channel,
        health: Health,
        changes: tuple[AlertChange, ...],
        now: datetime,
        revision: str,
    ) -> TargetReport:
        problem = channel.sender.send(AlertNotice(health, changes, now, self._complete), revision)
        delivery: Delivery = "sent" if problem is None else "failed"
        return TargetReport(str(channel.sender.target), delivery, changes, problem)


@dataclass(frozen=True, slots=True)
class _Channel:
    """A target, and what this process told it while the ledger could not be used."""

    sender: AlertSender
    memory: MemoryState


def _digest(changes: Sequence[AlertChange]) -> str:
    """Return a short text that is the same for the same changes."""
    facts = [(each.change, each.alert.name, each.alert.subject) for each in changes]
    return sha256(repr(facts).encode()).hexdigest()[:8]


def _failed_check(problem: Exception, source: str) -> Health:
    """Return the finding about a check that failed. Nothing else is known."""
    reason = str(problem).strip().partition("\n")[0].partition("; ")[0]
    if not isinstance(problem, LedgerError):
        reason = f"{type(problem).__name__}: {reason}"
    says = f"Ledger: the check failed ({redact_text(reason)})"
    finding = Finding("check failed", "critical", says, 1, None, "redrive doctor")
    return Health(redact_text(redact_address(source)), (finding,), (), None, None)
