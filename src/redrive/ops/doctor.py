"""The doctor: looks at everything that can go wrong with a ledger. Changes nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..app.ledgered import VARIABLE
from ..core.amount import amount
from ..core.clock import SYSTEM, Clock
from ..core.span import span
from ..errors import SchemaMismatch
from ..journal.redaction import redacted_text
from . import audit, partition_health, raw_health
from .datasets import extractions
from .defaults import QUIET
from .finding import Finding, Health
from .ledger import status
from .presence import missing
from .settings import known
from .source import Operated, command_for, ledger_of, operated, source_of

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..ledger.overview import Some
    from ..ledger.workers import Worker

GRACE = 60.0
"""Seconds for which what is overdue may be so: workers look now and then."""
SKEW = 2.0
GROSS_SKEW = 60.0
"""Seconds that two clocks may be apart."""
UNREAD = "check the server, and its address and credentials in the app"
GROWTH = 10
"""Dead letters in the last hour that are worth a word, if they also are twice as many as in an hour of the day before."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def examined(source: str | None = None, /, *, quiet: float = QUIET, clock: Clock = SYSTEM) -> Health:
    """Open the ledger and look. LedgerError where it cannot be reached; a schema that is not this code's is a finding."""
    try:
        with operated(source, app_first=True) as app:
            return diagnosed(app, quiet=quiet, clock=clock)
    except SchemaMismatch as other:
        return Health(redacted_text(source_of(source)), (_schema(other, _named(source)),), ("schema",), None, None)


def diagnosed(app: Operated, /, *, quiet: float = QUIET, clock: Clock = SYSTEM) -> Health:
    """Problems of an open ledger, whose schema is right, and of an app's raw data."""
    found: list[Finding] = []
    ledger = ledger_of(app)
    for check in CHECKS.values():
        found += check(ledger, quiet, clock)
    found += partition_health.lost(app)
    found += raw_health.orphans(app)
    found.sort(key=lambda one: one.severity)  # critical before warning, by their letters too
    now = status(ledger)
    raw = ("raw data",) if extractions(app) else ()
    checked = ("schema", *CHECKS, *raw)
    return Health(now.url, tuple(found), checked, now.sentence, now.now, missing(ledger, quiet=quiet))


def _named(source: str | None) -> str | None:
    """What a command must name to reach the same ledger; None: it finds it by itself."""
    return source or (None if VARIABLE in os.environ else known().app)


def _schema(other: SchemaMismatch, named: str | None) -> Finding:
    says = redacted_text(str(other).partition(": bring")[0].partition(": make")[0].partition(": install")[0])
    if other.wanted is None:
        mend = "pass the address of another database; these tables belong to another program"
        return Finding("schema", "critical", says, 1, None, mend, False)
    if other.found is None or other.found < other.wanted:
        migrate = "redrive ledger migrate"
        return Finding("schema", "critical", says, 1, None, migrate if named is None else command_for(migrate, named))
    return Finding("schema", "critical", says, 1, None, "pip install --upgrade redrive")


def _leases(ledger: Ledger, _quiet: float, _clock: Clock) -> Iterator[Finding]:
    from ..ledger import overview  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    before = ledger.now() - timedelta(seconds=GRACE)
    with ledger.reading() as connection:
        expired = overview.expired(connection, before)
    if expired.many:
        says = f"Leases: {expired.many:,} expired and not recovered; no worker is checking this ledger"
        yield Finding("dangling leases", "critical", says, expired.many, expired.since, "redrive ledger reap")


def _access(ledger: Ledger, _quiet: float, _clock: Clock) -> Iterator[Finding]:
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
    from ..ledger import hidden  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open
    from ..ledger.tables import hidden_name  # noqa: PLC0415  # the same

    with ledger.reading() as connection:
        roles = hidden.roles_without(connection)
    if roles:
        table = hidden_name.name
        says = (
            f"{', '.join(roles)} may read jobs but not {table}: programs with "
            f"{'this role' if len(roles) == 1 else 'these roles'} show secret fields that other programs declare by "
            "App(secrets=...)"
        )
        grant = f"GRANT SELECT, INSERT ON {table} TO {', '.join(roles)}"
        yield Finding("grants", "warning", says, len(roles), None, grant, False)


