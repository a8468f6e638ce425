"""Access: who may come in, and what they may do. Passwords and tokens are kept as hashes, compared in constant time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..core.clock import SYSTEM, Clock

Role: TypeAlias = Literal["operator", "viewer"]
SESSION = 12 * 3600.0
"""Seconds for which a session lasts."""
SHORTEST_PASSWORD, SHORTEST_TOKEN = 8, 16
LONGEST_NAME = 100
COST = {"n": 2**14, "r": 8, "p": 1, "maxmem": 2**26}


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who was let in. Immutable."""

    name: str
    """As the audit will have it."""
    role: Role
    by: Literal["password", "token", "loopback"]
    session: str
    """What their CSRF token is bound to."""

    @property
    def may_act(self) -> bool:
        """Whether they may change anything."""
        return self.role == "operator"


class Access:
    """What was set up: passwords, tokens, roles. Immutable after it is made; threads and loops may share one."""

    def __init__(
        self, *, password: str | None = None, token: str | None = None, viewer_password: str | None = None,
        viewer_token: str | None = None, read_only: bool = False, clock: Clock = SYSTEM,
    ) -> None:  # fmt: skip
        """ValueError where one of them is too short to be one."""
        self.read_only = read_only
        self._clock = clock
        self._salt = secrets.token_bytes(16)
        self._passwords: list[tuple[bytes, Role]] = []
        self._tokens: list[tuple[bytes, Role]] = []
        given: tuple[tuple[str, str | None, Role], ...] = (
            ("password", password, "operator"), ("viewer_password", viewer_password, "viewer"),
            ("token", token, "operator"), ("viewer_token", viewer_token, "viewer"),
        )  # fmt: skip
        for name, secret, role in given:
            if secret is None:
                continue
            least = SHORTEST_PASSWORD if name.endswith("password") else SHORTEST_TOKEN
            if not isinstance(secret, str) or len(secret) < least:
                raise ValueError(f"{name}= must have at least {least} characters")
            if name.endswith("password"):
                self._passwords.append((self._hashed(secret), role))
            else:
                self._tokens.append((hashlib.sha256(secret.encode()).digest(), role))
        # From the passwords, so that several processes of one service, and one that was started anew, know each other's sessions.
        seed = "\0".join(one or "" for one in (password, viewer_password))
        self._key = self._stretched(seed) if self._passwords else secrets.token_bytes(32)

    @property
    def guarded(self) -> bool:
        """Whether a password or a token is asked for. If not, only this machine is answered."""
        return bool(self._passwords or self._tokens)

    @property
    def by_password(self) -> bool:
        """Whether people can sign in."""
        return bool(self._passwords)

    def role_of(self, password: str, /) -> Role | None:
        """What somebody with this password may do; None: it is none of ours. Slow on purpose."""
        hashed = self._hashed(password)
        found = [role for known, role in self._passwords if hmac.compare_digest(known, hashed)]
        return self._most(found)

    def by_token(self, token: str, actor: str, /) -> Who | None:
        """Who comes with this token."""
        hashed = hashlib.sha256(token.encode()).digest()
        found = [role for known, role in self._tokens if hmac.compare_digest(known, hashed)]
        role = self._most(found)
        return None if role is None else Who(name_of(actor) or "token", role, "token", "")

    def here(self, name: str, /) -> Who:
        """Whoever is at this machine, where no password was set."""
        return Who(name, "viewer" if self.read_only else "operator", "loopback", "loopback")

    def _most(self, found: list[Role]) -> Role | None:
        if not found:
            return None
        return "viewer" if self.read_only or "operator" not in found else "operator"

    # ---- sessions ----

    def opened(self, name: str, role: Role, /) -> str:
        """A session, as its cookie holds it: who, what they may do, until when; signed."""
        until = int(self._clock.now().timestamp() + SESSION)
        said = json.dumps([name, role, until, secrets.token_hex(8)], separators=(",", ":")).encode()
        body = base64.urlsafe_b64encode(said).decode().rstrip("=")
        return f"{body}.{self._signed('session', body)}"

    def session(self, cookie: str, /) -> Who | None:
        """Whose session it is; None: it is not signed by us, or over."""
        body, _, signature = cookie.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signed("session", body).encode()):
            return None
        name, role, until, _ = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        if until < self._clock.now().timestamp():
            return None
        return Who(name, "viewer" if self.read_only else role, "password", body)

    def csrf(self, session: str, /) -> str:
        """What every form of a session carries, and no other site can know."""
        return self._signed("csrf", session)

    def is_csrf(self, session: str, given: str, /) -> bool:
        """Whether a form is one of ours, for this session."""
        return hmac.compare_digest(self.csrf(session).encode(), given.encode())

    def _signed(self, use: str, text: str) -> str:
        return hmac.new(self._key, f"{use}:{text}".encode(errors="replace"), hashlib.sha256).hexdigest()

    def _hashed(self, password: str) -> bytes:
        return hashlib.scrypt(password.encode(errors="replace"), salt=self._salt, **COST)

    @staticmethod
    def _stretched(seed: str) -> bytes:
        return hashlib.scrypt(seed.encode(errors="replace"), salt=b"redrive.console.session", **COST)


def name_of(text: str, /) -> str:
    """A name as the audit can hold it: printable, in one line, not too long; empty where nothing is left."""
    return "".join(each for each in text if each.isprintable()).strip()[:LONGEST_NAME]
