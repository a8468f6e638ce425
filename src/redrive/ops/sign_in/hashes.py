"""Hashes of the console's passwords and tokens, for files that others may read.

A password is hashed slowly as `scrypt:16384:8:5:SALT:HASH`, because people choose guessable ones. A
token is random, so `sha256:HASH` is enough. Neither has a `$`, which shells and compose files would
expand.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from ...journal.redaction import redact_text as redact_text  # noqa: PLC0414  # the console has it from here
from ...journal.redaction.secrets import keep_secret as keep_secret  # noqa: PLC0414  # the console has it from here
from ...journal.redaction.secrets import redact_values

HIDDEN = "***"
SHORTEST_PASSWORD, SHORTEST_TOKEN = 8, 16
SCHEMES = ("scrypt:", "sha256:")
COST = (2**14, 8, 5)
"""n, r and p of scrypt: 16 MB and about 0.2 s."""
QUICK = (2**14, 8, 1)
"""Cost of a hash that is kept in memory only, beside the password itself."""
MEMORY = 2**27
"""Bytes of memory for one check of a password."""
PASSWORD = re.compile(
    r"scrypt:([1-9]\d{0,7}):([1-9]\d{0,2}):([1-9]\d{0,2}):([A-Za-z0-9_-]{22,64}):([A-Za-z0-9_-]{43})"
)
TOKEN = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Password:
    """A hashed password. Immutable."""

    cost: tuple[int, int, int]
    salt: bytes
    digest: bytes

    @classmethod
    def create(cls, password: str, /, cost: tuple[int, int, int] = COST) -> Password:
        """Hash a password with a new salt."""
        salt = secrets.token_bytes(16)
        return cls(cost, salt, _scrypt(password, salt, cost))

    @classmethod
    def read(cls, text: str, /) -> Password:
        """Parse a hash. Raise ValueError if it is not valid, or needs too much memory."""
        match = PASSWORD.fullmatch(text)
        if match is None:
            raise ValueError(
                "is not a valid password hash; create one with `redrive serve --hash password`"
            )
        n, r, p = (int(each) for each in match.groups()[:3])
        if n & (n - 1) or n < 2 or 128 * n * r >= MEMORY or p > 64:
            raise ValueError(
                f"has an unsupported cost {n}:{r}:{p}; create another with `redrive serve "
                "--hash password`"
            )
        return cls((n, r, p), _bytes(match[4]), _bytes(match[5]))

    def __str__(self) -> str:
        return ":".join(("scrypt", *map(str, self.cost), _text(self.salt), _text(self.digest)))

    def matches(self, password: str, /) -> bool:
        """Return whether this is the password. Slow on purpose."""
        return hmac.compare_digest(self.digest, _scrypt(password, self.salt, self.cost))


def hashed_token(token: str, /) -> str:
    """Return the hash of a token. Only for random tokens, because it is fast."""
    return "sha256:" + hashlib.sha256(token.encode(errors="replace")).hexdigest()


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(32)


def is_hashed(text: str, /) -> bool:
    """Return whether a text starts like a hash."""
    return text.startswith(SCHEMES)


def _scrypt(password: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    n, r, p = cost
    return hashlib.scrypt(
        password.encode(errors="replace"), salt=salt, n=n, r=r, p=p, maxmem=2 * MEMORY, dklen=32
    )


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def without_secrets(text: str, /) -> str:
    """Return a message for a terminal, without the secrets that this program knows."""
    return redact_values(text, HIDDEN)
