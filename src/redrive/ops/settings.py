"""Settings as operators see them: what is set, and by what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..journal.redaction import redact_text
from ..journal.redaction.addresses import redact_address
from ..settings import KEYS, SECRET, Configuration, settings
from .secret import is_hashed
from .target.imported import Unreadable


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
    warns: str | None = None
    """What is not well with it."""


def known() -> Configuration:
    """What is set. Unreadable says what is wrong, and where."""
    try:
        return settings()
    except ValueError as wrong:
        raise Unreadable(str(wrong)) from wrong


def told() -> list[Setting]:
    """All that can be set, in the order of the file."""
    found = known()
    values, by, plain = found.visible_values(), found.set_by, warnings(found)
    return [
        Setting(key.name, key.variable, _shown(values[key.name]), by.get(key.name, "default"), key.says, plain.get(key.name))
        for key in KEYS
    ]


def warnings(found: Configuration, /) -> dict[str, str]:
    """Secrets that stand in the file as they are: files are copied, kept in git, read by others. By their names."""
    made: dict[str, str] = {}
    for key in KEYS:
        value = key.of(found)
        if key.name not in SECRET or value is None or found.set_by.get(key.name) == key.variable or is_hashed(value):
            continue
        made[key.name] = f"is in clear text in {found.file}; {_mend(key.name)}set {key.variable}"
    return made


def _mend(name: str) -> str:
    if name == "console.secret":
        return ""
    if name.endswith("password"):
        return "hash it with `redrive serve --hash password`, or "
    return "create a hashed one with `redrive serve --hash token`, or "


def _shown(value: Any) -> Any:
    return redact_text(redact_address(value)) if isinstance(value, str) else value