def _keys(ledger: Ledger, _quiet: float, _clock: Clock) -> Iterator[Finding]:
    from ..ledger import overview  # noqa: PLC0415  # the same

    before = ledger.now() - timedelta(seconds=GRACE)
    with ledger.reading() as connection:
        wedged, first = overview.wedged(connection, before)
    if wedged.many:
        named = ", ".join(first) + (", …" if wedged.many > len(first) else "")
        held = amount(wedged.many, "is held by a crashed process", "are held by crashed processes")
        says = f"Idempotency records: {held} ({named}); the next caller takes over"
        mend = f'redrive keys release "{first[0]}" --because "..."' if wedged.many == 1 else "redrive keys list --abandoned"
        yield Finding("wedged keys", "warning", says, wedged.many, wedged.since, mend)


def _balance(ledger: Ledger, _quiet: float, _clock: Clock) -> Iterator[Finding]:
    wrong = ledger.imbalance()
    if wrong:
        says = f"Counts: they do not match the rows ({'; '.join(wrong)})"
        mend = 'redrive ledger recount --because "..."'
        yield Finding("balance", "critical", says, len(wrong), None, mend)


def _skew(ledger: Ledger, _quiet: float, clock: Clock) -> Iterator[Finding]:
    # The database answered at some moment in between: only what is beyond both ends is certain.
    before = clock.now()
    theirs = ledger.now()
    after = clock.now()
    apart = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    if apart >= SKEW:
        way = "behind" if theirs < before else "ahead of"
        says = f"Clock: the database is {span(round(apart, 1))} {way} this machine; times passed from here are off by as much"
        yield Finding("clock skew", "critical" if apart >= GROSS_SKEW else "warning", says, 1, None, "timedatectl set-ntp true")


def _workers(ledger: Ledger, quiet: float, _clock: Clock) -> Iterator[Finding]:
    from ..ledger import overview  # noqa: PLC0415  # the same

    now = ledger.now()
    since = now - timedelta(seconds=quiet)
    alive = [one for one in ledger.workers() if one.ended_at is None and one.seen_at >= since]
    with ledger.reading() as connection:
        waiting = overview.overdue(connection, since)
    if alive:
        yield from _unknown(alive, waiting)
    elif waiting:
        jobs = sum(each.many for each in waiting.values())
        seen = max((one.seen_at for one in ledger.workers()), default=None)
        last = "none seen so far" if seen is None else f"last seen {span(round((now - seen).total_seconds()))} ago"
        due = f"{amount(jobs, 'job is', 'jobs are')} due ({_counted({kind: each.many for kind, each in waiting.items()})})"
        says = f"Workers: none online ({last}), but {due}"
        oldest = min(each.since for each in waiting.values() if each.since is not None)
        yield Finding("no workers", "critical", says, jobs, oldest, "redrive work module:app", False)


def _unknown(alive: list[Worker], waiting: Mapping[str, Some]) -> Iterator[Finding]:
    """Job types that no online worker has registered: renamed, removed, or their worker is not running."""
    if any("kinds" not in one.info for one in alive):
        return  # this worker does not report its job types
    known = {kind for one in alive for kind in one.info["kinds"]}
    left = {kind: each for kind, each in waiting.items() if kind not in known}
    if left:
        jobs = sum(each.many for each in left.values())
        due = f"{amount(jobs, 'job is', 'jobs are')} due ({_counted({kind: each.many for kind, each in left.items()})})"
        says = f"Job types: {due} of a type that no online worker has registered; they are kept and not run"
        oldest = min(each.since for each in left.values() if each.since is not None)
        mend = "start a worker whose app registers this job type, or restore the old name of the command"
        yield Finding("unregistered", "warning", says, jobs, oldest, mend, False)


