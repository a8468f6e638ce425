"""Open a ledger. Can be imported without the extra, and says so where it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import LedgerError

if TYPE_CHECKING:
    from .ledger import Ledger


def open_ledger(url: str = "sqlite:///redrive.db", /, *, migrate: bool = False, max_payload: int | None = None) -> Ledger:
    """Open a ledger.

    Args:
        url: `sqlite:///file.db`, `sqlite://` (in memory, private to the process) or
            `postgresql://...`.
        migrate: Create or upgrade the tables. If False, a schema of another version is an error and
            nothing is changed. A ledger in memory is always created.
        max_payload: Maximum number of bytes of a payload. Default: 1 MiB.

    Returns:
        The ledger. Close it, or use it as a context manager.

    Raises:
        LedgerError: The extra is missing, or the schema is missing, older or newer.
    """
    installed()
    from .ledger import Ledger  # noqa: PLC0415

    return Ledger.opened(url, migrate=migrate, max_payload=max_payload)


def installed() -> None:
    """LedgerError where the extra is missing, with the line that brings it."""
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("sqlalchemy") is None or find_spec("alembic") is None:
        raise LedgerError('a ledger needs SQLAlchemy and Alembic: pip install "redrive[ledger]"')
