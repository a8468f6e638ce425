"""Pauses by hand as operators see them: who paused what, until when and why."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime

from ...journal.redaction import redact_text
from ...ledger.jobs.pauses import SCOPES, Pause, Scope
from ..render import utc

__all__ = [
    "SCOPES",
    "PauseLine",
    "Scope",
    "describe_pause",
    "pause_line",
    "resume_command",
    "subject_of",
]

WORDS: dict[Scope, str] = {
    "app": "app",
    "job type": "job-type",
    "source": "source",
    "schedule": "schedule",
}
"""The scopes as words of a command."""


@dataclass(frozen=True, slots=True)
class PauseLine:
    """A pause by hand."""

    scope: Scope
    name: str
    """Empty for the app."""
    paused_at: datetime
    until: datetime | None
    """None: until it is resumed."""
    actor: str
    because: str
    replaced: str | None = None
    """The pause that it replaced. Only known when it is made."""

    @property
    def says(self) -> str:
        """Who paused it, until when and why."""
        return describe_pause(self)

    @property
    def subject(self) -> str:
        """The paused thing, such as `job type crm.sync`."""
        return subject_of(self.scope, self.name)


def pause_line(pause: Pause, /) -> PauseLine:
    """Return a stored pause for people, without secrets."""
    return PauseLine(
        pause.scope,
        pause.name,
        pause.paused_at,
        pause.until,
        redact_text(pause.actor),
        redact_text(pause.because),
    )


def describe_pause(pause: Pause | PauseLine, /) -> str:
    """Return `paused by ann until 2026-01-31 14:00:00 UTC: the CRM is migrated`."""
    end = "until resumed" if pause.until is None else f"until {utc(pause.until)} UTC"
    return f"paused by {redact_text(pause.actor)} {end}: {redact_text(pause.because)}"


def subject_of(scope: Scope, name: str, /) -> str:
    """Return `the app`, or the scope with its name."""
    return "the app" if scope == "app" else f"{scope} {name}"


def resume_command(scope: Scope, name: str, /) -> str:
    """Return the command that ends a pause."""
    words = WORDS[scope] if scope == "app" else f"{WORDS[scope]} {shlex.quote(name)}"
    return f'redrive resume {words} --because "..."'
