"""Open a ledger. Can be imported without the extra, and says so where it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import LedgerError

if TYPE_CHECKING:
    from .ledger import Ledger


def open_ledger(url: str = "sqlite:///redrive.db", /, *, migrate: bool = False, max_payload: int | None = None) -> Ledger:
    """Open `sqlite:///file.db`, `sqlite://` (in memory, private) or `postgresql://...`. A foreign schema is refused.

    migrate: make the tables, or bring them up to this code; else anything but the right schema is an error, and nothing
    is changed. One in memory is always made. max_payload: bytes, 1 MiB where nothing is said.
    """
    installed()
    from .ledger import Ledger  # noqa: PLC0415

    return Ledger.opened(url, migrate=migrate, max_payload=max_payload)


def installed() -> None:
    """LedgerError where the extra is missing, with the line that brings it."""
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("sqlalchemy") is None or find_spec("alembic") is None:
        raise LedgerError('a ledger needs SQLAlchemy and Alembic: pip install "redrive[ledger]"')
