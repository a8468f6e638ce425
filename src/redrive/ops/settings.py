"""Settings as operators see them: what is set, and by what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..journal.redaction import redacted_text
from ..settings import KEYS, Settings, settings
from .imported import Unreadable


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that can be set, and how it stands."""

    name: str
    variable: str
    value: Any
    """Secrets are hidden."""
    said_by: str
    """A variable, a file, or `default`."""
    says: str


def known() -> Settings:
    """What is set. Unreadable says what is wrong, and where."""
    try:
        return settings()
    except ValueError as wrong:
        raise Unreadable(str(wrong)) from wrong


def told() -> list[Setting]:
    """All that can be set, in the order of the file."""
    found = known()
    values = found.told()
    by = found.said_by
    return [Setting(key.name, key.variable, _shown(values[key.name]), by.get(key.name, "default"), key.says) for key in KEYS]


def _shown(value: Any) -> Any:
    return redacted_text(value) if isinstance(value, str) else value
