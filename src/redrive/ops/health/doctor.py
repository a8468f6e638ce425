"""Doctor: checks everything that can go wrong with a ledger. A check changes nothing.

`HealthOperations` also repairs what workers repair by themselves, and the counters.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from ...app.ledger_opener import VARIABLE
from ...core.clock import SYSTEM, Clock
from ...core.text import format_duration, pluralise
from ...errors import SchemaMismatch
from ...journal.redaction import redact_text
from ...ledger.db import secret_names
from ...ledger.db.tables import hidden_name
from ...ledger.ledger import Ledger
from ...ledger.queries import overview as queries
from ..audit import read_anchors, verify_chain
from ..context import QUIET, OperatorContext
from ..ledger import status
from ..overview.overview import overview
from ..project.settings import known
from ..project.target import Operated, command_for, extractions, ledger_of, open_target, source_of
from ..workers import missing_worker
from . import partitions
from .overview_rules import GRACE, Finding, Health, OverviewFinding

Reported: TypeAlias = Sequence[OverviewFinding]
"""Problems that the overview reports, which are not reported twice."""
SKEW_SECONDS = 2.0
CRITICAL_SKEW_SECONDS = 60.0
"""Difference of two clocks."""
MIN_GROWTH = 10
"""New dead letters in the last hour that are reported, if they are also twice the hourly average
before."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def examine(source: str | None = None, /, *, quiet: float = QUIET, clock: Clock = SYSTEM) -> Health:
    """Open a ledger and check it. A schema of another version is a finding.

    Raises:
        LedgerError: The ledger cannot be reached.
    """
    try:
        with open_target(source, app_first=True) as app:
            return diagnose(app, quiet=quiet, clock=clock)
    except SchemaMismatch as mismatch:
        return schema_health(mismatch, source)


def schema_health(mismatch: SchemaMismatch, source: str | None, /) -> Health:
    """Return the finding about a schema of another version. Nothing else could be checked."""
    finding = _schema_finding(mismatch, _explicit_source(source))
    return Health(redact_text(source_of(source)), (finding,), ("schema",), None, None)


def diagnose(app: Operated, /, *, quiet: float = QUIET, clock: Clock = SYSTEM) -> Health:
    """Check an open ledger whose schema is current, and the raw data of its app."""
    ledger = ledger_of(app)
    reported = overview(ledger, quiet=quiet).findings
    names = {finding.name for finding in reported}
    findings: list[Finding] = [*reported]
    for check in CHECKS.values():
        findings += (each for each in check(ledger, clock, reported) if each.name not in names)
    findings += partitions.check_raw_data(app)
    findings.sort(key=lambda finding: finding.severity)  # "critical" sorts before "warning".
    state = status(ledger)
    return Health(
        url=state.url,
        findings=tuple(findings),
        checked=("schema", *OF_OVERVIEW, *CHECKS, *(("raw data",) if extractions(app) else ())),
        balance=state.sentence,
        now=state.now,
        no_worker=missing_worker(ledger, quiet=quiet),
    )


def _explicit_source(source: str | None) -> str | None:
    """Return the ledger that a printed command must name. None: the command finds it by itself."""
    return source or (None if VARIABLE in os.environ else known().app)


def _schema_finding(mismatch: SchemaMismatch, source: str | None) -> Finding:
    says = redact_text(str(mismatch).partition("; ")[0])  # The fix has its own field.
    if mismatch.wanted is None:
        fix = "pass the address of another database; these tables belong to another program"
        return Finding("schema", "critical", says, 1, None, fix, False)
    if mismatch.found is None or mismatch.found < mismatch.wanted:
        migrate = "redrive ledger migrate"
        fix = migrate if source is None else command_for(migrate, source)
        return Finding("schema", "critical", says, 1, None, fix)
    # Not a command, because the place to install from differs (an index, a wheel, a clone).
    fix = "install the version of Redrive that migrated this ledger, or a newer one"
    return Finding("schema", "critical", says, 1, None, fix, False)


