"""The doctor: looks at everything that can go wrong with a ledger. Changes nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from ...app.ledger_opener import VARIABLE
from ...core.clock import SYSTEM, Clock
from ...core.text import format_duration, pluralise
from ...errors import SchemaMismatch
from ...journal.redaction import redact_text
from .. import audit
from ..defaults import QUIET
from ..ledger import status
from ..overview.overview import overview
from ..partitions.datasets import extractions
from ..settings import known
from ..target.target import Operated, command_for, ledger_of, operated, source_of
from . import partitions
from . import raw as raw_health
from .finding import Finding, Health
from .overview_rules import GRACE, Trouble
from .presence import missing

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger

Reported: TypeAlias = Sequence[Trouble]
"""Problems that the overview reports, which are not reported twice."""
SKEW = 2.0
GROSS_SKEW = 60.0
"""Seconds that two clocks may be apart."""
GROWTH = 10
"""Dead letters in the last hour that are worth a word, if they also are twice as many as in an hour of the day before."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def examined(source: str | None = None, /, *, quiet: float = QUIET, clock: Clock = SYSTEM) -> Health:
    """Open the ledger and look. LedgerError where it cannot be reached; a schema that is not this code's is a finding."""
    try:
        with operated(source, app_first=True) as app:
            return diagnosed(app, quiet=quiet, clock=clock)
    except SchemaMismatch as other:
        return Health(redact_text(source_of(source)), (_schema(other, _named(source)),), ("schema",), None, None)


def diagnosed(app: Operated, /, *, quiet: float = QUIET, clock: Clock = SYSTEM) -> Health:
    """Problems of an open ledger, whose schema is right, and of an app's raw data: those of the overview, and more."""
    ledger = ledger_of(app)
    reported = overview(ledger, quiet=quiet).findings
    found: list[Finding] = [*reported]
    names = {one.name for one in reported}
    for check in CHECKS.values():
        found += (one for one in check(ledger, clock, reported) if one.name not in names)
    found += partitions.lost(app)
    found += raw_health.orphans(app)
    found.sort(key=lambda one: one.severity)  # critical before warning, by their letters too
    now = status(ledger)
    raw = ("raw data",) if extractions(app) else ()
    checked = ("schema", *OF_OVERVIEW, *CHECKS, *raw)
    return Health(now.url, tuple(found), checked, now.sentence, now.now, missing(ledger, quiet=quiet))


def _named(source: str | None) -> str | None:
    """What a command must name to reach the same ledger; None: it finds it by itself."""
    return source or (None if VARIABLE in os.environ else known().app)


def _schema(other: SchemaMismatch, named: str | None) -> Finding:
    says = redact_text(str(other).partition("; ")[0])  # the fix follows in a field of its own
    if other.wanted is None:
        mend = "pass the address of another database; these tables belong to another program"
        return Finding("schema", "critical", says, 1, None, mend, False)
    if other.found is None or other.found < other.wanted:
        migrate = "redrive ledger migrate"
        return Finding("schema", "critical", says, 1, None, migrate if named is None else command_for(migrate, named))
    # Not a command: where to install from differs (an index, a wheel, a clone).
    mend = "install the version of Redrive that migrated this ledger, or a newer one"
    return Finding("schema", "critical", says, 1, None, mend, False)


def _access(ledger: Ledger, _clock: Clock, _reported: Reported) -> Iterator[Finding]:
    file = ledger.connections.address.target
    if not ledger.connections.on_sqlite:
        yield from _grants(ledger)
        return
    if not file:
        return
    wide = [name for end in ("", "-wal", "-shm") if os.path.exists(name := file + end) and os.stat(name).st_mode & 0o077]  # noqa: PTH110, PTH116
    if wide and os.name == "posix":
        says = f"Ledger file: other accounts on this machine can read it, payloads included ({', '.join(wide)})"
        mend = " ".join(["chmod 600", *map(shlex.quote, wide)])
        yield Finding("file mode", "warning", says, len(wide), None, mend, False)


def _grants(ledger: Ledger) -> Iterator[Finding]:
    from ...ledger.db import secret_names  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ...ledger.db.tables import hidden_name  # noqa: PLC0415  # the same

    with ledger.reading() as connection:
        roles = secret_names.roles_without(connection)
    if roles:
        table = hidden_name.name
        says = (
            f"{', '.join(roles)} may read jobs but not {table}: programs with "
            f"{'this role' if len(roles) == 1 else 'these roles'} show secret fields that other programs declare by "
            "App(secrets=...)"
        )
        grant = f"GRANT SELECT, INSERT ON {table} TO {', '.join(roles)}"
        yield Finding("grants", "warning", says, len(roles), None, grant, False)


