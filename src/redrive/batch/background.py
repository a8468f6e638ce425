"""What the send buffer and the shared poller have in common: one call on behalf of many callers.

Both make the call in a task of their own, retry it by default in the same way, and give every
caller its own copy of an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any

from ..analysis.grpc import Behind, code_rule, code_rule_of
from ..backoff import doubling
from ..core.classification.classify import classify
from ..core.context import IDS, SLOT
from ..core.policy import RetryPolicy
from ..core.seconds import Seconds
from ..engine.retry import DEFAULT, Retry, RetryLike
from ..native.grpc import deadline_exceeded

DEFAULT_ATTEMPTS = 4
FIRST_WAIT_SECONDS = 0.1
MAX_WAIT_SECONDS = 10.0
ATTEMPT_SECONDS = 30.0


def default_send_retry(
    behind: Behind,
    codes: Sequence[str] | None,
    attempt_timeout: Seconds | None,
    attempts: int = DEFAULT_ATTEMPTS,
    first_wait: float = FIRST_WAIT_SECONDS,
) -> Retry:
    """Return the default retries of a send buffer.

    Waits double, plus up to half of each. Only gRPC codes that no inner layer retries are retried.
    """
    retry = DEFAULT.using(
        RetryPolicy(attempts, first_wait, MAX_WAIT_SECONDS, jitter=0.0),
        on=code_rule(behind, codes, claims=True),
        backoff=doubling(first_wait, cap=MAX_WAIT_SECONDS),
        attempt_timeout=attempt_timeout,
    )
    return Retry(replace(retry.settings, timeout_error=deadline_exceeded))


def send_retry(
    retry: RetryLike | None,
    behind: Behind,
    codes: Sequence[str] | None,
    attempt_timeout: Seconds | None,
) -> Retry:
    """Return the retries of a send buffer for its option `retry=`."""
    if not isinstance(retry, Retry):
        default = default_send_retry(behind, codes, attempt_timeout)
        return default if retry is None else default.using(retry, backoff=None)
    _check_no_rule(behind, codes)
    rule = code_rule_of(retry)
    return retry if rule is None else retry.using(on=replace(rule, claims=True))


def fetch_retry(
    retry: RetryLike | None,
    behind: Behind,
    codes: Sequence[str] | None,
    attempt_timeout: Seconds | None,
) -> Retry:
    """Return the retries of a shared poller for its option `retry=`.

    The defaults are those of a send buffer. Errors without a gRPC code go by the standard rule.
    """
    if isinstance(retry, Retry):
        _check_no_rule(behind, codes)
        return retry
    default = DEFAULT.using(
        RetryPolicy(DEFAULT_ATTEMPTS, FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS, jitter=0.0),
        on=(code_rule(behind, codes, claims=True), classify),
        attempt_timeout=attempt_timeout,
    )
    if retry is not None:
        return default.using(retry, backoff=None)
    return default.using(backoff=doubling(FIRST_WAIT_SECONDS, cap=MAX_WAIT_SECONDS))


def _check_no_rule(behind: Behind, codes: Sequence[str] | None) -> None:
    if behind or codes is not None:
        raise TypeError(
            "a Retry has a rule of its own: leave behind= and codes= out, or give them to "
            "redrive.grpc.retry(...)"
        )


def claimed_codes(retry: Retry) -> frozenset[str]:
    """Return the gRPC codes that inner layers leave to this one."""
    rule = code_rule_of(retry)
    return frozenset(rule.codes if rule else ())


def neutral_context() -> Context:
    """Return a context without the deadline and the ids of the caller that starts a task."""
    context = copy_context()
    context.run(SLOT.set, None)
    context.run(IDS.set, {})
    return context


def copies_of(error: Exception, count: int) -> list[Exception]:
    """Return the error and copies of it: one for each caller, with its own traceback and notes.

    An error that cannot be copied is shared.
    """
    errors = [error]
    for _ in range(count - 1):
        try:
            twin = _copy(error)
        except Exception:  # its __init__ takes other arguments than `args` has
            return [error] * count
        if type(twin) is not type(error):
            return [error] * count
        twin.__dict__.update(error.__dict__)  # a custom __reduce__ may leave attributes out
        if "__notes__" in twin.__dict__:
            twin.__dict__["__notes__"] = list(twin.__dict__["__notes__"])
        twin.__cause__, twin.__context__ = error.__cause__, error.__context__
        twin.__suppress_context__ = error.__suppress_context__
        twin.__traceback__ = error.__traceback__
        errors.append(twin)
    return errors


def _copy(error: Exception) -> Exception:
    """Return a shallow copy.

    `copy.copy` may use the reducer that another library, such as Dask's tblib, has registered for
    all errors. It keeps notes and tracebacks of its own.
    """
    if hasattr(error, "__copy__"):
        own: Exception = error.__copy__()
        return own
    reduced: Any = error.__reduce_ex__(4)
    make, arguments, *state = reduced
    twin: Exception = make(*arguments)
    if state and state[0]:
        twin.__setstate__(state[0])
    return twin


def qualified_name(function: Any) -> str:
    """Return the name of a function, of a callable object's class, or of what a partial wraps."""
    while hasattr(function, "func"):
        function = function.func
    has_name = isinstance(getattr(function, "__qualname__", None), str)
    named = function if has_name else type(function)
    return f"{named.__module__}.{named.__qualname__}"