def _parked(ledger: Ledger, _quiet: float, _clock: Clock) -> Iterator[Finding]:
    from ..ledger import kinds, overview  # noqa: PLC0415  # the same

    now = ledger.now()
    with ledger.connections.read.use() as session:
        parked = kinds.parked(session)
    if not parked:
        return
    with ledger.reading() as connection:
        waiting = overview.overdue(connection, now)
    for name, one in parked.items():
        jobs = waiting[name].many if name in waiting else 0
        since = span(round((now - one.since).total_seconds()))
        says = (
            f"{name}: paused after an outage for {since}, {amount(jobs, 'job')} due ({one.reason}); "
            f"probed {amount(one.probes, 'time')}, the first success resumes it"
        )
        yield Finding("parked", "warning", says, jobs, one.since, "restore the service that these jobs call", False)


def _growth(ledger: Ledger, _quiet: float, _clock: Clock) -> Iterator[Finding]:
    from ..ledger import overview  # noqa: PLC0415  # the same

    now: datetime = ledger.now()
    with ledger.reading() as connection:
        fresh = overview.died(connection, now - HOUR, now + HOUR)
        before = overview.died(connection, now - HOUR - DAY, now - HOUR)
        undecided = overview.undecided(connection)
    last, hourly = sum(fresh.values()), sum(before.values()) / 24
    pending = sum(each.many for each in undecided.values())
    waits = f"{pending:,} waiting for a decision"
    if last >= GROWTH and last > 2 * hourly:
        says = f"Dead letters: {last:,} new in the last hour ({_counted(fresh)}; average before: {hourly:.3g}/h); {waits}"
        yield Finding("dead letters growing", "warning", says, last, None, "redrive dead list --since 1h")
    elif pending:
        says = f"Dead letters: {waits} ({_counted({kind: each.many for kind, each in undecided.items()})})"
        oldest = min(each.since for each in undecided.values() if each.since is not None)
        yield Finding("dead letters pending", "warning", says, pending, oldest, "redrive dead list")


def _sources(ledger: Ledger, quiet: float, _clock: Clock) -> Iterator[Finding]:
    since = ledger.now() - timedelta(seconds=quiet)
    alive = [one for one in ledger.workers() if one.ended_at is None and one.seen_at >= since]
    for chore, (why, names) in failing(alive).items():
        says = f"Workers: {amount(len(names), 'worker')} cannot {chore} ({names[0]}: {why})"
        name = "source failing" if chore.startswith("read ") else "task failing"
        yield Finding(name, "critical", says, len(names), None, UNREAD, False)


def failing(alive: Iterable[Worker], /) -> dict[str, tuple[str, list[str]]]:
    """What living workers cannot do beside jobs, such as to read a source: the error, and the workers."""
    found: dict[str, tuple[str, list[str]]] = {}
    for one in alive:
        for chore, why in one.info.get("failing", {}).items():
            found.setdefault(chore, (why, []))[1].append(one.name)
    return found


def _giveups(ledger: Ledger, _quiet: float, _clock: Clock) -> Iterator[Finding]:
    from ..batch.standing import recent  # noqa: PLC0415  # the same

    since = ledger.now() - HOUR
    with ledger.reading() as connection:
        fresh = recent(connection, since)
    many = sum(fresh.values())
    if many >= GROWTH:
        says = f"Batch items: {many:,} gave up in the last hour ({_counted(fresh)}); check the items and the receiving service"
        yield Finding("items given up", "warning", says, many, None, "redrive batch giveups --since 1h")


def _partitions(ledger: Ledger, _quiet: float, _clock: Clock) -> Iterator[Finding]:
    yield from partition_health.rollups(ledger)
    yield from partition_health.paused(ledger)
    yield from partition_health.leases(ledger)
    yield from partition_health.given_up(ledger)


def _audit(ledger: Ledger, _quiet: float, _clock: Clock) -> Iterator[Finding]:
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


CHECKS: dict[str, Callable[[Ledger, float, Clock], Iterator[Finding]]] = {
    "leases": _leases,
    "keys": _keys,
    "balance": _balance,
    "clock": _skew,
    "workers": _workers,
    "parked": _parked,
    "sources": _sources,
    "dead letters": _growth,
    "items": _giveups,
    "partitions": _partitions,
    "audit": _audit,
    "file mode": _access,
}


def _counted(counts: dict[str, int]) -> str:
    most = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{count:,} {kind}" for kind, count in most[:3]) + (", …" if len(most) > 3 else "")
