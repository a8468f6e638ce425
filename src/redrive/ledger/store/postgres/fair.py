"""Fair claims on Postgres: the tenants of a job type take turns.

A skip scan over the index of tenants finds the next tenants with due jobs, from a cursor on. Each
of them gets an equal share of the claim. All of it is one statement. Limits of tenants need two:
the scan, and a claim with a share for each tenant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Integer, Text, cast, literal_column, null

from ...db.compiled import Runner, int_array, text_array
from ...model import PRIORITIES, QUARANTINE, Lease, Settlement
from ..protocol import (
    BELOW_ALL_PRIORITIES,
    ClaimOptions,
    DueTenants,
    max_scanned_tenants,
    max_tenants,
)
from .claim import TurnRows, build_turn, read_turn, turn_parameters

_IS_OF_KIND = "j.state = 0 AND j.kind = %(of_kind)s"
_PRIORITY = "(SELECT priority FROM level)"
# Backwards from now: the entries of claimed jobs stay at the front of the index until a vacuum.
_LEVEL = f"""level AS MATERIALIZED (
SELECT p.priority FROM (VALUES {", ".join(f"({each})" for each in PRIORITIES)}) AS p (priority)
WHERE p.priority > CAST(%(beyond)s AS integer)
AND (SELECT true FROM redrive_job AS j WHERE {_IS_OF_KIND} AND j.priority = p.priority
AND j.due_at <= now() ORDER BY j.due_at DESC, j.id DESC LIMIT 1)
ORDER BY p.priority LIMIT 1)"""  # noqa: S608
"""The most urgent priority with due jobs. A claim shares out one priority."""


def _next_tenant(after: str, until: str) -> str:
    return f"""LATERAL (SELECT j.tenant, CAST(j.due_at <= now()
AND j.tenant <> ALL (CAST(%(excluded)s AS text[])) AS integer) AS due
FROM redrive_job AS j WHERE {_IS_OF_KIND} AND j.tenant IS NOT NULL
AND j.priority = {_PRIORITY} AND j.tenant > {after} {until}
ORDER BY j.tenant, j.due_at, j.id LIMIT 1) AS n"""  # noqa: S608


def _walk(name: str, after: str, until: str, condition: str) -> str:
    """Return a skip scan: one row for each tenant, and how many of them have due jobs so far."""
    return f"""{name} (tenant, due, step, dues) AS (
SELECT n.tenant, n.due, 1, n.due FROM level CROSS JOIN {_next_tenant(after, until)}
WHERE {condition}
UNION ALL
SELECT n.tenant, n.due, w.step + 1, w.dues + n.due
FROM {name} AS w CROSS JOIN {_next_tenant("w.tenant", until)}
WHERE w.step < CAST(%(max_steps)s AS integer) AND w.dues < CAST(%(max_tenants)s AS integer))"""  # noqa: S608


_WALK = _walk("walk", "%(cursor)s", "", "true")
# From the first tenant to the cursor, if those after the cursor are too few.
_AGAIN = _walk(
    "again",
    "''",
    "AND j.tenant <= %(cursor)s",
    "(SELECT coalesce(max(dues), 0) FROM walk) < CAST(%(max_tenants)s AS integer)",
)
_WALKED = """walked AS MATERIALIZED (SELECT tenant, due, step FROM walk
UNION ALL SELECT tenant, due, step + CAST(%(max_steps)s AS integer) FROM again)"""
_SCAN = f"{_LEVEL}, {_WALK}, {_AGAIN}, {_WALKED}"
_SHARE = (
    "(SELECT CAST(ceil(CAST(%(most)s AS integer) / greatest(1.0, sum(due))) AS bigint) FROM walked)"
)
# Two jobs of a sequence may both be ready after concurrent submissions. OFFSET 0 keeps Postgres
# from a join with all unfinished jobs.
_GUARD = """AND NOT EXISTS (SELECT FROM redrive_job AS e WHERE e.kind = j.kind
AND e.sequence = j.sequence AND e.sequence IS NOT NULL AND e.state IN (0, 1, 7) AND e.id < j.id
OFFSET 0)
AND NOT EXISTS (SELECT FROM redrive_job AS r WHERE r.kind = j.kind AND r.sequence = j.sequence
AND r.sequence IS NOT NULL AND r.state = 1 OFFSET 0)"""


def _first_due(where: str, limit: str) -> str:
    return f"""SELECT j.id FROM redrive_job AS j WHERE {_IS_OF_KIND} {where}
