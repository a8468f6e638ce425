"""Access: who may come in, and what they may do. Passwords and tokens are kept as hashes, compared in constant time."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...core.clock import SYSTEM, Clock
from ...ops.actor import PROGRAM
from ...ops.secret import QUICK, SHORTEST_PASSWORD, SHORTEST_TOKEN, TOKEN, Password, hashed_token, is_hashed, keep_secret

Role: TypeAlias = Literal["operator", "viewer"]
SESSION = 12 * 3600.0
"""Seconds for which a session lasts."""
DEVICE = 90 * 86400.0
"""Seconds for which a browser is known after a sign-in."""
SHORTEST_SECRET = 32
LONGEST_NAME = 100
HASHED_AT_ONCE = 1
"""Passwords that are checked at once, of known browsers and of others: each takes a processor, and 16 MB and more."""
WAITING_AT_MOST = 8
"""Requests that wait for their password to be checked. Each holds a thread that pages need too."""


class Busy(Exception):
    """Too many passwords are being checked."""


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who was let in. Immutable."""

    name: str
    """As the audit will have it."""
    role: Role
    by: Literal["password", "token", "loopback"]
    session: str
    """What they alone have: their CSRF token is made of it."""

    @property
    def may_act(self) -> bool:
        """Whether they may change anything."""
        return self.role == "operator"


class Access:
    """What was set up: passwords, tokens, roles. Immutable after it is made; threads and loops may share one."""

    def __init__(
        self, *, password: str | None = None, token: str | None = None, viewer_password: str | None = None,
        viewer_token: str | None = None, secret: str | None = None, read_only: bool = False, clock: Clock = SYSTEM,
    ) -> None:  # fmt: skip
        """Passwords and tokens as they are, or hashed. ValueError where one of them is too short to be one, or no hash."""
        self.read_only = read_only
        self._clock = clock
        self._seat = secrets.token_hex(16)
        self.local_token = secrets.token_urlsafe(24)
        """Lets in the account that started the console, where no password was set. Other accounts of the machine lack it."""
        self._checking = {known: threading.Semaphore(HASHED_AT_ONCE) for known in (True, False)}
        self._waiting = {known: threading.Semaphore(WAITING_AT_MOST) for known in (True, False)}
        self._passwords: dict[Role, Password] = {}
        self._tokens: dict[Role, str] = {}
        self._keys: dict[Role, bytes] = {}
        _long_enough("secret", secret, SHORTEST_SECRET)
        given: tuple[tuple[Role, str, str | None, str | None], ...] = (
            ("operator", "", password, token), ("viewer", "viewer_", viewer_password, viewer_token),
        )  # fmt: skip
        keep_secret(password, token, viewer_password, viewer_token, secret)
        for role, prefix, word, key in given:
            if word is not None:
                self._passwords[role] = _password(f"{prefix}password", word)
                self._keys[role] = _signing(role, word, secret)
            if key is not None:
                self._tokens[role] = _token(f"{prefix}token", key)

    @property
    def guarded(self) -> bool:
        """Whether a password or a token is asked for. If not, only this machine is answered."""
        return bool(self._passwords or self._tokens)

    @property
    def by_password(self) -> bool:
        """Whether people can sign in."""
        return bool(self._passwords)

    def role_of(self, password: str, /, *, known: bool = False) -> Role | None:
        """What somebody with this password may do; None: it is none of ours. Slow on purpose. Busy: too many are asking.

        known: from a browser that has signed in before. Known browsers do not queue behind strangers.
        """
        if not self._waiting[known].acquire(blocking=False):
            raise Busy
        try:
            with self._checking[known]:
                return self._most([role for role, stored in self._passwords.items() if stored.matches(password)])
        finally:
            self._waiting[known].release()

    def by_token(self, token: str, actor: str, /) -> Who | None:
        """Who comes with this token."""
        hashed = hashed_token(token)
        role = self._most([role for role, known in self._tokens.items() if hmac.compare_digest(known, hashed)])
        return None if role is None else Who(name_of(actor) or "token", role, "token", "")

    def here(self, name: str, /, *, by: Literal["loopback", "token"] = "loopback") -> Who:
        """The account that started the console, where no password was set."""
        return Who(name, "viewer" if self.read_only else "operator", by, self._seat)

    def is_local_token(self, given: str, /) -> bool:
        """Whether this is the token of the printed address."""
        return hmac.compare_digest(self.local_token.encode(), given.encode(errors="replace"))

    def local_cookie(self) -> str:
        """What the browser keeps in place of the token."""
        return _signed(self.local_token.encode(), "local")

    def is_local_cookie(self, given: str, /) -> bool:
        """Whether a browser was let in by the token."""
        return hmac.compare_digest(self.local_cookie().encode(), given.encode(errors="replace"))

    def _most(self, found: list[Role]) -> Role | None:
        if not found:
            return None
        return "viewer" if self.read_only or "operator" not in found else "operator"

    # ---- sessions ----

    def opened(self, name: str, role: Role, /) -> str:
        """A session, as its cookie holds it: who, until when; signed by the key of its role."""
        until = int(self._clock.now().timestamp() + SESSION)
        said = json.dumps([name, until, secrets.token_hex(8)], separators=(",", ":")).encode()
        body = base64.urlsafe_b64encode(said).decode().rstrip("=")
        key = self._keys["viewer"] if role == "viewer" and "viewer" in self._keys else self._keys["operator"]
        return f"{body}.{_signed(key, f'session:{body}')}"

    def session(self, cookie: str, /) -> Who | None:
        """Whose session it is; None: it is not signed by us, or over. The key that fits says what they may do."""
        body, _, signature = cookie.partition(".")
        role = self._most(
            [
                role
                for role, key in self._keys.items()
                if hmac.compare_digest(signature.encode(), _signed(key, f"session:{body}").encode())
            ]
        )
        if role is None:
            return None
        try:  # whoever knows a password could sign anything
            name, until, _ = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            over, name = float(until) < self._clock.now().timestamp(), name_of(str(name))
        except (ValueError, TypeError):
            return None
        return None if over or not name else Who(name, role, "password", cookie)

    def device(self) -> str:
        """Make the cookie of a known browser: wrong passwords of others do not slow it down."""
        body = f"{int(self._clock.now().timestamp() + DEVICE)}-{secrets.token_hex(8)}"
        return f"{body}.{_signed(self._device_key(), f'device:{body}')}"

    def is_device(self, cookie: str, /) -> bool:
        """Whether this browser has signed in before."""
        if not self._keys:
            return False
        body, _, signature = cookie.partition(".")
        known = hmac.compare_digest(signature.encode(errors="replace"), _signed(self._device_key(), f"device:{body}").encode())
        return known and int(body.partition("-")[0]) > self._clock.now().timestamp()

    def _device_key(self) -> bytes:
        return b"".join(self._keys[role] for role in sorted(self._keys))

    @staticmethod
    def csrf(session: str, /, use: str = "form") -> str:
        """What every form of a session carries, and no other site can know. use: what else a session vouches for."""
        return _signed(session.encode(errors="replace"), f"csrf:{use}")

    @classmethod
    def is_csrf(cls, session: str, given: str, /, use: str = "form") -> bool:
        """Whether a form is one of ours, for this session."""
        return hmac.compare_digest(cls.csrf(session, use).encode(), given.encode(errors="replace"))