def _check_access(ledger: Ledger, _clock: Clock, _reported: Reported) -> Iterator[Finding]:
    if not ledger.connections.on_sqlite:
        yield from _check_grants(ledger)
        return
    file = ledger.connections.address.target
    if not file or os.name != "posix":
        return
    files = [file + suffix for suffix in ("", "-wal", "-shm")]
    readable = [name for name in files if os.path.exists(name) and os.stat(name).st_mode & 0o077]  # noqa: PTH110, PTH116
    if readable:
        problem = "other accounts on this machine can read it, payloads included"
        says = f"Ledger file: {problem} ({', '.join(readable)})"
        fix = " ".join(["chmod 600", *map(shlex.quote, readable)])
        yield Finding("file mode", "warning", says, len(readable), None, fix, False)


def _check_grants(ledger: Ledger) -> Iterator[Finding]:
    with ledger.reading() as connection:
        roles = secret_names.roles_without(connection)
    if roles:
        table = hidden_name.name
        says = (
            f"{', '.join(roles)} may read jobs but not {table}: programs with "
            f"{'this role' if len(roles) == 1 else 'these roles'} show secret fields that other "
            "programs "
            "declare by App(secrets=...)"
        )
        fix = f"GRANT SELECT, INSERT ON {table} TO {', '.join(roles)}"
        yield Finding("grants", "warning", says, len(roles), None, fix, False)


def _check_keys(ledger: Ledger, _clock: Clock, _reported: Reported) -> Iterator[Finding]:
    before = ledger.now() - timedelta(seconds=GRACE)
    with ledger.reading() as connection:
        wedged, first = queries.stuck_keys(connection, before)
    if wedged.many:
        names = ", ".join(first) + (", …" if wedged.many > len(first) else "")
        held = pluralise(
            wedged.many, "is held by a crashed process", "are held by crashed processes"
        )
        says = f"Idempotency records: {held} ({names}); the next caller takes over"
        fix = "redrive keys list --abandoned"
        if wedged.many == 1:
            fix = f'redrive keys release "{first[0]}" --because "..."'
        yield Finding("wedged keys", "warning", says, wedged.many, wedged.since, fix)


def _check_balance(ledger: Ledger, _clock: Clock, _reported: Reported) -> Iterator[Finding]:
    wrong = ledger.imbalance()
    if wrong:
        says = f"Counts: they do not match the rows ({'; '.join(wrong)})"
        fix = 'redrive ledger recount --because "..."'
        yield Finding("balance", "critical", says, len(wrong), None, fix)


def _check_clock(ledger: Ledger, clock: Clock, _reported: Reported) -> Iterator[Finding]:
    # The database answered between the two readings. Only a difference to both is certain.
    before = clock.now()
    of_database = ledger.now()
    after = clock.now()
    behind, ahead = (before - of_database).total_seconds(), (of_database - after).total_seconds()
    skew = max(behind, ahead)
    if skew >= SKEW_SECONDS:
        direction = "behind" if of_database < before else "ahead of"
        difference = f"the database is {format_duration(round(skew, 1))} {direction} this machine"
        says = f"Clock: {difference}; times passed from here are off by as much"
        is_critical = skew >= CRITICAL_SKEW_SECONDS
        fix = "timedatectl set-ntp true"
        yield Finding("clock skew", "critical" if is_critical else "warning", says, 1, None, fix)


