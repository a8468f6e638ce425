"""Access control: passwords, tokens, sessions and roles.

Passwords and tokens are kept as hashes, and compared in constant time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from ...core.clock import SYSTEM, Clock
from ...ops.context import PROGRAM
from ...ops.sign_in.hashes import (
    QUICK,
    SHORTEST_PASSWORD,
    SHORTEST_TOKEN,
    TOKEN,
    Password,
    hashed_token,
    is_hashed,
    keep_secret,
)
from ...ops.sign_in.rights import Rights
from ...ops.sign_in.sessions import StoredSession, StoredToken

Role: TypeAlias = Literal["operator", "viewer"]
Way: TypeAlias = Literal["password", "token", "loopback", "host", "proxy", "oidc"]
"""How an identity was authenticated."""
SESSION_SECONDS = 12 * 3600.0
DEVICE_SECONDS = 90 * 86400.0
"""How long a browser is known after a login."""
MIN_SECRET_CHARS = 32
MAX_NAME_CHARS = 100
CONCURRENT_CHECKS = 1
"""Passwords that are checked at the same time, for known browsers and for others.

Each check occupies a processor and at least 16 MB.
"""
MAX_WAITING_CHECKS = 8
"""Requests that wait for their password check. Each holds a thread that pages need too."""


class TooManyLogins(Exception):
    """Too many passwords are being checked."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated person or program. Immutable."""

    name: str
    """The name in the audit log."""
    role: Role
    by: Way
    session: str
    """A secret of the session. Its CSRF token is derived from it."""
    rights: Rights | None = None
    """Acts and job types of an operator. None: all."""
    detail: str = ""
    """What else the audit log says about the way in: the name of the token."""

    @property
    def via(self) -> str:
        """How it was authenticated, for the audit log."""
        return f"{self.by} {self.detail}".strip()

    @property
    def may_act(self) -> bool:
        """Whether this identity may change anything."""
        return self.role == "operator"

    def may(self, act: str, /, *names: str | None) -> bool:
        """Whether this identity may do an act to these job types. None: it belongs to none."""
        return self.may_act and (self.rights is None or self.rights.permits(act, *names))


class Authenticated(Protocol):
    """A user whom another program has authenticated. See `User`."""

    @property
    def name(self) -> str:
        """The name in the audit log."""

    @property
    def role(self) -> Role:
        """The role."""

    @property
    def rights(self) -> Rights | None:
        """Acts and job types of an operator. None: all."""


