"""The verdict of the standard rule on an exception, a status or a traceback: retried or not."""

from __future__ import annotations

import builtins
import re
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ... import errors
from ...analysis.grpc import ALL_CODES
from ...core.classification.classify import classify, deciding_name, meaning
from ...core.classification.known.grpc import CODES
from ...core.classification.known.http_responses import fault_of_status
from ...core.classification.known.registry import FAMILIES, KNOWN
from ...core.fault import Fault
from ...core.policy import RetryPolicy
from ...core.text import format_duration
from ...errors import Again, Blocked, BreakerOpen, Final, Stop
from ..project.user_code import Unreadable

CALLS = RetryPolicy.service_call()
JOB_ATTEMPTS, JOB_BACKOFF = 5, (5.0, 30.0, 120.0, 600.0)
"""Defaults of a job; a test compares them with the worker's."""
_PATH = re.compile(r"[A-Za-z_]\w*(?:[.:][A-Za-z_]\w*)*")
_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Timeout|Warning|[A-Z]\w*))(?:: (.*))?$")
_WORD = re.compile(r"^([A-Z]\w*)(?:: (.*))?$")
_STATUS = re.compile(r"(?<![\d.])([45]\d\d)(?![\d.])")
_PRINTED = re.compile(r"^[ \t]*(?:error|last failed attempt)[ \t]{2,}(\S.*)$", re.MULTILINE)
"""The error of a job or a dead letter, as `redrive jobs show` and `redrive dead show` print it."""
_REASON = re.compile(r"^[a-z_]+: (?=\S)")
"""The reason before the error of an attempt."""
_LATER = "to retry the job later: raise redrive.Again(after=30) instead"

_CHAINED = re.compile(
    r"^(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):$",
    re.MULTILINE,
)
_GAVE_UP = re.compile(r"^redrive: (gave up on \S+ after \d+ attempts?\b.*)$", re.MULTILINE)
CLIENTS = (
    "httpx",
    "requests.exceptions",
    "aiohttp",
    "redis.exceptions",
    "psycopg",
    "sqlalchemy.exc",
)
"""Where a class is looked for that is known only by its name and is not in the table."""
TRACEBACK = "Traceback (most recent call last)"
DEPENDS = (
    "the verdict depends on the single error, such as its status or its cause; pass the status "
    "or a traceback"
)


@dataclass(frozen=True, slots=True)
class Classified:
    """The verdict on one error. Immutable."""

    subject: str
    """What was classified: an exception's name, `HTTP 503`, `gRPC UNAVAILABLE`."""
    verdict: str
    """transient, permanent or unknown."""
    kind: str
    """The verdict in detail: throttled and timeout are transient."""
    rule: str | None
    """The entry that decided: a class, or a status; None: no rule knows the error."""
    family: str | None
    """The library that the rule belongs to."""
    depends: bool
    """The verdict depends on details of the error, such as the status of its response. This one is
    without them."""
    sent: bool
    """False: the request certainly did not reach the other side."""
    calls: str
    """What `retry()` does by default."""
    jobs: str
    """What a worker does with a job by default."""
    notes: tuple[str, ...]
    change: tuple[str, ...]
    """How to change it."""
    final: bool = False
    """No retry in the process repeats it, regardless of `on=`."""

    @property
    def retried(self) -> bool:
        """Whether `retry()` retries it by default."""
        return self.verdict == "transient" and not self.final


def classified(text: str, /) -> Classified:
    """Classify an HTTP status, a gRPC status, an exception or a printed error.

    Imports the exception's module and runs nothing else.

    Raises:
        Unreadable: The text is none of these, or the exception does not exist.
    """
    word = text.strip()
    if word.isdigit():
        if not 100 <= int(word) <= 599:
            raise Unreadable(f"{word}: not an HTTP status; use 100 to 599")
        return _of_status(int(word))
    if word.upper() in ALL_CODES and word.upper() == word:
        return _of_code(word)
    if _PATH.fullmatch(word):
        return _of_path(word)
    if _match_error(word) is not None:
        return of_traceback(word)
    raise Unreadable(
        f"{word!r}: not an exception, an HTTP status or a gRPC status; use httpx.ReadTimeout, "
        "503 or UNAVAILABLE"
    )


def of_traceback(text: str, /) -> Classified:
    """Classify the exception of a traceback, also by its causes if its class does not decide.

    Of the output of `redrive dead show` and `redrive jobs show`, the error is classified.

    Raises:
        Unreadable: There is no exception in the text.
    """
    printed = None if TRACEBACK in text else _PRINTED.search(text)
    chain = _CHAINED.split(text if printed is None else printed[1])
    raised = _last_raised(chain[-1])
    if raised is None:
        raise Unreadable(
            "traceback: no exception found; pass the text that Python prints, up to its last line"
        )
    verdict = _of_path(raised[1])
    status = _STATUS.search(raised[2] or "")
    if verdict.depends and status is not None:
        verdict = _of_status(int(status[1]), raised[1])
    elif verdict.depends and chain[-1].count(TRACEBACK) <= 1:
        verdict = _by_cause(verdict, chain[:-1])
    gave_up = _GAVE_UP.findall(chain[-1])
    return (
        replace(verdict, notes=(*verdict.notes, f"Redrive {gave_up[-1]}")) if gave_up else verdict
    )


def _last_raised(text: str) -> re.Match[str] | None:
    """The last line that names an exception and its message."""
    matches = (_match_error(line, strict=TRACEBACK in text) for line in reversed(text.splitlines()))
    return next((match for match in matches if match is not None), None)


def _match_error(line: str, *, strict: bool = False) -> re.Match[str] | None:
    """An exception and its message. strict: as Python prints it, and not as the CLI does."""
    if strict:
        return _RAISED.match(line.rstrip())
    text = _REASON.sub("", line.rstrip())
    word = _WORD.match(text)
    return _RAISED.match(text) or (word if word is not None and _is_ours(word[1]) else None)


def _is_ours(name: str) -> bool:
    """Whether it is the name of an exception of Redrive, such as `Stop`."""
    error = getattr(errors, name, None)
    return isinstance(error, type) and issubclass(error, Exception)


def _by_cause(wrapper: Classified, chain: list[str]) -> Classified:
    """Classify an error by its cause, from the tracebacks above its own."""
    for text in reversed(chain):
        raised = _last_raised(text)
        if raised is None:
            return wrapper
        try:
            cause = _of_path(raised[1])
        except Unreadable:
            return wrapper
        if not cause.depends:
            return replace(cause, subject=f"{wrapper.subject} caused by {cause.subject}")
    return wrapper


def _of_status(status: int, raised: str | None = None) -> Classified:
    notes = (
        ["with a Retry-After header the next attempt waits at least as long"]
        if fault_of_status(status).retryable
        else []
    )
    if status == 409:
        notes.append("with a Retry-After header it is transient: the same operation is running")
    subject = f"HTTP {status}" if raised is None else f"{raised} with HTTP {status}"
    return _verdict(
        subject,
        fault_of_status(status),
        f"HTTP status {status}",
        "HTTP status",
        notes=notes,
        name="the error",
    )


def _of_code(code: str) -> Classified:
    fault = CODES.get(code, Fault("permanent"))
    notes = (
        ["with grpc-retry-pushback-ms the next attempt waits as long as the server asks"]
        if fault.retryable
        else []
    )
    return _verdict(
        f"gRPC {code}", fault, f"gRPC status {code}", "grpc", notes=notes, name="grpc.RpcError"
    )


def _of_path(path: str) -> Classified:
    name = path.replace(":", ".")
    if "." not in name and not hasattr(builtins, name):
        if not _is_ours(name):
            return _by_bare_name(name)
        name = f"{Final.__module__}.{name}"
    error = _class_of(name)
    if error is None:
        return _by_name(name)
    decided = deciding_name(error)
    known = meaning(error)
    notes = []
    if decided is not None and decided.rpartition(".")[2] != error.__name__:
        notes.append(f"decided by its base class {decided}")
    final = issubclass(error, Final)
    if known is None and not final:
        notes.append(DEPENDS)
    fault = classify(_bare(error)) if known is None else known
    depends = known is None and not final
    verdict = _verdict(
        name, fault, decided, _family(decided), notes=notes, depends=depends, name=name
    )
    return _of_final(error, verdict) if final else verdict


def _of_final(error: type[Exception], verdict: Classified) -> Classified:
    """Exceptions by which code tells Redrive what to do: `on=` does not change that."""
    calls = "not retried: the caller gets the error after the first attempt, regardless of on="
    jobs, change = verdict.jobs, verdict.change
    if issubclass(error, Stop):
        jobs, change = (
            _jobs("permanent", reason="stopped"),
            (_LATER, "to let the policy decide: raise another exception"),
        )
    elif issubclass(error, Blocked):
        jobs = "not retried: a blocked dead letter, replayed after until= or by an operator"
        change = (_LATER, "to let the policy decide: raise another exception")
    elif issubclass(error, Again):
        jobs, change = _jobs("transient"), ("to give up at once: raise redrive.Stop instead",)
    elif issubclass(error, BreakerOpen):
        jobs, change = _jobs("transient"), ("in a call: wait until retry_at of the error",)
    return replace(verdict, calls=calls, jobs=jobs, change=change, final=True)


def _bare(kind: type[Exception]) -> Exception:
    """An error of this type, made without the `__new__` and `__init__` of its library."""
    builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    error: Exception = builtin.__new__(kind)
    return error


