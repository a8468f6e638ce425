"""The logging sink: records as lines of the standard library's `redrive` logger. On by default."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

    from .record import Record

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
LOUD = ("breaker_opened", "spill_failed", "batch_outage", "undelivered", "parked", "ledger_trouble", "chore_failed")
"""Kinds that are warnings whatever their reason."""


def log(record: Record, /) -> None:
    """Log a record: `giveup` of spent retries and an opened breaker as warnings, of an item as an error, all else as info."""
    level = level_of(record.kind, record.fields.get("reason"), record.fields.get("item"))
    # A given-up item and an outage of a batch raise nothing, so they are printed even if logging is not set up or imported.
    is_always_shown = level >= ERROR or (record.kind == "batch_outage" and bool(record.fields.get("begins")))
    if is_always_shown:
        import logging  # noqa: F401, PLC0415
    if enabled(level):
        extra = {"redrive": dict(record.fields), "redrive_kind": record.kind}
        logger = sys.modules["logging"].getLogger("redrive")
        logger.log(level, "%s", line(record), extra=extra)
        last_resort = sys.modules["logging"].lastResort
        if is_always_shown and last_resort is not None and not _has_handlers(logger):
            last_resort.handle(logger.makeRecord(logger.name, level, "", 0, "%s", (line(record),), None))


def _has_handlers(logger: logging.Logger | None) -> bool:
    """Whether the program has set up logging: any handler but our own silent one."""
    while logger is not None:
        if any(handler is not _silent for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _find(level: int, /) -> bool:
    """Find the logger, if the program uses `logging` at all: nobody can have set one up otherwise, and it costs 14 ms."""
    global enabled, _silent  # noqa: PLW0603  # found once
    logging = sys.modules.get("logging")
    if logging is None or not hasattr(logging, "NullHandler"):  # not imported, or another thread is at it just now
        return False
    logger = logging.getLogger("redrive")
    _silent = logging.NullHandler()  # an unconfigured program prints the exception, not the log as well
    logger.addHandler(_silent)
    enabled = logger.isEnabledFor
    return enabled(level)


_silent: logging.Handler | None = None
enabled: Callable[[int], bool] = _find
"""Whether anybody would see a record of this level: asked before one is made, since that costs more."""


def line(record: Record, /) -> str:
    """One line for a person, without characters that are commands to a terminal."""
    return _on_one_line(_told(record))


def _told(record: Record) -> str:
    fields = record.fields
    if record.kind == "giveup" and "item" in fields:
        said = _on_one_line(fields.get("reason") or "no reason given")
        after = "given up (permanent)" if fields.get("permanent") else f"given up after {_rejections(fields)}"
        return f"{fields.get('operation')}: item {_on_one_line(fields['item'])} {after}: {said}"
    if record.kind == "ledger_trouble":
        return f"worker {fields.get('worker')}: the ledger failed ({_short(fields)})"
    if record.kind == "worker_gone":
        held = fields.get("leases")
        return f"worker {fields.get('worker')}: offline" + (f"; its jobs run again ({held})" if held else "")
    if record.kind == "batch_outage":
        said = _on_one_line(fields.get("reason") or "no reason given")
        items, counted = fields.get("items"), fields.get("charged") or "none"
        return f"{fields.get('operation')}: outage: {said} (items rejected: {items}, counted as attempts: {counted})"
    subject = _subject(fields)
    if record.kind == "giveup" and "logical_date" in fields and not fields.get("attempt"):
        return f"{subject}: gave up: {fields.get('error') or fields.get('reason')}"
    if record.kind == "giveup" and not fields.get("attempt"):
        return f"{subject}: not called: {fields.get('reason')}"
    if record.kind == "parked":
        wait = f", next attempt in {fields['wait']:.3g} s" if "wait" in fields else ""
        return f"{subject}: paused after an outage ({_on_one_line(fields.get('reason'))}){wait}"
    if record.kind == "unparked":
        return f"{subject}: resumed" + (f" by {_on_one_line(fields['actor_key'])}" if "actor_key" in fields else "")
    tried = f"{subject}: attempt {fields.get('attempt')} of {fields.get('max_attempts')}"
    if record.kind == "retry":
        return f"{tried} failed ({_short(fields)}), again in {fields['wait']:.3g} s"
    if record.kind == "giveup":
        letter = f" (dead letter {fields['dlq_id']})" if "dlq_id" in fields else ""
        return f"{tried} failed ({_short(fields)}), giving up: {fields.get('reason')}{letter}"
    if record.kind == "again":
        error = f": {_short(fields)}" if "error" in fields else ""
        wait = f", again in {fields['wait']:.3g} s" if fields.get("wait") else ""
        return f"{tried} does not count ({fields.get('reason')}{error}){wait}"
    if record.kind in ("recovered", "success"):
        return f"{tried} succeeded"
    return record.kind.replace("_", " ") + "".join(f" {name}={_on_one_line(value)}" for name, value in fields.items())


def _rejections(fields: Mapping[str, object]) -> str:
    return "1 rejection" if fields.get("attempts") == 1 else f"{fields.get('attempts')} rejections"


def _subject(fields: Mapping[str, object]) -> str:
    """The partition or the job, where the record is about one; otherwise the operation."""
    if "logical_date" not in fields:
        job = f" job {fields['job_id']}" if "job_id" in fields else ""
        return f"{fields.get('operation')}{job}"
    return "/".join(str(fields.get(name)) for name in ("source", "customer_id", "query_name", "logical_date"))


def _short(fields: Mapping[str, object]) -> str:
    name, error = fields.get("error_class"), fields.get("error")
    text = _on_one_line(error if name is None else f"{name}: {error}" if error else name)
    return text if len(text) <= 200 else text[:199] + "…"


def _on_one_line(value: object) -> str:
    """Whatever an error says, it cannot pose as a line of its own."""
    return printable(" ".join(str(value).split()))


def printable(text: str, /) -> str:
    """The text with control characters as `repr` writes them: ESC is a command to the terminal that shows a log."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else repr(each)[1:-1] for each in text)


def complain(sink: object, error: Exception, /) -> None:
    """Say once that a sink raised: what it goes on to lose is only counted."""
    if enabled(WARNING):
        from .redaction import redacted_text  # noqa: PLC0415  # rare

        words = (
            "a journal sink raised, and its record is lost; further losses are only counted, see journal.dropped(): %s: %s: %s"
        )
        sys.modules["logging"].getLogger("redrive").warning(
            words, _on_one_line(sink), type(error).__name__, _on_one_line(redacted_text(str(error)))
        )


def level_of(kind: str, reason: object = None, item: object = None, /) -> int:
    """The level of a record."""
    if kind == "batch_step":
        return DEBUG
    if kind == "giveup" and item is not None:
        return ERROR
    return WARNING if kind in LOUD or (kind == "giveup" and reason != "not_retryable") else INFO