class AccessControl:
    """The configured passwords, tokens and roles. Immutable. Threads and loops may share one."""

    def __init__(
        self,
        *,
        password: str | None = None,
        token: str | None = None,
        viewer_password: str | None = None,
        viewer_token: str | None = None,
        secret: str | None = None,
        read_only: bool = False,
        has_users: bool = False,
        clock: Clock = SYSTEM,
    ) -> None:
        """Configure the access. Passwords and tokens may be hashed.

        Args:
            password: Password of operators.
            token: Token of operators.
            viewer_password: Password of viewers.
            viewer_token: Token of viewers.
            secret: Key that signs sessions.
            read_only: Whether every identity is a viewer.
            has_users: Whether another program authenticates users, such as the host application.
            clock: The clock.

        Raises:
            ValueError: One of them is too short, or is an invalid hash.
        """
        self.read_only = read_only
        self._has_users = has_users
        self._clock = clock
        self._local_session = secrets.token_hex(16)
        self.local_token = secrets.token_urlsafe(24)
        """Without a password: lets in the account that started the console, and no other one."""
        self._checking = {known: threading.Semaphore(CONCURRENT_CHECKS) for known in (True, False)}
        self._waiting = {known: threading.Semaphore(MAX_WAITING_CHECKS) for known in (True, False)}
        self._passwords: dict[Role, Password] = {}
        self._tokens: dict[Role, str] = {}
        self._signing_keys: dict[Role, bytes] = {}
        _check_length("secret", secret, MIN_SECRET_CHARS)
        keep_secret(password, token, viewer_password, viewer_token, secret)
        self._add_role("operator", "", password, token, secret)
        self._add_role("viewer", "viewer_", viewer_password, viewer_token, secret)

    def _add_role(
        self, role: Role, prefix: str, password: str | None, token: str | None, secret: str | None
    ) -> None:
        if password is not None:
            self._passwords[role] = _read_password(f"{prefix}password", password)
            self._signing_keys[role] = _signing_key(role, password, secret)
        if token is not None:
            self._tokens[role] = _read_token(f"{prefix}token", token)

    @property
    def is_protected(self) -> bool:
        """Whether requests are authenticated. If not, only this machine has access."""
        return bool(self._passwords or self._tokens or self._has_users)

    @property
    def has_passwords(self) -> bool:
        """Whether people can log in."""
        return bool(self._passwords)

    def check_password(self, password: str, /, *, known: bool = False) -> Role | None:
        """Return the role of a password. Slow on purpose.

        Args:
            password: The password to check.
            known: Whether the browser has logged in before. Known browsers do not queue behind
                strangers.

        Returns:
            The role, or None if the password is wrong.

        Raises:
            TooManyLogins: Too many requests wait for their check.
        """
        if not self._waiting[known].acquire(blocking=False):
            raise TooManyLogins
        try:
            with self._checking[known]:
                return self._highest(
                    role for role, stored in self._passwords.items() if stored.matches(password)
                )
        finally:
            self._waiting[known].release()

    def check_token(self, token: str, actor: str, /) -> Identity | None:
        """Return the identity of a program with this token, or None."""
        digest = hashed_token(token)
        role = self._highest(
            role for role, stored in self._tokens.items() if hmac.compare_digest(stored, digest)
        )
        return None if role is None else Identity(name_of(actor) or "token", role, "token", "")

    def named_token_identity(self, token: StoredToken, /) -> Identity:
        """Return the identity of a named token, which acts under its own name."""
        rights = Rights(token.acts, token.job_types)
        role: Role = "operator" if token.role == "operator" and not self.read_only else "viewer"
        return Identity(token.name, role, "token", "", rights, detail=token.name)

    def local_identity(
        self, name: str, /, *, by: Literal["loopback", "token"] = "loopback"
    ) -> Identity:
        """Return the identity of the account that started a console without a password."""
        return Identity(name, "viewer" if self.read_only else "operator", by, self._local_session)

    def user_identity(self, user: Authenticated, /, *, by: Way, browser: str) -> Identity:
        """Return the identity of a user whom another program has authenticated.

        Args:
            user: The user.
            by: How the user was authenticated.
            browser: The random cookie of the browser. Forms are bound to it and to the user.
        """
        session = f"{browser}:{by}:{user.name}"
        role: Role = "viewer" if self.read_only else user.role
        return Identity(user.name, role, by, session, user.rights)

    def stored_identity(self, stored: StoredSession, cookie: str, /) -> Identity:
        """Return the identity of a session that a provider has authenticated."""
        role: Role = "operator" if stored.role == "operator" and not self.read_only else "viewer"
        rights = Rights(stored.acts, stored.job_types)
        detail = stored.via.partition(" ")[2]
        return Identity(stored.name, role, "oidc", cookie, rights, detail)

    def is_local_token(self, text: str, /) -> bool:
        """Whether this is the token of the printed URL."""
        return _is_same(self.local_token, text)

    def local_cookie(self) -> str:
        """Return the cookie that replaces the token of the printed URL."""
        return _sign(self.local_token.encode(), "local")

    def is_local_cookie(self, text: str, /) -> bool:
        """Whether a browser was let in by the token of the printed URL."""
        return _is_same(self.local_cookie(), text)

    def _highest(self, roles: Iterable[Role]) -> Role | None:
        matching = set(roles)
        if not matching:
            return None
        return "viewer" if self.read_only or "operator" not in matching else "operator"

    # ---- sessions ----

    def create_session(self, name: str, role: Role, /) -> str:
        """Return the cookie of a new session: name and expiry, signed by the key of the role."""
        until = int(self._clock.now().timestamp() + SESSION_SECONDS)
        content = json.dumps([name, until, secrets.token_hex(8)], separators=(",", ":")).encode()
        body = base64.urlsafe_b64encode(content).decode().rstrip("=")
        key = self._signing_keys.get("viewer") if role == "viewer" else None
        return f"{body}.{_sign(key or self._signing_keys['operator'], f'session:{body}')}"

    def read_session(self, cookie: str, /) -> Identity | None:
        """Return the identity of a session, or None if it is expired or not signed here.

        The key that fits the signature determines the role.
        """
        body, _, signature = cookie.partition(".")
        role = self._highest(
            role
            for role, key in self._signing_keys.items()
            if _is_same(_sign(key, f"session:{body}"), signature)
        )
        if role is None:
            return None
        try:  # a person who knows a password could sign any content
            name, until, _ = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            expired = float(until) < self._clock.now().timestamp()
            name = name_of(str(name))
        except (ValueError, TypeError):
            return None
        return None if expired or not name else Identity(name, role, "password", cookie)

    def create_device_cookie(self) -> str:
        """Return the cookie of a known browser, which wrong passwords of others do not slow."""
        body = f"{int(self._clock.now().timestamp() + DEVICE_SECONDS)}-{secrets.token_hex(8)}"
        return f"{body}.{_sign(self._device_key(), f'device:{body}')}"

    def is_known_device(self, cookie: str, /) -> bool:
        """Whether this browser has logged in before."""
        if not self._signing_keys:
            return False
        body, _, signature = cookie.partition(".")
        if not _is_same(_sign(self._device_key(), f"device:{body}"), signature):
            return False
        return int(body.partition("-")[0]) > self._clock.now().timestamp()

    def _device_key(self) -> bytes:
        return b"".join(self._signing_keys[role] for role in sorted(self._signing_keys))

    @staticmethod
    def csrf_token(session: str, /, purpose: str = "form") -> str:
        """Return the token that every form of a session carries, and no other site can know.

        Args:
            session: The secret of the session.
            purpose: What the token is for.
        """
        return _sign(session.encode(errors="replace"), f"csrf:{purpose}")

    @classmethod
    def is_csrf_token(cls, session: str, text: str, /, purpose: str = "form") -> bool:
        """Whether a form belongs to this session."""
        return _is_same(cls.csrf_token(session, purpose), text)


