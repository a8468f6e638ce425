"""A user whom another program has authenticated: the host application, a proxy or a provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from ...ops.sign_in.rights import Rights
from .credentials import MAX_NAME_CHARS, Role, name_of

POLLING = "redrive.polling"
"""Extension of the ASGI scope: the host application can hold no streams, so that pages poll."""


@dataclass(frozen=True, slots=True)
class User:
    """A user of the host application, as `who=` returns it. Immutable.

    Attributes:
        name: The name in the audit log, at most 100 printable characters.
        role: `viewer` may read, `operator` may also act.
        rights: Acts and job types of an operator. None: all.
    """

    name: str
    role: Role = "viewer"
    rights: Rights | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            TypeError: A field has another type.
            ValueError: The name is empty, too long, not printable or reserved, or the role is
                unknown.
        """
        if not isinstance(self.name, str):
            raise TypeError(f"User: name must be text, not {type(self.name).__name__}")
        if not self.name or name_of(self.name) != self.name:
            raise ValueError(
                f"User: invalid name {self.name[: MAX_NAME_CHARS + 1]!r}; use 1 to "
                f"{MAX_NAME_CHARS} printable characters without surrounding space, and not redrive"
            )
        if self.role not in get_args(Role):
            raise ValueError(f"User: invalid role {self.role!r}; use viewer or operator")
        if self.rights is not None and not isinstance(self.rights, Rights):
            raise TypeError(
                f"User: rights must be redrive.console.Rights, not {type(self.rights).__name__}"
            )


class SignInRefused(Exception):
    """A sign-in at a provider failed. The message is for the person."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