AND j.due_at <= now() ORDER BY j.due_at, j.id LIMIT {limit} FOR UPDATE OF j SKIP LOCKED"""  # noqa: S608


_IS_OF_TENANT = "AND j.tenant IS NOT NULL AND j.tenant = t.tenant"
_FAIR = f"""picked AS MATERIALIZED (SELECT d.id
FROM (SELECT tenant FROM walked WHERE due = 1 ORDER BY step) AS t CROSS JOIN LATERAL
({_first_due(f"AND j.priority = {_PRIORITY} {_IS_OF_TENANT}", _SHARE)}) AS d
LIMIT CAST(%(most)s AS integer))"""  # noqa: S608
_IS_SHARED = f"AND j.priority = CAST(%(of_priority)s AS integer) {_IS_OF_TENANT} {_GUARD}"
_SHARES = f"""picked AS MATERIALIZED (SELECT d.id
FROM unnest(CAST(%(share_tenant)s AS text[]), CAST(%(share_most)s AS integer[]))
AS t (tenant, most) CROSS JOIN LATERAL
({_first_due(_IS_SHARED, "t.most")}) AS d
LIMIT CAST(%(total)s AS integer))"""  # noqa: S608


def _in_order(priorities: Sequence[int]) -> str:
    queries = (
        f"({_first_due(f'AND j.priority = {each} {_GUARD}', 'CAST(%(total)s AS integer)')})"
        for each in priorities
    )
    union = " UNION ALL ".join(f"SELECT id FROM {query} AS due" for query in queries)  # noqa: S608
    return (
        f"picked AS MATERIALIZED (SELECT id FROM ({union}) AS due LIMIT CAST(%(total)s AS integer))"  # noqa: S608
    )


_LAST_TENANT = "(SELECT tenant FROM walked ORDER BY step DESC LIMIT 1)"
_PICKED = "ARRAY(SELECT id FROM picked)"


def _statement(picked: str, *, is_fair: bool = False, with_starts: bool = False) -> str:
    """Return the statement of a turn whose claim takes the picked jobs."""
    summary = (literal_column(_LAST_TENANT, Text), literal_column(_PRIORITY, Integer))
    nulls = (cast(null(), Text).label("tenant"), cast(null(), Integer).label("level"))
    turn = build_turn(
        literal_column(_PICKED),
        with_starts=with_starts,
        extra=list(zip(nulls, summary, strict=True)) if is_fair else (),
    )
    return f"WITH RECURSIVE {picked}, {turn.removeprefix('WITH ')}"


TURN_FAIR = _statement(f"{_SCAN}, {_FAIR}", is_fair=True)
TURN_FAIR_START = _statement(f"{_SCAN}, {_FAIR}", is_fair=True, with_starts=True)
CLAIM_SHARES = _statement(_SHARES)
CLAIM_IN_SEQUENCE = _statement(_in_order(PRIORITIES))
CLAIM_IN_SEQUENCE_ALONE = _statement(_in_order((QUARANTINE,)))
DUE_TENANTS = f"""WITH RECURSIVE {_SCAN}
SELECT tenant, due, priority FROM level LEFT JOIN walked ON true ORDER BY step"""  # noqa: S608


class FairTurn(NamedTuple):
    """The result of a turn with a fair claim."""

    rows: TurnRows
    cursor: str | None
    """The last tenant that the scan has reached. None: no tenant has jobs in the priority."""
    has_due: bool
    """Whether any job of the type was due."""


def turn(
    run: Runner, done: Sequence[Settlement], options: ClaimOptions, cursor: str, /
) -> FairTurn:
    """Settle plain successes, start leases, and claim jobs of the next tenants."""
    ((kind, limit),) = options.kinds.items()
    most = min(limit, options.total)
    starts = options.starts
    scan = _scan_parameters(kind, BELOW_ALL_PRIORITIES, cursor, (), most)
    parameters = turn_parameters(done, options) | scan
    *leased, last = run.execute(TURN_FAIR_START if starts else TURN_FAIR, parameters).fetchall()
    rows = read_turn(leased, last[:-2], starts)
    return FairTurn(rows, last[-2], last[-1] is not None)


def due_tenants(
    run: Runner, kind: str, beyond: int, cursor: str, excluded: Collection[str], most: int, /
) -> DueTenants:
    """Return the next tenants with due jobs, without the excluded ones."""
    parameters = _scan_parameters(kind, beyond, cursor, excluded, most)
    rows = run.execute(DUE_TENANTS, parameters).fetchall()
    if not rows:
        return DueTenants([], "", None)
    last, _, priority = rows[-1]
    return DueTenants([tenant for tenant, due, _ in rows if due], last or "", priority)


def claim_shares(
    run: Runner, options: ClaimOptions, priority: int, shares: Mapping[str, int], /
) -> list[Lease]:
    """Claim at most this many jobs of each tenant. Jobs of a sequence are claimed in order."""
    (kind,) = options.kinds
    parameters = turn_parameters((), options) | {
        "of_kind": kind,
        "of_priority": priority,
        "share_tenant": text_array(shares),
        "share_most": int_array(shares.values()),
    }
    *leased, last = run.execute(CLAIM_SHARES, parameters).fetchall()
    return read_turn(leased, last, ()).leases


def claim_in_sequence(run: Runner, options: ClaimOptions, /) -> list[Lease]:
    """Claim due jobs whose turn in their sequence it is."""
    (kind,) = options.kinds
    statement = CLAIM_IN_SEQUENCE_ALONE if options.alone else CLAIM_IN_SEQUENCE
    parameters = turn_parameters((), options) | {"of_kind": kind}
    *leased, last = run.execute(statement, parameters).fetchall()
    return read_turn(leased, last, ()).leases


def _scan_parameters(
    kind: str, beyond: int, cursor: str, excluded: Collection[str], most: int
) -> dict[str, object]:
    return {
        "of_kind": kind,
        "beyond": beyond,
        "cursor": cursor,
        "excluded": text_array(excluded),
        "most": most,
        "max_steps": max_scanned_tenants(most),
        "max_tenants": max_tenants(most),
    }
