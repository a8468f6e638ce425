"""A psycopg connection that tells the watch when it waits for the server, and when it stops waiting."""

from __future__ import annotations

from typing import Any

import psycopg

from .silence_watch import PATIENCE, Watch


class Watched(psycopg.Connection[Any]):
    """Every statement goes through `wait`, by whichever cursor or library: the watch counts from there, for each anew."""

    usual = PATIENCE
    """Seconds after which a statement of ours is overdue: by the session's own `statement_timeout`."""
    patience: float | None = None
    """The same for the statements to come; None: they may take any time."""
    watch: Watch | None = None
    line = -1

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for the server. The connection is cut where that takes longer than `patience`."""
        if self.watch is None or self.patience is None:
            return super().wait(gen, *args, **options)
        self.watch.begin(self.line, self.patience)
        try:
            return super().wait(gen, *args, **options)
        finally:
            self.watch.end(self.line)
