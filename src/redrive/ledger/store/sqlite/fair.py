"""Fair claims on SQLite: the tenants of a job type take turns.

A skip scan over the index of tenants finds the next tenants with due jobs, from a cursor on. Each
of them gets an equal share of the claim.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from ...db.compiled import BatchRunner
from ...model import QUARANTINE, Lease
from ..protocol import (
    BELOW_ALL_PRIORITIES,
    ClaimOptions,
    DueTenants,
    TenantCursors,
    max_scanned_tenants,
    max_tenants,
)
from .claim import NEXT_PRIORITY, claim_in_order, lease_ids, lease_values

_JOBS = """FROM redrive_job AS j WHERE j.state = 0 AND j.tenant IS NOT NULL
AND j.kind = :kind AND j.priority = :priority"""


def _next_job(after: str) -> str:
    """Return the first job of the next tenant, after the cursor or after the last row."""
    return f"""(SELECT j.id {_JOBS} AND j.tenant > {after}
AND (:until IS NULL OR j.tenant <= :until) ORDER BY j.tenant, j.due_at, j.id LIMIT 1)"""


_IS_DUE = "n.due_at <= :now AND n.tenant NOT IN (SELECT value FROM json_each(:excluded))"
WALK = f"""WITH RECURSIVE walk (tenant, id, due, step, dues) AS (
SELECT n.tenant, n.id, {_IS_DUE}, 1, {_IS_DUE} FROM redrive_job AS n
WHERE n.id = {_next_job(":cursor")}
UNION ALL
SELECT n.tenant, n.id, {_IS_DUE}, w.step + 1, w.dues + ({_IS_DUE})
FROM walk AS w JOIN redrive_job AS n ON n.id = {_next_job("w.tenant")}
WHERE w.step < :steps AND w.dues < :max_tenants)
SELECT tenant, id, due FROM walk ORDER BY step"""  # noqa: S608
# Without LATERAL, the jobs of each tenant are packed into a JSON array.
SHARES = f"""SELECT each.value FROM json_each(:tenants) AS t, json_each((
SELECT json_group_array(id) FROM (SELECT j.id {_JOBS} AND j.tenant = t.value AND j.due_at <= :now
ORDER BY j.due_at, j.id LIMIT :share))) AS each LIMIT :most"""  # noqa: S608
FIRST_DUE = """SELECT 1 FROM redrive_job WHERE state = 0 AND kind = ? AND priority = ?
AND due_at <= ? LIMIT 1"""
FIRST_OF_TENANT = f"""SELECT j.id {_JOBS} AND j.tenant = :tenant AND j.due_at <= :now
ORDER BY j.due_at, j.id LIMIT :share"""


def claim(
    run: BatchRunner, options: ClaimOptions, cursors: TenantCursors, now: int, /
) -> list[Lease]:
    """Lease due jobs of the next tenants, the most urgent priority first.

    A priority that comes back short is filled up in the order of the due times.
    """
    ((kind, limit),) = options.kinds.items()
    most = min(limit, options.total)
    leases: list[Lease] = []
    priority = BELOW_ALL_PRIORITIES
    values = lease_values(options, now)
    while len(leases) < most:
        row = run.execute(NEXT_PRIORITY, (kind, priority)).fetchone()
        if row is None or row[0] == QUARANTINE:
            break
        priority = row[0]
        left = most - len(leases)
        if run.execute(FIRST_DUE, (kind, priority, now)).fetchone() is None:
            continue
        ids = _ids_of_next(run, cursors, kind, priority, left, now)
        leases += lease_ids(run, values, ids)
        left = most - len(leases)
        if left:
            leases += claim_in_order(run, values, kind, priority, left, now)
    return leases


def _ids_of_next(
    run: BatchRunner, cursors: TenantCursors, kind: str, priority: int, most: int, now: int
) -> list[int]:
    due = _walk_around(run, kind, priority, cursors.next(kind, priority), (), most, now)
    if due:
        cursors.move(kind, due[-1][0], priority)
    first = [(tenant, id_) for tenant, id_, is_due in due if is_due]
    share = -(-most // max(1, len(first)))
    if share == 1:
        return [id_ for _, id_ in first]
    parameters = {
        "tenants": json.dumps([tenant for tenant, _ in first]),
        "kind": kind,
        "priority": priority,
        "now": now,
        "share": share,
        "most": most,
    }
    return [row[0] for row in run.execute(SHARES, parameters).fetchall()]


def _walk_around(
    run: BatchRunner,
    kind: str,
    priority: int,
    cursor: str,
    excluded: Collection[str],
    most: int,
    now: int,
) -> list[tuple[str, int, int]]:
    """Return tenants after the cursor, and then from the first one to the cursor."""
    parameters: dict[str, object] = {
        "kind": kind,
        "priority": priority,
        "now": now,
        "cursor": cursor,
        "until": None,
        "steps": max_scanned_tenants(most),
        "max_tenants": max_tenants(most),
        "excluded": json.dumps(list(excluded)),
    }
    rows = list(run.execute(WALK, parameters).fetchall())
    dues = sum(row[2] for row in rows)
    left = max_tenants(most) - dues
    if cursor and left > 0:
        again = {**parameters, "cursor": "", "until": cursor, "max_tenants": left}
        rows += run.execute(WALK, again).fetchall()
    return rows


def due_tenants(
    run: BatchRunner,
    kind: str,
    beyond: int,
    cursor: str,
    excluded: Collection[str],
    most: int,
    now: int,
    /,
) -> DueTenants:
    """Return the next tenants with due jobs, without the excluded ones."""
    priority = beyond
    while True:
        row = run.execute(NEXT_PRIORITY, (kind, priority)).fetchone()
        if row is None or row[0] == QUARANTINE:
            return DueTenants([], "", None)
        priority = row[0]
        if run.execute(FIRST_DUE, (kind, priority, now)).fetchone() is not None:
            break
    rows = _walk_around(run, kind, priority, cursor, excluded, most, now)
    last = rows[-1][0] if rows else ""
    return DueTenants([tenant for tenant, _, is_due in rows if is_due], last, priority)


def claim_shares(
    run: BatchRunner, options: ClaimOptions, priority: int, shares: Mapping[str, int], now: int, /
) -> list[Lease]:
    """Claim at most this many jobs of each tenant."""
    (kind,) = options.kinds
    ids: list[int] = []
    for tenant, share in shares.items():
        left = min(share, options.total - len(ids))
        parameters = {"kind": kind, "priority": priority, "tenant": tenant, "now": now}
        rows = run.execute(FIRST_OF_TENANT, {**parameters, "share": left}).fetchall()
        ids += [row[0] for row in rows]
    return lease_ids(run, lease_values(options, now), ids)
