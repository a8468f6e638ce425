"""The structlog sink: records as events of structlog. Extra: `structlog`."""

from __future__ import annotations

from typing import Any

try:
    import structlog as library
except ModuleNotFoundError as missing:
    raise ImportError(
        'journal.structlog() needs structlog: pip install "redrive[structlog]"'
    ) from missing

from ..record import Record
from .logging import escape_control_characters, level_of

RESERVED_NAMES = frozenset(("event", "level", "timestamp", "logger", "exc_info", "stack_info"))
"""Names that structlog and its processors use. Fields with these names get a `_` at the end."""


class StructlogSink:
    """Logs each record as one event, named by its kind. Any thread may call it."""

    def __init__(self, logger: Any = None) -> None:
        self._logger = logger

    def __call__(self, record: Record, /) -> None:
        logger = library.get_logger("redrive") if self._logger is None else self._logger
        fields = {}
        for name, value in record.fields.items():
            # A console renderer would print ESC.
            shown = escape_control_characters(value) if isinstance(value, str) else value
            fields[f"{name}_" if name in RESERVED_NAMES else name] = shown
        level = level_of(record.kind, record.fields.get("reason"), record.fields.get("item"))
        logger.log(level, record.kind, at=record.at.isoformat(), **fields)


def structlog(logger: Any = None, /) -> StructlogSink:
    """Return a sink for structlog: `journal.subscribe(journal.structlog())`.

    Extra: `structlog`.

    Args:
        logger: Default: `structlog.get_logger("redrive")`.

    Returns:
        The sink.
    """
    return StructlogSink(logger)
