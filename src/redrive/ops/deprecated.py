"""Old names of operations: methods of `Operator` before it had parts.

They warn, and will be removed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from .dead_letters.model import DeadLetterFilter

RENAMED = {
    "dead": "dead_letters.find",
    "dead_groups": "dead_letters.groups",
    "count_dead": "dead_letters.count",
    "letter": "dead_letters.get",
    "replay": "dead_letters.replay",
    "discard": "dead_letters.discard",
    "replay_edited": "dead_letters.replay_edited",
    "export": "dead_letters.export",
    "count_sweeps": "sweeps.count",
    "sweep": "sweeps.get",
    "pause": "sweeps.pause",
    "resume": "sweeps.resume",
    "cancel": "sweeps.cancel",
    "job": "jobs.get",
    "counts": "jobs.counts",
    "event": "events.get",
    "replay_event": "events.replay",
    "verify": "audit.verify",
    "key": "keys.get",
    "release": "keys.release",
    "giveups": "batches.given_up",
    "reopen": "batches.plan_reopen",
    "reopening": "batches.reopen",
    "erasing": "user_data.plan_erasure",
    "erase": "user_data.erase",
    "retry": "partitions.retry",
    "reprocess": "partitions.reprocess",
    "revalidate": "partitions.revalidate",
    "backfill": "backfills.plan",
    "failures": "overview.failures",
    "failure": "overview.failure",
    "rejections": "overview.rejections",
    "journal": "overview.journal",
    "tail": "overview.tail",
    "pulse": "overview.change_token",
    "nobody": "workers.missing",
    "doctor": "health.check",
    "reap": "health.reap",
    "recount": "health.recount",
    "stacks": "retry_stacks",
}
"""Old name of a method, and its path from the operator."""
MOVED = {
    "backfills": "backfills.find",
    "count_backfills": "backfills.count",
    "progress": "backfills.progress",
    "share": "backfills.set_share",
    "sources": "sources.find",
    "pause_source": "sources.pause",
    "unpause_source": "sources.unpause",
}
"""Old name of a method of `Operator.partitions`, and its path from the operator."""
CALLED = {
    "jobs": "find",
    "events": "find",
    "keys": "find",
    "batches": "find",
    "sweeps": "find",
    "audit": "find",
    "workers": "find",
    "schedules": "find",
    "overview": "summary",
}
"""Parts with the name of an old method, and the method that replaces it."""
FILTERED = ("dead", "dead_groups", "count_dead", "replay", "discard", "export")
"""Methods that took the fields of a `DeadLetterFilter` as keywords."""


def deprecated_method(operator: Any, name: str, /) -> Callable[..., Any]:
    """Return the method that replaces an old one. Raise AttributeError if there is none."""
    if name == "reveal":
        _warn("reveal", "jobs.reveal() or Operator.dead_letters.reveal")
        reveals = {"job": operator.jobs.reveal, "dead": operator.dead_letters.reveal}
        return lambda of, number, *, because: reveals[of](number, because=because)
    if name == "applied":
        _warn("applied", "total")
        return lambda here: operator.total(here.sweep)
    if name not in RENAMED:
        raise AttributeError(f"'Operator' object has no attribute {name!r}")
    _warn(name, RENAMED[name])
    method: Any = operator
    for part in RENAMED[name].split("."):
        method = getattr(method, part)
    return _take_filter(method) if name in FILTERED else method


def deprecated_partition_method(parts: Mapping[str, Any], name: str, /) -> Callable[..., Any]:
    """Return the method that replaces an old one of `Operator.partitions`."""
    if name not in MOVED:
        raise AttributeError(f"'PartitionOperations' object has no attribute {name!r}")
    _warn(f"partitions.{name}", MOVED[name])
    part, _, method = MOVED[name].partition(".")
    return cast("Callable[..., Any]", getattr(parts[part], method))


def add_deprecated_call(part: type, attribute: str, /) -> None:
    """Make a part callable, if its attribute has the name of an old method."""
    method = CALLED.get(attribute)

    def call(self: Any, /, *args: Any, **options: Any) -> Any:
        _warn(attribute, f"{attribute}.{method}", frames=3)
        return getattr(self, str(method))(*args, **options)

    if method is not None:
        part.__call__ = call  # type: ignore[method-assign]


def _warn(old: str, new: str, *, frames: int = 4) -> None:
    """Warn the caller, who is this many frames above."""
    text = f"Operator.{old}() is deprecated; use Operator.{new}()"
    warnings.warn(text, DeprecationWarning, stacklevel=frames)


def _take_filter(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*, ids: Collection[int | str] = (), **options: Any) -> Any:
        names = [name for name in DeadLetterFilter.__slots__ if name in options]
        fields = {name: options.pop(name) for name in names}
        which = DeadLetterFilter(ids=tuple(ids), **fields)
        return method(which, **options)

    return call
