"""Stored plan: what one has planned, another may apply: a file, that says exactly what, and until when.

A file, and no row: a preview leaves no trace in the ledger, and who reviews it needs no access to that. A plan that was applied
has drifted: to apply it twice is refused by itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...errors import Drift
from ...partitions.key import Partition
from ...partitions.model import Selection
from ..partitions.plan import of_grid, of_picked
from ..render import document
from .options import Wish
from .plan import Plan

LIFE = timedelta(minutes=30)
VERSION = 1
MOST = 256 * 1024 * 1024
"""Bytes: what is larger is no plan."""


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan that somebody has made for somebody to apply. Immutable."""

    id: str
    plan: Plan
    actor: str
    """Who made it."""
    ledger: str
    """Of which ledger, without its password."""
    made_at: datetime
    expires_at: datetime
    path: str

    def alive(self, now: datetime, url: str, /) -> None:
        """Drift where it is too old, or another ledger's."""
        if now >= self.expires_at:
            raise Drift(
                f"plan {self.id} has expired, {self.expires_at:%Y-%m-%d %H:%M:%S} UTC; make a new plan. Nothing was changed"
            )
        if _place(url) != _place(self.ledger):
            raise Drift(f"plan {self.id} is for {self.ledger}, not for {url}. Nothing was changed")


def saved(plan: Plan, /, *, actor: str, now: datetime, url: str, out: str | None = None) -> StoredPlan:
    """Write it down: where `out` says, else where `plan show ID` of the same user finds it."""
    assert plan.partitions is not None
    id_ = f"p-{plan.digest[:8]}"
    path = _home() / f"{id_}.json" if out is None else Path(out)
    found = StoredPlan(id_, plan, actor, url, now, now + LIFE, str(path))
    body = _body(found)
    if out is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _forget(path.parent, now)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(body | {"check": _check(body)}, file, indent=1)
        file.write("\n")
    new.replace(path)
    return found


def loaded(name: str, /) -> StoredPlan:
    """By its id, or from a file. ValueError says what is wrong with it."""
    path = Path(name) if os.sep in name or name.endswith(".json") else _home() / f"{name}.json"
    try:
        if path.stat().st_size > MOST:
            raise ValueError(f"{path} is too large to be a plan")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(
            f"plan {name} not found: {path} does not exist; plans are kept for {LIFE.seconds // 60} minutes"
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


def _place(url: str) -> tuple[str, str | None, str]:
    """Which database it is, whoever goes there, and through which port."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.path


def _home() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "redrive" / "plans"


def _forget(folder: Path, now: datetime) -> None:
    """Plans of yesterday are no use to anybody."""
    for old in folder.glob("p-*.json"):
        try:
            if old.stat().st_mtime < (now - timedelta(days=1)).timestamp():
                old.unlink()
        except OSError:  # somebody else's, or gone already
            continue


def _check(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _body(stored: StoredPlan) -> dict[str, Any]:
    plan, about = stored.plan, stored.plan.partitions
    assert about is not None
    said = {
        "redrive_plan": VERSION, "id": stored.id, "act": plan.act, "actor": stored.actor, "ledger": stored.ledger,
        "made_at": stored.made_at.isoformat(), "expires_at": stored.expires_at.isoformat(), "count": plan.count,
        "digest": plan.digest, "kinds": dict(plan.kinds), "reasons": dict(plan.reasons), "skipped": dict(plan.skipped),
        "left": dict(about.left), "readable": about.readable, "without_raw": about.without_raw, "wish": asdict(about.wish),
        "total": about.total,
    }  # fmt: skip
    if about.grid is not None:
        grid = document(about.grid)
        return said | {"grid": grid}
    assert about.picked is not None
    return said | {
        "selection": _selection(about.selection), "shades": dict(about.picked.shades),
        "datasets": [list(one) for one in about.picked.datasets], "ids": _spans(about.picked.ids),
        "validates": dict(about.validates), "missing_raw": dict(about.missing_raw),
    }  # fmt: skip


def _read(body: dict[str, Any], path: str) -> StoredPlan:
    wish = Wish(**body["wish"])
    if "grid" in body:
        from ...partitions.control.sweeps import Grid  # noqa: PLC0415  # not needed for the others

        of = body["grid"]
        grid = Grid.of(of["source"], of["query_name"], of["customers"], of["since"], of["until"], newest=of["newest"])
        plan = of_grid(grid, wish, body["left"], body["readable"], body["total"])
    else:
        from ...partitions.store.frozen_selection import Picked  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

        found = Picked(
            act=body["act"], ids=_ids(body["ids"]), digest=body["digest"],
            datasets=[(one[0], one[1]) for one in body["datasets"]],
            reasons=body["reasons"], shades=body["shades"], skipped=body["left"], readable=body["readable"],
            without_raw=body["without_raw"], validates=body.get("validates", {}),
        )  # fmt: skip
        plan = of_picked(
            found,
            _selected(body["selection"]),
            wish,
            kinds=body["kinds"],
            skipped=body["skipped"],
            without=body.get("missing_raw", {}),
        )
    if (plan.digest, plan.count) != (body["digest"], body["count"]):
        raise ValueError("its contents contradict each other")
    made, expires = (datetime.fromisoformat(body[name]) for name in ("made_at", "expires_at"))
    return StoredPlan(body["id"], plan, body["actor"], body["ledger"], made, expires, path)


def _selection(selection: Selection) -> dict[str, Any]:
    given = {name: getattr(selection, name) for name in Selection.__slots__}
    said = {name: value for name, value in given.items() if value is not None}
    return {
        name: str(value) if isinstance(value, date) else [str(one) for one in value] if name == "keys" else value
        for name, value in said.items()
    }


def _selected(said: dict[str, Any]) -> Selection:
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    for name in ("since", "until"):
        if name in given:
            given[name] = date.fromisoformat(given[name])
    if "keys" in given:
        given["keys"] = tuple(Partition.parse(one) for one in given["keys"])
    return Selection(**given)


def _spans(ids: Iterable[int]) -> str:
    """1-500,502: what follows each other is said in few letters."""
    spans: list[list[int]] = []
    for one in ids:
        if spans and one == spans[-1][1] + 1:
            spans[-1][1] = one
        else:
            spans.append([one, one])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)


def _ids(text: str) -> list[int]:
    found: list[int] = []
    for span in text.split(",") if text else ():
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
