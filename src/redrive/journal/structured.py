"""The structlog sink: records as structlog's events. Extra: `structlog`."""

from __future__ import annotations

from typing import Any

try:
    import structlog as library
except ModuleNotFoundError as missing:
    raise ImportError('journal.structlog() needs structlog: pip install "redrive[structlog]"') from missing

from .log import level_of, printable
from .record import Record

TAKEN = frozenset(("event", "level", "timestamp", "logger", "exc_info", "stack_info"))
"""Names that structlog and its processors have uses of their own for."""


class Structured:
    """Writes each record as one event: its kind, and its fields as the event's own. Any thread may call it."""

    def __init__(self, logger: Any = None) -> None:
        self._logger = logger

    def __call__(self, record: Record, /) -> None:
        logger = library.get_logger("redrive") if self._logger is None else self._logger
        # A renderer for the terminal would pass ESC on.
        shown = {name: printable(value) if isinstance(value, str) else value for name, value in record.fields.items()}
        fields = {f"{name}_" if name in TAKEN else name: value for name, value in shown.items()}
        level = level_of(record.kind, record.fields.get("reason"), record.fields.get("item"))
        logger.log(level, record.kind, at=record.at.isoformat(), **fields)


def structlog(logger: Any = None, /) -> Structured:
    """Return a sink for structlog: `journal.subscribe(journal.structlog())`.

    Extra: `structlog`.

    Args:
        logger: Default: `structlog.get_logger("redrive")`.

    Returns:
        The sink.
    """
    return Structured(logger)