def _read_password(option: str, text: str) -> Password:
    _check_length(option, text, SHORTEST_PASSWORD)
    if not is_hashed(text):
        return Password.create(text, QUICK)
    try:
        return Password.read(text)
    except ValueError as error:
        raise ValueError(f"{option}= {error}") from None


def _read_token(option: str, text: str) -> str:
    _check_length(option, text, SHORTEST_TOKEN)
    if is_hashed(text) and not TOKEN.fullmatch(text):
        raise ValueError(
            f"{option}= is not a valid token hash; create one with `redrive serve --hash token`"
        )
    return text if is_hashed(text) else hashed_token(text)


def _signing_key(role: Role, password: str, secret: str | None) -> bytes:
    """Return the key that signs the sessions of a role.

    With a secret, the key is derived from it. Otherwise it is derived from the password of the
    role, so that several processes of a service accept each other's sessions, also after a restart.
    A session then reveals nothing about the password of the other role. A hash is not used, because
    a reader of the hash could sign sessions.
    """
    if secret is not None:
        message = f"{role}:{password}".encode(errors="replace")
        return hmac.new(secret.encode(errors="replace"), message, hashlib.sha256).digest()
    if is_hashed(password):
        return secrets.token_bytes(32)
    salt = f"redrive.console.session.{role}".encode()
    return hashlib.scrypt(
        password.encode(errors="replace"), salt=salt, n=2**14, r=8, p=1, maxmem=2**26
    )


def _sign(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(errors="replace"), hashlib.sha256).hexdigest()


def _is_same(expected: str, text: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(expected.encode(), text.encode(errors="replace"))


def _check_length(option: str, text: str | None, minimum: int) -> None:
    if text is not None and (not isinstance(text, str) or len(text) < minimum):
        raise ValueError(f"{option}= must have at least {minimum} characters")


def name_of(text: str, /) -> str:
    """Return a name for the audit log: printable, on one line, of limited length.

    Empty if no character is left, or if the name is reserved for Redrive.
    """
    printable = "".join(char for char in text if char.isprintable())
    name = printable.strip()[:MAX_NAME_CHARS].strip()
    return "" if name == PROGRAM else name
