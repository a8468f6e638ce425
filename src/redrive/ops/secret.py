"""Secret: a password or a token of the console as it may stand in a file: hashed, so that whoever reads it cannot come in by it.

Without `$`, which shells and compose files take for theirs: `scrypt:16384:8:5:SALT:HASH` of a password, which people choose and
guess, so that it is slow; `sha256:HASH` of a token, which nobody can guess, so that it is quick.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from ..journal.redaction.values import keep_secret as keep_secret  # noqa: PLC0414  # the console has it from here
from ..journal.redaction.values import redact_values

HIDDEN = "***"
SHORTEST_PASSWORD, SHORTEST_TOKEN = 8, 16
SCHEMES = ("scrypt:", "sha256:")
COST = (2**14, 8, 5)
"""n, r and p of scrypt: 16 MB, and about a fifth of a second."""
QUICK = (2**14, 8, 1)
"""Of what is kept in memory alone, beside the password itself."""
MEMORY = 2**27
"""Bytes that one check of a password may take."""
PASSWORD = re.compile(r"scrypt:([1-9]\d{0,7}):([1-9]\d{0,2}):([1-9]\d{0,2}):([A-Za-z0-9_-]{22,64}):([A-Za-z0-9_-]{43})")
TOKEN = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Password:
    """A password as it is kept. Immutable."""

    cost: tuple[int, int, int]
    salt: bytes
    digest: bytes

    @classmethod
    def made(cls, password: str, /, cost: tuple[int, int, int] = COST) -> Password:
        """Of a password in plain words, with salt of its own."""
        salt = secrets.token_bytes(16)
        return cls(cost, salt, _scrypt(password, salt, cost))

    @classmethod
    def read(cls, text: str, /) -> Password:
        """Of a hash. ValueError: it is none of ours, or would take too much memory."""
        found = PASSWORD.fullmatch(text)
        if found is None:
            raise ValueError("is not a valid password hash; create one with `redrive serve --hash password`")
        n, r, p = (int(each) for each in found.groups()[:3])
        if n & (n - 1) or n < 2 or 128 * n * r >= MEMORY or p > 64:
            raise ValueError(f"has an unsupported cost {n}:{r}:{p}; create another with `redrive serve --hash password`")
        return cls((n, r, p), _bytes(found[4]), _bytes(found[5]))

    def __str__(self) -> str:
        return ":".join(("scrypt", *map(str, self.cost), _text(self.salt), _text(self.digest)))

    def is_(self, given: str, /) -> bool:
        """Whether this is it. Slow on purpose."""
        return hmac.compare_digest(self.digest, _scrypt(given, self.salt, self.cost))


def hashed_token(token: str, /) -> str:
    """As a file may have it. For tokens that were drawn, not thought up: it is quick."""
    return "sha256:" + hashlib.sha256(token.encode(errors="replace")).hexdigest()


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


def is_hashed(text: str, /) -> bool:
    """Whether it is meant to be a hash, by how it begins."""
    return text.startswith(SCHEMES)


def _scrypt(password: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    n, r, p = cost
    return hashlib.scrypt(password.encode(errors="replace"), salt=salt, n=n, r=r, p=p, maxmem=2 * MEMORY, dklen=32)


def _text(some: bytes) -> str:
    return base64.urlsafe_b64encode(some).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def without_secrets(text: str, /) -> str:
    """A message for a terminal, without the secrets that this program was given."""
    return redact_values(text, HIDDEN)
