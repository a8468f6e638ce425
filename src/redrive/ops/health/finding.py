"""Finding: a problem of a ledger as data: what, since when, how many, and the fix."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["warning", "critical"]
"""Critical: work is lost, stopped, or not verifiable. Warning: this will happen unless a person
acts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem."""

    name: str
    severity: Severity
    says: str
    """`<thing>: <problem>`, without a full stop."""
    count: int
    since: datetime | None
    mend: str
    """The fix: a command, or an instruction where no command helps."""
    is_command: bool = True
    about: bool = False
    """`since` is accurate to ten minutes."""


@dataclass(frozen=True, slots=True)
class Health:
    """The result of an examination."""

    url: str
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    """Names of the checks."""
    balance: str | None
    """The counts in one line; None if they could not be read."""
    now: datetime | None
    no_worker: str | None = None
    """That no worker is online, and since when; None: at least one is, or the ledger could not be
    read."""

    @property
    def severity(self) -> Severity | None:
        """The highest severity; None: no problem was found."""
        if any(finding.severity == "critical" for finding in self.findings):
            return "critical"
        return "warning" if self.findings else None
