"""Named tokens of the console: create, list and revoke them.

A token is stored as its digest. It is shown once, when it is created.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from ...ledger import access
from ...ledger.access import StoredToken
from ..context import PROGRAM, OperatorContext, check_reason
from .hashes import hashed_token, keep_secret
from .rights import Rights

TokenRole: TypeAlias = Literal["viewer", "operator"]
PREFIX = "redrive_"
"""So that scanners of secrets, and the redaction of Redrive, recognise a token."""
MAX_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class TokenLine:
    """A named token, without the token itself."""

    name: str
    role: str
    acts: tuple[str, ...] | None
    """Allowed acts of an operator. None: all."""
    job_types: tuple[str, ...] | None
    """Allowed job types. None: all."""
    state: Literal["valid", "expired", "revoked"]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    """None: never."""
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was created. It cannot be shown again."""

    token: str
    line: TokenLine


@dataclass(frozen=True, slots=True)
class TokenOperations:
    """Operations on named tokens of the console, as `Operator.tokens`. Threads may share one."""

    _context: OperatorContext

    def find(self) -> list[TokenLine]:
        """Return all tokens, also expired and revoked ones.

        Returns:
            The tokens, by name.
        """
        ledger = self._context.ledger
        now = ledger.now()
        with ledger.reading() as connection:
            return [_line(token, now) for token in access.list_tokens(connection)]

    def create(
        self,
        name: str,
        /,
        *,
        because: str,
        role: TokenRole = "viewer",
        acts: Collection[str] | None = None,
        job_types: Collection[str] | None = None,
        expires_at: datetime | None = None,
    ) -> NewToken:
        """Create a token for a program.

        Args:
            name: Name of the program. The audit log records its actions under this name.
            because: Why, for the audit log.
            role: `viewer` reads, `operator` also acts.
            acts: Allowed acts, such as `replay`. With acts, the token is an operator's.
            job_types: Allowed job types, or patterns such as `orders.*`. None: all.
            expires_at: When it expires. None: never.

        Returns:
            The token.

        Raises:
            ValueError: A value is not valid. Nothing was changed.
            NotAllowed: A valid token of this name exists. Nothing was changed.
        """
        check_reason(because)
        self._context.require("access", None)
        _check_name(name)
        if role not in ("viewer", "operator"):
            raise ValueError(f"role {role!r}: unknown; use viewer or operator")
        rights = Rights(acts, job_types)
        ledger = self._context.ledger
        now = ledger.now()
        if expires_at is not None and expires_at <= now:
            raise ValueError(
                f"expiry {expires_at.isoformat()}: has passed; use a later time; "
                "nothing was changed"
            )
        text = PREFIX + secrets.token_urlsafe(32)
        keep_secret(text)
        token = StoredToken(
            name=name,
            digest=hashed_token(text),
            role="operator" if acts else role,
            acts=None if rights.acts is None else tuple(sorted(rights.acts)),
            job_types=None if rights.job_types is None else tuple(sorted(rights.job_types)),
            created_at=now,
            created_by=self._context.actor,
            expires_at=expires_at,
            revoked_at=None,
        )
        with ledger.connections.write.use() as session:
            access.create_token(session, token, actor=self._context.actor, because=because)
        return NewToken(text, _line(token, now))

    def revoke(self, name: str, /, *, because: str) -> None:
        """Revoke a token. Consoles reject it within two seconds.

        Args:
            name: Name of the token.
            because: Why, for the audit log.

        Raises:
            NotAllowed: There is no such token, or it is revoked already. Nothing was changed.
        """
        check_reason(because)
        self._context.require("access", None)
        with self._context.ledger.connections.write.use() as session:
            access.revoke_token(session, name, actor=self._context.actor, because=because)


def _check_name(name: object) -> None:
    is_valid = isinstance(name, str) and name.isprintable() and name.strip() == name != ""
    if not is_valid or name == PROGRAM or len(str(name)) > MAX_NAME_CHARS:
        raise ValueError(
            f"name {name!r}: invalid; use 1 to {MAX_NAME_CHARS} printable characters without "
            f"surrounding space, and not {PROGRAM}; nothing was changed"
        )


def _line(token: StoredToken, now: datetime) -> TokenLine:
    state: Literal["valid", "expired", "revoked"] = "valid"
    if token.revoked_at is not None:
        state = "revoked"
    elif not token.is_valid(now):
        state = "expired"
    return TokenLine(
        name=token.name,
        role=token.role,
        acts=token.acts,
        job_types=token.job_types,
        state=state,
        created_at=token.created_at,
        created_by=token.created_by,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )
