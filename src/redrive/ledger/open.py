"""open_ledger: open a ledger by its address."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..core.lazy import deferred
from ..errors import LedgerError
from .db.address import parse

if TYPE_CHECKING:
    from . import ledger, validation
    from .ledger import Ledger
else:  # they need SQLAlchemy
    ledger, validation = deferred(__package__, "ledger", "validation")


def open_ledger(
    url: str = "sqlite:///redrive.db", /, *, migrate: bool = False, max_payload: int | None = None
) -> Ledger:
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
    require_extra()
    limit = validation.MAX_PAYLOAD_BYTES if max_payload is None else max_payload
    return ledger.Ledger(parse(url), migrate=migrate, max_payload=limit)


def require_extra() -> None:
    """Raise a LedgerError that names the extra, if SQLAlchemy or Alembic is missing."""
    if find_spec("sqlalchemy") is None or find_spec("alembic") is None:
        raise LedgerError('a ledger needs SQLAlchemy and Alembic: pip install "redrive[ledger]"')
