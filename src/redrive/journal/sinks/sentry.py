"""The Sentry sink: events for final failures, and cron check-ins for schedules. Extra: `sentry`.

A dead letter, a partition that gave up and a batch item that was given up are one event each, with
the error group as fingerprint. Retries are not reported. A call that gave up raises its error in
your code, where Sentry's own integrations see it.

A worker wraps the attempts of jobs with `wrap_attempts`. It keeps the stack trace of a failed
attempt until its record says whether it was the last one, and it sends check-ins.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from time import monotonic
from typing import Any, Protocol

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.integrations import logging as sentry_logging
    from sentry_sdk.utils import event_from_exception
except ModuleNotFoundError as missing:
    raise ImportError(
        'journal.sentry() needs sentry-sdk: pip install "redrive[sentry]"'
    ) from missing

from ...core.classification.signature import signature, signature_of
from ...core.seconds import whole_number
from ...errors import Again, Blocked, Suspended
from ..bus import ATTEMPT_WRAPPERS, DROPS, job_id_around
from ..record import Record
from ..redaction.redactor import redact_text

LOGGER = "redrive"
CRON_HEADER = "redrive-cron"
"""Header of a scheduled run, with its five fields and its time zone."""
CHECK_IN_NAMESPACE = uuid.UUID("5d1c7a0e-3c5b-4f0e-9c47-6b1f1c7b6a51")
WINDOW_SECONDS = 60.0
MAX_EVENTS_PER_WINDOW = 10
"""Events of one error group in a window. An outage may end thousands of jobs, and each event costs
quota."""
MAX_GROUPS = 1_000
"""Error groups whose events are counted."""
MAX_PENDING_TRACES = 1_000
"""Failed attempts whose record has not arrived yet."""
MAX_SLUG_CHARS = 50
MAX_TAG_CHARS = 200
TAGS = {
    "operation": "job_type",
    "reason": "reason",
    "attempt": "attempt",
    "idempotency_key": "key",
}
"""Tags of an event, by field of the record. Their names begin with `redrive.`."""
NOT_IN_CONTEXT = frozenset(("error", "error_class", "operation", "traceparent"))
"""Fields of a record that the event has in another place."""
_RUN_KEY = re.compile(r"cron::\d{8}T\d{6}Z:.+:v1")
_NOT_IN_SLUG = re.compile(r"[^a-z0-9_-]+")


class ReportedAttempt(Protocol):
    """The lease of a job, as far as events and check-ins need it."""

    job_id: int
    attempt: int
    key: str
    headers: Mapping[str, str]


class SentrySink:
    """Sends events and check-ins with the program's Sentry client. Threads may share it."""

    def __init__(self, check_ins: bool, send_users: bool, margin: int, max_runtime: int) -> None:
        self._check_ins, self._send_users = check_ins, send_users
        self._limits = {"checkin_margin": margin, "max_runtime": max_runtime}
        self._lock = threading.Lock()
        self._traces: OrderedDict[tuple[str, int], tuple[dict[str, Any], str]] = OrderedDict()
        self._groups: OrderedDict[tuple[str, ...], _GroupWindow] = OrderedDict()

    def attached(self) -> Callable[[], None]:
        """Wrap the attempts of new workers.

        Sentry would also report the log messages of the same records, so it ignores them.

        Raises:
            ValueError: Sentry is not initialised.
        """
        if not sentry_sdk.get_client().is_active():
            raise ValueError(
                "journal.sentry(): Sentry is not initialised; call sentry_sdk.init(dsn=...) first"
            )
        ATTEMPT_WRAPPERS.append(self.wrap_attempts)
        sentry_logging.ignore_logger(LOGGER)

        def detach() -> None:
            ATTEMPT_WRAPPERS.remove(self.wrap_attempts)
            # Releases of the SDK before 2.56 cannot undo it.
            getattr(sentry_logging, "unignore_logger", lambda _: None)(LOGGER)

        return detach

    # --- Events

    def __call__(self, record: Record, /) -> None:
        fields = record.fields
        trace, group = self._take_trace(fields)
        if record.kind not in ("giveup", "blocked"):
            return
        if not fields.keys() & {"job_id", "logical_date", "item"}:
            return  # A call. Its error reaches the caller.
        operation = str(fields.get("operation"))
        fingerprint = (LOGGER, operation, group or _group_of(fields))
        hidden = self._count(fingerprint)
        key = fields.get("idempotency_key")
        if hidden is not None:
            shown = fields if self._send_users else _without_user(fields)
            event = _build_event(Record(record.kind, record.at, shown), fingerprint, trace)
            if hidden:
                event["contexts"][LOGGER]["left_out"] = hidden
            # Not with the scopes of this thread: it inherits user, tags and breadcrumbs of the web
            # request in which it was started.
            client, scope = sentry_sdk.get_client(), sentry_sdk.get_global_scope()
            client.capture_event(event, scope=scope)
        if self._check_ins and _is_scheduled_run(key, operation):
            _check_in(operation, str(key), "error")

    def _count(self, group: tuple[str, ...]) -> int | None:
        """Return the events of this group that were left out before. None: leave this one out."""
        now = monotonic()
        with self._lock:
            window = self._groups.setdefault(group, _GroupWindow(now))
            self._groups.move_to_end(group)
            while len(self._groups) > MAX_GROUPS:
                self._groups.popitem(last=False)
            return window.count(now)

    # --- Attempts of jobs

    def wrap_attempts(
        self, operation: str, execution: str, run: Callable[..., Any], _describe: object = None, /
    ) -> Callable[..., Any]:
        """Return a job's function that reports stack traces and check-ins.

        `execution` is `thread`, `async` or `transaction`.
        """
        if execution == "async":

            async def run_async(lease: ReportedAttempt) -> Any:
                with self._attempt(operation, lease):
                    return await run(lease)

            return run_async

        def run_sync(*arguments: Any) -> Any:
            # The lease is the last argument. A transaction passes its connection first.
            with self._attempt(operation, arguments[-1]):
                return run(*arguments)

        return run_sync

    @contextmanager
    def _attempt(self, operation: str, lease: ReportedAttempt) -> Iterator[None]:
        headers = getattr(lease, "headers", None) or {}
        schedule = headers.get(CRON_HEADER) if self._check_ins else None
        started = monotonic()
        if schedule is not None and lease.attempt == 1:
            _quietly(_check_in, operation, lease.key, "in_progress", self._monitor(schedule))
        try:
            yield
        except (Again, Blocked, Suspended):
            raise
        except Exception as error:
            _quietly(self._keep_trace, lease, error)
            raise
        if schedule is not None:
            seconds = monotonic() - started
            _quietly(_check_in, operation, lease.key, "ok", duration=seconds)

    def _monitor(self, schedule: str) -> dict[str, Any]:
        """Return the configuration of the monitor, by which Sentry knows that a run is missing."""
        line, _, zone = schedule.rpartition(" ")
        return {
            "schedule": {"type": "crontab", "value": line},
            "timezone": zone,
            **self._limits,
        }

    def _keep_trace(self, lease: ReportedAttempt, error: Exception) -> None:
        # Not the error itself, whose frames would stay alive. Local variables may hold secrets.
        options = {**sentry_sdk.get_client().options, "include_local_variables": False}
        event, _ = event_from_exception(error, client_options=options)
        values: Any = event.get("exception", {})
        for value in values.get("values", ()):
            value["value"] = redact_text(str(value.get("value") or ""))
        group = signature(error)
        with self._lock:
            self._traces[job_id_around(lease), lease.attempt] = values, group
            while len(self._traces) > MAX_PENDING_TRACES:
                self._traces.popitem(last=False)

    def _take_trace(self, fields: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
        """Return the stack trace and the error group of the attempt that a record ends."""
        if "job_id" not in fields:
            return None, None
        with self._lock:
            attempt = str(fields["job_id"]), fields.get("attempt") or 0
            return self._traces.pop(attempt, (None, None))


class _GroupWindow:
    """Counts the events of one error group. The sink has the lock."""

    __slots__ = ("_events", "_hidden", "_until")

    def __init__(self, now: float) -> None:
        self._until = now + WINDOW_SECONDS
        self._events = self._hidden = 0

    def count(self, now: float) -> int | None:
        """Return the events that were left out since the last one. None: leave this one out."""
        if now >= self._until:
            self._until, self._events = now + WINDOW_SECONDS, 0
        self._events += 1
        if self._events > MAX_EVENTS_PER_WINDOW:
            self._hidden += 1
            return None
        hidden, self._hidden = self._hidden, 0
        return hidden


def sentry(
    *,
    check_ins: bool = True,
    checkin_margin: int = 5,
    max_runtime: int = 60,
    send_users: bool = False,
) -> SentrySink:
    """Return a sink for Sentry: `journal.subscribe(journal.sentry())`.

    Call `sentry_sdk.init(dsn=...)` first, and subscribe it before workers start. Extra: `sentry`.

    Args:
        check_ins: Report runs of scheduled commands to Sentry's cron monitors.
        checkin_margin: Minutes that a run may start late before Sentry reports it as missed.
        max_runtime: Minutes that a run may take, with all attempts, before Sentry reports it.
        send_users: Send the user of a job key, which is `***` by default, and the id `user_id`.

    Returns:
        The sink.

    Raises:
        ImportError: sentry-sdk is too old.
        TypeError: An option has the wrong type.
        ValueError: A number of minutes is below 1.
    """
    version: str = sentry_sdk.VERSION
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 30):
        raise ImportError(
            "journal.sentry() needs sentry-sdk 2.30 or later, "
            f'not {version}: pip install "redrive[sentry]"'
        )
    for name, value in (("check_ins", check_ins), ("send_users", send_users)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, not {value!r}")
    margin = whole_number("checkin_margin", checkin_margin)
    return SentrySink(check_ins, send_users, margin, whole_number("max_runtime", max_runtime))


def _build_event(record: Record, group: tuple[str, ...], trace: dict[str, Any] | None) -> Any:
    fields = record.fields
    event: dict[str, Any] = {
        "level": "warning" if record.kind == "blocked" else "error",
        "logger": LOGGER,
        "timestamp": record.at,
        "transaction": group[1],
        "fingerprint": list(group),
        "tags": _tags(fields),
        "contexts": {LOGGER: _context(fields)},
    }
    error, error_class = fields.get("error"), fields.get("error_class")
    if trace is not None:
        event["exception"] = trace
    elif error_class is not None:
        event["exception"] = {"values": [{"type": str(error_class), "value": str(error or "")}]}
    else:
        event["message"] = f"{group[1]}: {error or fields.get('reason') or record.kind}"
    return event


def _tags(fields: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{LOGGER}.{tag}": str(fields[name])[:MAX_TAG_CHARS]
        for name, tag in TAGS.items()
        if name in fields
    }


def _context(fields: Mapping[str, Any]) -> dict[str, Any]:
    context = {name: value for name, value in fields.items() if name not in NOT_IN_CONTEXT}
    if "dlq_id" in fields:
        context["command"] = f"redrive dead show {fields['dlq_id']}"
    return context


def _without_user(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without the id of a user, which is also a part of a job key."""
    shown = {name: value for name, value in fields.items() if name != "user_id"}
    if "idempotency_key" in shown:
        domain, colon, rest = str(shown["idempotency_key"]).partition(":")
        user, end, rest = rest.partition(":")
        shown["idempotency_key"] = f"{domain}{colon}{'***' if user and end else user}{end}{rest}"
    return shown


def _group_of(fields: Mapping[str, Any]) -> str:
    """Return the error group of a record without an exception in this process."""
    text = str(fields.get("error") or fields.get("reason") or "")
    return signature_of(str(fields.get("error_class") or ""), text).removeprefix(": ")


# --- Check-ins


def _is_scheduled_run(key: object, operation: str) -> bool:
    """Return whether a job key is that of a run of the schedule of this command."""
    is_run = isinstance(key, str) and _RUN_KEY.fullmatch(key) is not None
    return is_run and str(key).endswith(f"Z:{operation}:v1")


def _check_in(
    operation: str,
    key: str,
    status: str,
    monitor: dict[str, Any] | None = None,
    duration: float | None = None,
) -> None:
    """Send a check-in. All attempts of a run, in any process, have the same id.

    Sentry keeps one check-in of an id, over all organizations, projects and environments. It drops
    those of the others.
    """
    options = sentry_sdk.get_client().options
    owner = f"{options.get('dsn')} {options.get('environment')}"
    capture_checkin(
        monitor_slug=_slug_of(operation),
        check_in_id=uuid.uuid5(CHECK_IN_NAMESPACE, f"{owner} {key}").hex,
        status=status,
        duration=duration,
        monitor_config=monitor,  # type: ignore[arg-type]  # a TypedDict of the SDK
    )


def _slug_of(operation: str) -> str:
    """Return the slug of a monitor: at most 50 ASCII characters, and not only digits."""
    slug = _NOT_IN_SLUG.sub("-", operation.lower()).strip("-")
    if operation.isascii() and slug and not slug.isdigit() and len(slug) <= MAX_SLUG_CHARS:
        return slug
    digest = sha256(operation.encode()).hexdigest()[:8]  # so that two names have two monitors
    return f"{slug[: MAX_SLUG_CHARS - 9] or 'schedule'}-{digest}"


def _quietly(function: Callable[..., None], /, *arguments: Any, **options: Any) -> None:
    """Call a function of this sink. An error of Sentry must not fail the job."""
    try:
        function(*arguments, **options)
    except Exception:
        DROPS.increment()
