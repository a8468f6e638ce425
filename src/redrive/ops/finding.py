"""Finding: something that is wrong with a ledger, as data: what, since when, how many, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["warning", "critical"]
"""Critical: work is lost, stands still, or cannot be vouched for. Warning: it will, if nobody looks."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    name: str
    severity: Severity
    says: str
    count: int
    since: datetime | None
    mend: str
    """A command, or what to do where no command can."""
    is_command: bool = True
    about: bool = False
    """Since is as fine as ten minutes."""


@dataclass(frozen=True, slots=True)
class Health:
    """What a look at the ledger found."""

    url: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    """What was looked at."""
    balance: str | None
    """The counts in one line; None where they could not be read."""
    now: datetime | None

    @property
    def severity(self) -> Severity | None:
        """The worst of all; None: all is well."""
        if any(one.severity == "critical" for one in self.findings):
            return "critical"
        return "warning" if self.findings else None