def _class_of(name: str) -> type[Exception] | None:
    """The class; None: its library is not installed, and its name is all there is.

    Raises:
        Unreadable: There is no such exception.
    """
    parts = name.split(".")
    if len(parts) == 1:
        error = getattr(builtins, name, None)
        if isinstance(error, type) and issubclass(error, Exception):
            return error
        raise Unreadable(f"{name}: not an exception; pass a class, such as httpx.ReadTimeout")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        return _import_class(parts, name)
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _import_class(parts: list[str], name: str) -> type[Exception] | None:
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        try:
            value: object = import_module(module)
        except ModuleNotFoundError as missing:
            if missing.name is not None and f"{module}.".startswith(f"{missing.name}."):
                continue
            raise Unreadable(f"{module}: cannot be imported ({missing})") from missing
        except (Exception, SystemExit) as wrong:  # A module may do anything.
            raise Unreadable(
                f"{module}: cannot be imported ({type(wrong).__name__}: {wrong})"
            ) from wrong
        for part in parts[end:]:
            value = getattr(value, part, None)
        if isinstance(value, type) and issubclass(value, Exception):
            return value
        raise Unreadable(f"{name}: not an exception class of {module}")
    return None


def _by_name(name: str) -> Classified:
    """By the names of package and class, where the library is not installed."""
    short = f"{name.partition('.')[0]}.{name.rpartition('.')[2]}"
    entry = KNOWN.get(short)
    if entry is None:
        raise Unreadable(
            f"{name}: module {name.rpartition('.')[0]} not found; run this where it is installed"
        )
    notes = ["the library is not installed here, so its base classes were not considered"]
    fault = entry if isinstance(entry, Fault) else Fault("unknown")
    if not isinstance(entry, Fault):
        notes.append(DEPENDS)
    return _verdict(
        name,
        fault,
        short,
        _family(short),
        notes=notes,
        depends=not isinstance(entry, Fault),
        name=name,
    )


def _by_bare_name(name: str) -> Classified:
    """Classify by the name of a class alone, if all installed libraries that have it agree."""
    known = [each for each in KNOWN if each.rpartition(".")[2] == name]
    places = known or [f"{package}.{name}" for package in CLIENTS]
    verdicts = [verdict for each in places if (verdict := _of_installed(each)) is not None] or [
        _by_name(each) for each in known
    ]
    if not verdicts:
        raise Unreadable(
            f"{name}: unknown exception; pass its module too, such as shop.errors.{name}"
        )
    if len({(verdict.verdict, verdict.sent) for verdict in verdicts}) > 1:
        choices = " or ".join(verdict.subject for verdict in verdicts[:3])
        raise Unreadable(f"{name}: depends on the library; pass its module too, such as {choices}")
    named = (
        "the class has this name in "
        f"{', '.join(verdict.subject.partition('.')[0] for verdict in verdicts)}"
    )
    return replace(verdicts[0], subject=name, notes=(named, *verdicts[0].notes))


def _of_installed(known: str) -> Classified | None:
    """Return the verdict on a class of a library. None: the library is not installed."""
    if find_spec(known.partition(".")[0]) is None:
        return None
    try:
        return _of_path(known)
    except Unreadable:
        return None


def _family(decided: str | None) -> str | None:
    return next((name for name, entries in FAMILIES.items() if decided in entries), None)


def _verdict(
    subject: str,
    fault: Fault,
    rule: str | None,
    family: str | None,
    *,
    notes: list[str],
    name: str,
    depends: bool = False,
) -> Classified:
    verdict = "transient" if fault.retryable else fault.kind
    if not fault.sent:
        notes = [
            *notes,
            "the request did not reach the other side, so a retry is safe without idempotency",
        ]
    undecided = depends and verdict == "unknown"
    return Classified(
        subject=subject,
        verdict=verdict,
        kind=fault.kind,
        rule=rule,
        family=family,
        depends=depends,
        sent=fault.sent,
        calls=_calls(verdict, undecided),
        jobs=_jobs(verdict, undecided),
        notes=tuple(notes),
        change=_change(verdict, name),
    )


def _calls(verdict: str, depends: bool = False) -> str:
    if depends:
        return "depends on the error: retried if it is transient"
    if verdict != "transient":
        return "not retried: the caller gets the error after the first attempt"
    base, longest, jitter = map(
        format_duration, (CALLS.backoff_base, CALLS.backoff_max, CALLS.jitter)
    )
    waits = f"backoff {base} doubling to {longest}, plus up to {jitter} of jitter"
    return f"retried: {CALLS.max_attempts} attempts, {waits}"


def _jobs(verdict: str, depends: bool = False, *, reason: str = "not_retryable") -> str:
    if depends:
        return "depends on the error: retried unless it is permanent"
    if verdict == "permanent":
        return f"not retried: a dead letter after the first attempt (reason {reason})"
    waits = ", ".join(map(format_duration, JOB_BACKOFF))
    backoff = f"backoff {waits} (±10 %)"
    return f"retried: {JOB_ATTEMPTS} attempts, {backoff}, then a dead letter (reason attempts)"


def _change(verdict: str, name: str) -> tuple[str, ...]:
    if verdict == "transient":
        return (
            "to give up at once: a rule that returns False, as in retry(on=(rule, classify))",
            "in a job: raise redrive.Stop",
        )
    error = name.rpartition(".")[2] if name != "the error" else "YourError"
    return (
        f"to retry it: retry(on=({error}, classify)), or the same on= for a job",
        "in a job: raise redrive.Again(after=30)",
    )
