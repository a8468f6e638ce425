"""Settings as operators see them: the values, and where each is set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...app.ledger_opener import DEFAULT
from ...journal.redaction import redact_text
from ...journal.redaction.secrets import redact_address
from ...settings import KEYS, SECRET, Configuration, settings
from ...settings import ConsoleSettings as ConsoleSettings  # noqa: PLC0414  # the console has it from here
from ..sign_in.hashes import is_hashed
from .user_code import Unreadable


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with its value."""

    name: str
    variable: str
    value: Any
    """The value. Secrets are masked."""
    said_by: str
    """A variable, a file, or `default`."""
    says: str
    warns: str | None = None
    """A problem with the value."""


def known() -> Configuration:
    """Return the settings. Raise Unreadable if a value is invalid."""
    try:
        return settings()
    except ValueError as wrong:
        raise Unreadable(str(wrong)) from wrong


def list_settings() -> list[Setting]:
    """Return every setting, in the order of the file."""
    settings_ = known()
    values, by, plain = settings_.visible_values(), dict(settings_.set_by), warnings(settings_)
    if values["ledger"] is None:
        values["ledger"] = f"the ledger of {settings_.app}" if settings_.app else DEFAULT
        by["ledger"] = by.get("app", "default")
    return [
        Setting(
            key.name,
            key.variable,
            _redact_value(values[key.name]),
            by.get(key.name, "default"),
            key.says,
            plain.get(key.name),
        )
        for key in KEYS
    ]


def warnings(settings: Configuration, /) -> dict[str, str]:
    """Return a warning for each secret that is in clear text in the file, which others may read."""
    problems: dict[str, str] = {}
    for key in KEYS:
        value = key.of(settings)
        is_in_file = value is not None and settings.set_by.get(key.name) != key.variable
        if key.name in SECRET and is_in_file and not is_hashed(value):
            problems[key.name] = (
                f"is in clear text in {settings.file}; {_fix(key.name)}set {key.variable}"
            )
    return problems


def _fix(name: str) -> str:
    if name in ("console.secret", "console.oidc_secret"):
        return ""
    if name.endswith("password"):
        return "hash it with `redrive serve --hash password`, or "
    return "create a hashed one with `redrive serve --hash token`, or "


def _redact_value(value: Any) -> Any:
    return redact_text(redact_address(value)) if isinstance(value, str) else value
