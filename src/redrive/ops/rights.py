"""Rights: which acts an operator may do, and to which job types."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType

ACTS: Mapping[str, str] = MappingProxyType(
    {
        "replay": "Replay dead letters and events",
        "discard": "Discard dead letters",
        "edit": "Change the payload of a dead letter",
        "export": "Export dead letters to a file",
        "reveal": "Show a payload with its secrets",
        "cancel": "Cancel jobs",
        "run_now": "Run queued jobs now",
        "reschedule": "Move the due time of jobs",
        "prioritise": "Change the priority of jobs",
        "signal": "Send a signal to a job",
        "pause": "Pause and resume the app, job types, sources and schedules",
        "limit": "Set and reset limits of job types",
        "fire": "Fire a schedule now",
        "sweep": "Pause, resume, cancel and share bulk operations",
        "release": "Release idempotency records",
        "reopen": "Reopen given-up items of batches",
        "partition": "Retry, reprocess, revalidate, backfill, mark and roll back partitions",
        "erase": "Erase the data of a user",
    }
)
"""The acts of an operator, each with a sentence."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Which acts an operator may do, and to which job types. Immutable. Threads may share one.

    Attributes:
        acts: Names of acts, such as `replay`. None: all.
        job_types: Job types, or patterns such as `orders.*`. None: all, and also acts that
            belong to no job type.
    """

    acts: Collection[str] | None = None
    job_types: Collection[str] | None = None

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ValueError: An act is unknown, or a name is empty.
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

    def allows(self, act: str, /) -> bool:
        """Whether the act is allowed, for some job type at least."""
        return self.acts is None or act in self.acts

    def covers(self, job_type: str, /) -> bool:
        """Whether the job type is among those of these rights."""
        if self.job_types is None:
            return True
        return any(fnmatchcase(job_type, pattern) for pattern in self.job_types)


def _check_names(field: str, names: Iterable[str]) -> frozenset[str]:
    example = '{"replay"}' if field == "acts" else '{"orders.*"}'
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{field}= must be a collection of texts such as {example}, not {names!r}")
    checked = frozenset(names)
    for name in checked:
        if not isinstance(name, str) or not name.strip():
            raise TypeError(f"{field}= must have texts such as {example}, not {name!r}")
    return checked