def _keys(ledger: Ledger, _clock: Clock, _reported: Reported) -> Iterator[Finding]:
    from ...ledger.queries import overview as stored  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    before = ledger.now() - timedelta(seconds=GRACE)
    with ledger.reading() as connection:
        wedged, first = stored.stuck_keys(connection, before)
    if wedged.many:
        named = ", ".join(first) + (", …" if wedged.many > len(first) else "")
        held = pluralise(wedged.many, "is held by a crashed process", "are held by crashed processes")
        says = f"Idempotency records: {held} ({named}); the next caller takes over"
        mend = f'redrive keys release "{first[0]}" --because "..."' if wedged.many == 1 else "redrive keys list --abandoned"
        yield Finding("wedged keys", "warning", says, wedged.many, wedged.since, mend)


def _balance(ledger: Ledger, _clock: Clock, _reported: Reported) -> Iterator[Finding]:
    wrong = ledger.imbalance()
    if wrong:
        says = f"Counts: they do not match the rows ({'; '.join(wrong)})"
        mend = 'redrive ledger recount --because "..."'
        yield Finding("balance", "critical", says, len(wrong), None, mend)


def _skew(ledger: Ledger, clock: Clock, _reported: Reported) -> Iterator[Finding]:
    # The database answered at some moment in between: only what is beyond both ends is certain.
    before = clock.now()
    theirs = ledger.now()
    after = clock.now()
    apart = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    if apart >= SKEW:
        way = "behind" if theirs < before else "ahead of"
        skew = format_duration(round(apart, 1))
        says = f"Clock: the database is {skew} {way} this machine; times passed from here are off by as much"
        yield Finding("clock skew", "critical" if apart >= GROSS_SKEW else "warning", says, 1, None, "timedatectl set-ntp true")


def _growth(ledger: Ledger, _clock: Clock, reported: Reported) -> Iterator[Finding]:
    from ...ledger.queries import overview as stored  # noqa: PLC0415  # the same

    growing = {one.kind for one in reported if one.name == "dead letters growing"}
    now: datetime = ledger.now()
    with ledger.reading() as connection:
        fresh = stored.deaths_by_kind(connection, now - HOUR, now + HOUR)
        before = stored.deaths_by_kind(connection, now - HOUR - DAY, now - HOUR)
        undecided = {kind: each for kind, each in stored.undecided_dead_letters(connection).items() if kind not in growing}
    last, hourly = sum(fresh.values()), sum(before.values()) / 24
    pending = sum(each.many for each in undecided.values())
    waits = f"{pending:,} waiting for a decision"
    if not growing and last >= GROWTH and last > 2 * hourly:
        says = f"Dead letters: {last:,} new in the last hour ({_counted(fresh)}; average before: {hourly:.3g}/h); {waits}"
        yield Finding("dead letters growing", "warning", says, last, None, "redrive dead list --since 1h")
    elif pending:
        says = f"Dead letters: {waits} ({_counted({kind: each.many for kind, each in undecided.items()})})"
        oldest = min(each.since for each in undecided.values() if each.since is not None)
        yield Finding("dead letters pending", "warning", says, pending, oldest, "redrive dead list")


def _partitions(ledger: Ledger, _clock: Clock, _reported: Reported) -> Iterator[Finding]:
    yield from partitions.rollups(ledger)
    yield from partitions.paused(ledger)
    yield from partitions.leases(ledger)
    yield from partitions.given_up(ledger)


def _audit(ledger: Ledger, _clock: Clock, _reported: Reported) -> Iterator[Finding]:
    file = known().worker.anchors
    try:
        anchors = [] if file is None else audit.anchors_in(file)
    except (OSError, ValueError) as wrong:
        says = f"Audit log: the anchors in {file} cannot be read ({type(wrong).__name__})"
        yield Finding("audit", "warning", says, 1, None, f"grant this account read access to {file}", False)
        anchors = []
    chain = audit.verified(ledger, None, *anchors)
    if not chain.holds:
        says = f"Audit log: entry {chain.broken} was changed ({chain.problem})"
        mend = "compare with a backup; `redrive audit verify` prints the first changed entry"
        yield Finding("audit", "critical", says, 1, None, mend, False)


OF_OVERVIEW = ("leases", "workers", "parked", "sources", "items")
"""Checks that the overview makes, so that both report the same problems."""
CHECKS: dict[str, Callable[[Ledger, Clock, Reported], Iterator[Finding]]] = {
    "keys": _keys,
    "balance": _balance,
    "clock": _skew,
    "dead letters": _growth,
    "partitions": _partitions,
    "audit": _audit,
    "file mode": _access,
}


def _counted(counts: dict[str, int]) -> str:
    most = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{count:,} {kind}" for kind, count in most[:3]) + (", …" if len(most) > 3 else "")
