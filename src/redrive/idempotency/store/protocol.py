"""KeyStore: the operations on a stored key that each database implements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ...ledger.statement import Runner
from ..decision import KeyRow, Row
from ..record import KeyId

Held: TypeAlias = tuple[KeyId, int]
"""A key and the fence of its holder."""


class BeginTerms(NamedTuple):
    """What a caller begins with."""

    request_hash: bytes | None
    holder: str
    lease: float
    """Seconds of the lease."""
    keep: float
    """Seconds for which the key is stored."""


class KeyStore(Protocol):
    """The operations on one connection. Stateless: anything may share it."""

    has_single_writer: bool
    """Only one transaction can write at a time, and readers do not wait for it."""

    def read(self, run: Runner, key: KeyId, /) -> Row | None:
        """Return the values of a `KeyRow`, or None."""

    def insert(self, run: Runner, key: KeyId, terms: BeginTerms, /, *, in_caller: bool) -> int | None:
        """Begin a key that has no row.

        Args:
            run: The connection.
            key: The key.
            terms: Request, holder, lease and retention.
            in_caller: The transaction belongs to the caller, and may stay open.

        Returns:
            The fence. None: another caller was faster, or has the key in an open transaction.
        """

    def take_over(self, run: Runner, key: KeyId, row: KeyRow, terms: BeginTerms, /, *, in_caller: bool) -> int | None:
        """Begin a key whose row is free. Returns as `insert` does.

        Of all callers that saw the same row, the first one wins. A renewal or a late completion in
        between wins too.
        """

    def settle(
        self,
        run: Runner,
        key: KeyId,
        fence: int,
        status: str,
        response: bytes | None,
        error: str | None,
        keep: float,
        /,
    ) -> bool:
        """Write the final status. False: the key belongs to another holder."""

    def free(self, run: Runner, key: KeyId, fence: int, /) -> bool:
        """Delete the row. False: the key belongs to another holder."""

    def renew(self, run: Runner, held: Sequence[Held], lease: float, /) -> list[Held]:
        """Extend leases. Returns the keys that belong to other holders."""

    def is_in_transaction(self, connection: object, /) -> bool:
        """Return whether a driver's connection has an open transaction."""
