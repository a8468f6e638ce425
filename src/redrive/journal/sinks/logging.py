"""The logging sink: records as messages of the standard library's `redrive` logger.

It is always active. `logging` is imported only if the program uses it, because that costs 14 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...core.text import format_duration

if TYPE_CHECKING:
    import logging

    from ..record import Record

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
WARNING_KINDS = (
    "breaker_opened",
    "spill_failed",
    "batch_outage",
    "undelivered",
    "parked",
    "ledger_trouble",
    "chore_failed",
    "step_changed",
)
"""Kinds of records that are warnings for every reason."""
MAX_ERROR_CHARS = 200
"""Characters of an error in a message."""


def level_of(kind: str, reason: object = None, item: object = None, /) -> int:
    """Return the logging level of a record, from its kind and its fields `reason` and `item`."""
    if kind == "batch_step":
        return DEBUG
    if kind == "unrecorded" or (kind == "giveup" and item is not None):
        return ERROR
    is_spent = kind == "giveup" and reason != "not_retryable"
    return WARNING if kind in WARNING_KINDS or is_spent else INFO


def log_record(record: Record, /) -> None:
    """Log a record with the level of its kind."""
    level = level_of(record.kind, record.fields.get("reason"), record.fields.get("item"))
    # A given-up item and the start of a batch outage raise no exception. They are therefore
    # printed even if the program has not set up logging, or not imported it.
    is_outage_start = record.kind == "batch_outage" and bool(record.fields.get("begins"))
    is_always_shown = level >= ERROR or is_outage_start
    if is_always_shown:
        import logging  # noqa: F401, PLC0415
    if is_enabled(level):
        extra = {"redrive": dict(record.fields), "redrive_kind": record.kind}
        logger = sys.modules["logging"].getLogger("redrive")
        message = format_record(record)
        logger.log(level, "%s", message, extra=extra)
        last_resort = sys.modules["logging"].lastResort
        if is_always_shown and last_resort is not None and not _has_handlers(logger):
            last_resort.handle(logger.makeRecord(logger.name, level, "", 0, "%s", (message,), None))


def _has_handlers(logger: logging.Logger | None) -> bool:
    """Return whether the program has set up logging: a handler other than our silent one."""
    while logger is not None:
        if any(handler is not _silent_handler for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _find_logger(level: int, /) -> bool:
    """Replace `is_enabled` by the logger's own method, once the program has imported `logging`."""
    global is_enabled, _silent_handler  # noqa: PLW0603  # set once
    logging = sys.modules.get("logging")
    if logging is None or not hasattr(logging, "NullHandler"):  # missing, or still being imported
        return False
    logger = logging.getLogger("redrive")
    # Without it, a program without logging would print the record beside the exception.
    _silent_handler = logging.NullHandler()
    logger.addHandler(_silent_handler)
    is_enabled = logger.isEnabledFor
    return is_enabled(level)


_silent_handler: logging.Handler | None = None
is_enabled: Callable[[int], bool] = _find_logger
"""Whether a message of this level is logged. Ask first, because building a record is slower."""


def warn_about_sink(sink: object, error: Exception, /) -> None:
    """Log that a sink raised, and that its further losses are only counted."""
    if is_enabled(WARNING):
        from ..redaction.redactor import redact_text  # noqa: PLC0415  # rarely needed

        message = (
            "a journal sink raised, and its record is lost; "
            "further losses are only counted, see journal.dropped(): %s: %s: %s"
        )
        sys.modules["logging"].getLogger("redrive").warning(
            message, _one_line(sink), type(error).__name__, _one_line(redact_text(str(error)))
        )


def format_record(record: Record, /) -> str:
    """Return one line of text, without control characters."""
    return _one_line(_describe(record))


