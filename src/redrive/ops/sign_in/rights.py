"""Rights: which acts an operator may do, and to which job types.

The parts of `Operator` check them before they read a payload or change anything. The audit log
checks the act once more, so that a new operation without a check of its own is refused too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType

from ...errors import MissingRight

ACTS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "replay": ("Replay dead letters and events", ("dead.replay", "event.replay")),
        "edit": ("Replay a dead letter with another payload. Needs replay too", ()),
        "discard": ("Discard dead letters", ("dead.discard",)),
        "export": ("Export dead letters with their secrets", ("dead.export",)),
        "reveal": ("Show a payload with its secrets", ("payload.reveal",)),
        "cancel": ("Cancel jobs", ("job.cancel",)),
        "run_now": ("Run queued jobs now", ("job.run_now",)),
        "reschedule": ("Change when queued jobs are due", ("job.reschedule",)),
        "prioritise": ("Change the priority of queued jobs", ("job.prioritise",)),
        "signal": ("Send a signal to a job", ("job.signal",)),
        "pause": (
            "Pause and resume the app, job types, sources and schedules",
            ("pause", "resume", "kind", "source"),
        ),
        "limit": ("Set and reset limits of job types", ("limits",)),
        "fire": ("Fire a schedule now", ("schedule.fire",)),
        "sweep": (
            "Pause, resume and cancel bulk operations, and change their share",
            ("sweep",),
        ),
        "release": ("Release idempotency records", ("key.release",)),
        "reopen": ("Reopen given-up items of batches", ("batch.reopen",)),
        "partition": (
            "Retry, reprocess, revalidate, backfill, mark and roll back partitions",
            ("partition",),
        ),
        "erase": ("Erase the data of a user", ("user.erase",)),
        "access": ("Create and revoke tokens, and revoke sessions", ("token", "session")),
    }
)
"""Each act with a sentence, and with its actions in the audit log, or their nouns."""
_ACT_BY_ACTION = {action: act for act, (_, actions) in ACTS.items() for action in actions}
READS = frozenset(("payload.read",))
"""Actions of the audit log that need no right."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Which acts an operator may do, and to which job types. Immutable. Threads may share one.

    Attributes:
        acts: Names of acts, such as `replay`. None: all.
        job_types: Job types, handlers, schedules and datasets (`crm/orders`), or patterns such as
            `orders.*`. None: all, and also acts that belong to no job type.
    """

    acts: Collection[str] | None = None
    job_types: Collection[str] | None = None

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ValueError: An act is unknown.
            TypeError: The acts or the job types are not a collection of texts.
        """
        for field in ("acts", "job_types"):
            names = getattr(self, field)
            if names is not None:
                object.__setattr__(self, field, _check_names(field, names))
        for act in sorted(self.acts or ()):
            if act not in ACTS:
                near = get_close_matches(act, ACTS, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(ACTS)}"
                raise ValueError(f"acts=: unknown act {act!r}; {hint}")

    def permits(self, act: str, /, *names: str | None) -> bool:
        """Whether an act is allowed to these job types.

        Args:
            act: The act.
            names: The job types. None: it belongs to no job type. Without any: whether the act is
                allowed to some job type.
        """
        return (self.acts is None or act in self.acts) and all(map(self.covers, names))

    def covers(self, name: str | None, /) -> bool:
        """Whether a job type is among those of these rights. None: it belongs to no job type."""
        if self.job_types is None:
            return True
        return name is not None and any(fnmatchcase(name, each) for each in self.job_types)

    def check(self, act: str, /, *names: str | None) -> None:
        """Raise MissingRight if an act is not allowed to these job types."""
        if not self.permits(act):
            raise MissingRight(f"{act}: you have no right to do this; nothing was changed")
        missing = [name for name in dict.fromkeys(names) if not self.covers(name)]
        if missing:
            raise MissingRight(f"{act}: {self._describe_missing(missing)}; nothing was changed")

    def check_read(self, subject: str, /, *names: str) -> None:
        """Raise MissingRight if none of these job types is covered, so its payload is hidden."""
        if self.job_types is not None and not any(map(self.covers, names)):
            raise MissingRight(f"{subject}: {self._describe_missing([*names] or [None])}")

    def check_action(self, action: str, /) -> None:
        """Raise MissingRight if an action of the audit log is not allowed."""
        if self.acts is not None and action not in READS:
            noun = action.partition(".")[0]
            self.check(_ACT_BY_ACTION.get(action) or _ACT_BY_ACTION.get(noun) or action)

    def _describe_missing(self, missing: list[str | None]) -> str:
        limits = ", ".join(sorted(self.job_types or ())) or "no job type"
        names = ", ".join(sorted(name for name in missing if name is not None))
        if not names:
            return f"it belongs to no job type, and your rights are limited to {limits}"
        noun = "job type" if len(missing) == 1 else "job types"
        return f"you have no right for the {noun} {names}; your rights are limited to {limits}"


def _check_names(field: str, names: Iterable[str]) -> frozenset[str]:
    example = '{"replay"}' if field == "acts" else '{"orders.*"}'
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{field}= must be a collection of texts such as {example}, not {names!r}")
    checked = frozenset(names)
    for name in checked:
        if not isinstance(name, str) or not name.strip():
            raise TypeError(f"{field}= must have texts such as {example}, not {name!r}")
    return checked