def _check_dead_letters(ledger: Ledger, _clock: Clock, reported: Reported) -> Iterator[Finding]:
    growing = {finding.kind for finding in reported if finding.name == "dead letters growing"}
    now: datetime = ledger.now()
    with ledger.reading() as connection:
        fresh = queries.deaths_by_kind(connection, now - HOUR, now + HOUR)
        before = queries.deaths_by_kind(connection, now - HOUR - DAY, now - HOUR)
        undecided = queries.undecided_dead_letters(connection)
    waiting = f"{sum(count.many for count in undecided.values()):,} waiting for a decision"
    undecided = {kind: count for kind, count in undecided.items() if kind not in growing}
    last_hour, hourly = sum(fresh.values()), sum(before.values()) / 24
    pending = sum(count.many for count in undecided.values())
    if growing:  # Another finding has the other job types.
        waiting += f" in total, {pending:,} of them of other job types"
    if not growing and last_hour >= MIN_GROWTH and last_hour > 2 * hourly:
        kinds = f"{_largest(fresh)}; average before: {hourly:.3g}/h"
        says = f"Dead letters: {last_hour:,} new in the last hour ({kinds}); {waiting}"
        fix = "redrive dead list --status all --since 1h"
        yield Finding("dead letters growing", "warning", says, last_hour, None, fix)
    elif pending:
        kinds = _largest({kind: count.many for kind, count in undecided.items()})
        oldest = min(count.since for count in undecided.values() if count.since is not None)
        says = f"Dead letters: {waiting} ({kinds})"
        yield Finding("dead letters pending", "warning", says, pending, oldest, "redrive dead list")


def _check_audit(ledger: Ledger, _clock: Clock, _reported: Reported) -> Iterator[Finding]:
    file = known().worker.anchors
    try:
        anchors = [] if file is None else read_anchors(file)
    except (OSError, ValueError) as wrong:
        says = f"Audit log: the anchors in {file} cannot be read ({type(wrong).__name__})"
        fix = f"grant this account read access to {file}"
        yield Finding("audit", "warning", says, 1, None, fix, False)
        anchors = []
    chain = verify_chain(ledger, anchors)
    if not chain.holds:
        says = f"Audit log: entry {chain.broken} was changed ({chain.problem})"
        fix = (
            "compare with a backup; `redrive audit verify` prints the first changed entry. After a "
            "failover or restore that lost entries, move the file of anchors away"
            if anchors
            else "compare with a backup; `redrive audit verify` prints the first changed entry"
        )
        yield Finding("audit", "critical", says, 1, None, fix, False)


OF_OVERVIEW = ("leases", "workers", "parked", "pauses", "sources", "sweeps", "items")
"""Checks that the overview makes, so that both report the same problems."""
CHECKS: dict[str, Callable[[Ledger, Clock, Reported], Iterator[Finding]]] = {
    "keys": _check_keys,
    "balance": _check_balance,
    "clock": _check_clock,
    "dead letters": _check_dead_letters,
    "partitions": lambda ledger, _clock, _reported: partitions.check_ledger(ledger),
    "audit": _check_audit,
    "file mode": _check_access,
}


def _largest(counts: Mapping[str, int]) -> str:
    largest = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{count:,} {kind}" for kind, count in largest[:3]) + (
        ", …" if len(largest) > 3 else ""
    )


@dataclass(frozen=True, slots=True)
class HealthOperations:
    """Operations on the health of a ledger, as `Operator.health`. Threads may share one."""

    _context: OperatorContext

    def check(self, *, quiet: float = QUIET) -> Health:
        """Check the health of the ledger.

        Args:
            quiet: Seconds without a heartbeat after which a worker counts as offline.

        Returns:
            The problems that were found.
        """
        return diagnose(self._context.app, quiet=quiet)

    def reap(self) -> list[int]:
        """Take back expired leases. Workers do this regularly.

        Returns:
            The ids of the jobs.
        """
        ids: list[int] = []
        while page := self._context.ledger.reap():
            ids += page
        return ids

    def recount(self, *, because: str) -> dict[str, dict[str, int]]:
        """Correct the counters from the rows.

        Args:
            because: Why, for the audit log.

        Returns:
            The corrections by job type.
        """
        return self._context.ledger.recount(actor=self._context.actor, because=because)