def _describe(record: Record) -> str:
    fields = record.fields
    if record.kind == "giveup" and "item" in fields:
        reason = _one_line(fields.get("reason") or "no reason given")
        after = (
            "given up (permanent)"
            if fields.get("permanent")
            else f"given up after {_rejections(fields)}"
        )
        return f"{fields.get('operation')}: item {_one_line(fields['item'])} {after}: {reason}"
    if record.kind == "ledger_trouble":
        return f"worker {fields.get('worker')}: the ledger failed ({_error(fields)})"
    if record.kind == "ledger_back":
        seconds = format_duration(fields.get("seconds"))
        return f"worker {fields.get('worker')}: the ledger works again after {seconds}"
    if record.kind == "chore_failed":
        task = _one_line(fields.get("operation"))
        return f"worker task {task}: failed ({_error(fields)}), will be retried"
    if record.kind == "unrecorded":
        task = f"{fields.get('operation')}: task {fields.get('task_id')}"
        message = f"; message: {_one_line(fields['message'])}" if fields.get("message") else ""
        return f"{task}: its end is not in the ledger ({_error(fields)}){message}"
    if record.kind == "step_changed":
        name = f"{fields.get('operation')}: job {fields.get('job_id')}, step {fields.get('step')}"
        return f"{_one_line(name)}: its arguments changed; the stored result was reused"
    if record.kind == "worker_gone":
        leases = fields.get("leases")
        return f"worker {fields.get('worker')}: lost" + (
            f"; {leases} of its jobs or partitions recovered" if leases else ""
        )
    if record.kind == "batch_outage":
        reason = _one_line(fields.get("reason") or "no reason given")
        items, counted = fields.get("items"), fields.get("charged") or "none"
        counts = f"items rejected: {items}, counted as attempts: {counted}"
        return f"{fields.get('operation')}: outage: {reason} ({counts})"
    subject = _subject(fields)
    if record.kind == "giveup" and "logical_date" in fields and not fields.get("attempt"):
        return f"{subject}: gave up: {fields.get('error') or fields.get('reason')}"
    if record.kind == "giveup" and not fields.get("attempt"):
        return f"{subject}: not called: {fields.get('reason')}"
    if record.kind == "parked":
        wait = f", next attempt in {fields['wait']:.3g} s" if "wait" in fields else ""
        return f"{subject}: paused after an outage ({_one_line(fields.get('reason'))}){wait}"
    if record.kind == "unparked":
        return f"{subject}: resumed" + (
            f" by {_one_line(fields['actor_key'])}" if "actor_key" in fields else ""
        )
    if record.kind == "late":
        work = "partition" if "logical_date" in fields else "job"
        lost = f"lost its lease, and another worker has the {work} now"
        return f"{subject}: this attempt {lost}; its outcome was ignored"
    attempt = f"{subject}: attempt {fields.get('attempt')} of {fields.get('max_attempts')}"
    if record.kind == "retry":
        return f"{attempt} failed ({_error(fields)}), again in {fields['wait']:.3g} s"
    if record.kind == "giveup":
        dead_letter = f" (dead letter {fields['dlq_id']})" if "dlq_id" in fields else ""
        # A partition whose error is final has the word that `redrive state failures` shows.
        is_final = fields.get("reason") == "error" and fields.get("rejected")
        cause = fields["rejected"] if is_final else fields.get("reason")
        return f"{attempt} failed ({_error(fields)}), giving up: {cause}{dead_letter}"
    if record.kind == "again":
        error = f": {_error(fields)}" if "error" in fields else ""
        wait = f", again in {fields['wait']:.3g} s" if fields.get("wait") else ""
        return f"{attempt} does not count ({fields.get('reason')}{error}){wait}"
    if record.kind == "cancelled":
        return f"{attempt} was cancelled" + (f" ({_error(fields)})" if "error" in fields else "")
    if record.kind == "suspended":
        cause = f"waits for {fields['signal']!r}" if fields.get("signal") else "sleeps"
        return f"{subject}: {_one_line(cause)}, at most {fields.get('wait', 0):.6g} s"
    if record.kind in ("recovered", "success"):
        return f"{attempt} succeeded"
    return record.kind.replace("_", " ") + "".join(
        f" {name}={_one_line(value)}" for name, value in fields.items()
    )


def _rejections(fields: Mapping[str, object]) -> str:
    return "1 rejection" if fields.get("attempts") == 1 else f"{fields.get('attempts')} rejections"


def _subject(fields: Mapping[str, object]) -> str:
    """Return the partition or job that the record is about, or else the operation."""
    if "logical_date" not in fields:
        job = f" job {fields['job_id']}" if "job_id" in fields else ""
        return f"{fields.get('operation')}{job}"
    return "/".join(
        str(fields.get(name)) for name in ("source", "customer_id", "query_name", "logical_date")
    )


def _error(fields: Mapping[str, object]) -> str:
    name, error = fields.get("error_class"), fields.get("error")
    text = _one_line(error if name is None else f"{name}: {error}" if error else name)
    return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"


def _one_line(value: object) -> str:
    """Return text without line breaks, so that an error cannot look like another message."""
    return escape_control_characters(" ".join(str(value).split()))


def escape_control_characters(text: str, /) -> str:
    """Escape control characters as `repr` does. A terminal that shows the log would execute ESC."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text
    )