def _password(name: str, text: str) -> Password:
    _long_enough(name, text, SHORTEST_PASSWORD)
    if not is_hashed(text):
        return Password.create(text, QUICK)
    try:
        return Password.read(text)
    except ValueError as wrong:
        raise ValueError(f"{name}= {wrong}") from None


def _token(name: str, text: str) -> str:
    _long_enough(name, text, SHORTEST_TOKEN)
    if is_hashed(text) and not TOKEN.fullmatch(text):
        raise ValueError(f"{name}= is not a valid token hash; create one with `redrive serve --hash token`")
    return text if is_hashed(text) else hashed_token(text)


def _signing(role: Role, password: str, secret: str | None) -> bytes:
    """The key that signs the sessions of a role.

    Of the secret, where there is one. Else of the role's own password, so that several processes of one service, and one that
    was started anew, know each other's sessions, and nobody learns by a session what the other role's password is. Not of a
    hash: whoever reads that could sign.
    """
    if secret is not None:
        return hmac.new(secret.encode(errors="replace"), f"{role}:{password}".encode(errors="replace"), hashlib.sha256).digest()
    if is_hashed(password):
        return secrets.token_bytes(32)
    salt = f"redrive.console.session.{role}".encode()
    return hashlib.scrypt(password.encode(errors="replace"), salt=salt, n=2**14, r=8, p=1, maxmem=2**26)


def _signed(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(errors="replace"), hashlib.sha256).hexdigest()


def _long_enough(name: str, text: str | None, least: int) -> None:
    if text is not None and (not isinstance(text, str) or len(text) < least):
        raise ValueError(f"{name}= must have at least {least} characters")


def name_of(text: str, /) -> str:
    """A name as the audit can hold it: printable, in one line, not too long; empty where nothing is left, or it is ours."""
    name = "".join(each for each in text if each.isprintable()).strip()[:LONGEST_NAME].strip()
    return "" if name == PROGRAM else name
