"""Operations on the health of a ledger: check and repair it."""

from __future__ import annotations

from dataclasses import dataclass

from ..context import QUIET, OperatorContext
from .doctor import diagnose
from .finding import Health


@dataclass(frozen=True, slots=True)
class HealthOperations:
    """Operations on the health of a ledger, as `Operator.health`. Threads may share one."""

    _context: OperatorContext

    def check(self, *, quiet: float = QUIET) -> Health:
        """Check the health of the ledger.

        Args:
            quiet: Seconds without a heartbeat after which a worker counts as offline.

        Returns:
            The problems that were found.
        """
        return diagnose(self._context.app, quiet=quiet)

    def reap(self) -> list[int]:
        """Take back expired leases. Workers do this regularly.

        Returns:
            The ids of the jobs.
        """
        ids: list[int] = []
        while page := self._context.ledger.reap():
            ids += page
        return ids

    def recount(self, *, because: str) -> dict[str, dict[str, int]]:
        """Correct the counters from the rows.

        Args:
            because: Why, for the audit log.

        Returns:
            The corrections by job type.
        """
        return self._context.ledger.recount(actor=self._context.actor, because=because)
