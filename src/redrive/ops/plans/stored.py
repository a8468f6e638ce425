"""Stored plan: a file with a plan that one operator made, for another to review and apply.

It is a file and not a row: a plan leaves no trace in the ledger, and a reviewer needs no access to
it. A plan that was applied has drifted, so it cannot be applied twice.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from ...errors import Drift
from ...ledger.db.address import database_of
from ...partitions.control.sweeps import Grid
from ...partitions.key import Partition
from ...partitions.model import PartitionFilter
from ...partitions.store.frozen_selection import FrozenIds, FrozenSelection
from ..partitions.plan import from_grid, from_picked
from ..render import document
from .plan import Plan, PlanOptions

LIFE = timedelta(minutes=30)
VERSION = 2
MAX_BYTES = 256 * 1024 * 1024
"""Size of the largest plan."""


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan that was stored in a file. Immutable."""

    id: str
    plan: Plan
    actor: str
    """Who made it."""
    ledger: str
    """Address of the ledger, without its password."""
    made_at: datetime
    expires_at: datetime
    path: str

    def check_current(self, now: datetime, url: str, /) -> None:
        """Raise Drift if the plan has expired, or is for another ledger."""
        if now >= self.expires_at:
            raise Drift(
                f"plan {self.id} has expired, {self.expires_at:%Y-%m-%d %H:%M:%S} UTC; make a "
                "new plan. Nothing was changed"
            )
        if database_of(url) != database_of(self.ledger):
            raise Drift(f"plan {self.id} is for {self.ledger}, not for {url}. Nothing was changed")


def save_plan(
    plan: Plan, /, *, actor: str, now: datetime, url: str, out: str | None = None
) -> StoredPlan:
    """Write a plan to `out`, or else to the user's folder of plans."""
    assert plan.partitions is not None
    id_ = f"p-{plan.digest[:8]}"
    path = _home() / f"{id_}.json" if out is None else Path(out)
    stored = StoredPlan(id_, plan, actor, url, now, now + LIFE, str(path))
    body = _body(stored)
    if out is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _delete_old(path.parent, now)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(
        os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        json.dump(body | {"check": _check(body)}, file, indent=1)
        file.write("\n")
    new.replace(path)
    return stored


def load_plan(name: str, /) -> StoredPlan:
    """Read a plan by its id, or from a file. Raise ValueError if it is not valid."""
    path = Path(name) if os.sep in name or name.endswith(".json") else _home() / f"{name}.json"
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path} is too large to be a plan")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(
            f"plan {name} not found: {path} does not exist; plans are kept for "
            f"{LIFE.seconds // 60} minutes"
        ) from None
    except (OSError, UnicodeDecodeError) as wrong:
        raise ValueError(f"{path} cannot be read: {wrong}") from None
    try:
        body = json.loads(text)
        if not isinstance(body, dict) or body.get("redrive_plan") != VERSION:
            raise ValueError(f"it is not a plan of redrive, version {VERSION}")
        if body.pop("check", None) != _check(body):
            raise ValueError("it was changed after it was made")
        return _read(body, str(path))
    except (ValueError, KeyError, TypeError) as wrong:
        raise ValueError(f"{path} cannot be applied: {wrong}; make a new plan") from None


def _home() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "redrive" / "plans"


def _delete_old(folder: Path, now: datetime) -> None:
    """Delete plans that are older than a day."""
    for old in folder.glob("p-*.json"):
        try:
            if old.stat().st_mtime < (now - timedelta(days=1)).timestamp():
                old.unlink()
        except OSError:  # It belongs to another user, or was deleted meanwhile.
            continue


def _check(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _body(stored: StoredPlan) -> dict[str, Any]:
    plan, details = stored.plan, stored.plan.partitions
    assert details is not None
    body = {
        "redrive_plan": VERSION,
        "id": stored.id,
        "act": plan.act,
        "actor": stored.actor,
        "ledger": stored.ledger,
        "made_at": stored.made_at.isoformat(),
        "expires_at": stored.expires_at.isoformat(),
        "count": plan.count,
        "digest": plan.digest,
        "kinds": dict(plan.kinds),
        "reasons": dict(plan.reasons),
        "skipped": dict(plan.skipped),
        "left": dict(details.left),
        "readable": details.readable,
        "without_raw": details.without_raw,
        "wish": asdict(details.wish),
        "total": details.total,
    }
    if details.grid is not None:
        return body | {"grid": document(details.grid)}
    assert details.picked is not None
    return body | {
        "selection": _selection(details.selection),
        "shades": dict(details.picked.shades),
        "datasets": [list(dataset) for dataset in details.picked.datasets],
        "ids": [base64.b64encode(page).decode() for page in details.picked.ids.pages],
        "validates": dict(details.validates),
        "missing_raw": dict(details.missing_raw),
    }


def _read(body: dict[str, Any], path: str) -> StoredPlan:
    wish = PlanOptions(**body["wish"])
    if "grid" in body:
        of = body["grid"]
        grid = Grid.of(
            of["source"],
            of["query_name"],
            of["customers"],
            of["since"],
            of["until"],
            newest=of["newest"],
        )
        plan = from_grid(grid, wish, body["left"], body["readable"], body["total"])
    else:
        picked = FrozenSelection(
            act=body["act"],
            ids=FrozenIds(tuple(map(base64.b64decode, body["ids"])), body["count"]),
            digest=body["digest"],
            datasets=[(source, query) for source, query in body["datasets"]],
            reasons=body["reasons"],
            shades=body["shades"],
            skipped=body["left"],
            readable=body["readable"],
            without_raw=body["without_raw"],
            validates=body.get("validates", {}),
        )
        plan = from_picked(
            picked,
            _read_selection(body["selection"]),
            wish,
            kinds=body["kinds"],
            skipped=body["skipped"],
            missing=body.get("missing_raw", {}),
        )
    if (plan.digest, plan.count) != (body["digest"], body["count"]):
        raise ValueError("its contents contradict each other")
    made_at, expires_at = (datetime.fromisoformat(body[name]) for name in ("made_at", "expires_at"))
    return StoredPlan(body["id"], plan, body["actor"], body["ledger"], made_at, expires_at, path)


def _selection(selection: PartitionFilter) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in PartitionFilter.__slots__:
        value = getattr(selection, name)
        if isinstance(value, date):
            fields[name] = str(value)
        elif value is not None:
            fields[name] = list(map(str, value)) if name == "keys" else value
    return fields


def _read_selection(stored: dict[str, Any]) -> PartitionFilter:
    fields: dict[str, Any] = {}
    for name, value in stored.items():
        if name in ("since", "until"):
            fields[name] = date.fromisoformat(value)
        elif name == "keys":
            fields[name] = tuple(map(Partition.parse, value))
        else:
            fields[name] = tuple(value) if isinstance(value, list) else value
    return PartitionFilter(**fields)
