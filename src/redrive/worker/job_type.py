"""JobType: how a worker runs the jobs of one type, and when it retries them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from ..backoff import steps
from ..core.callables import qualified_name
from ..core.job_reasons import DeadReason
from ..core.policy import RetryPolicy
from ..engine.retry import Retry
from ..engine.settings import POLICY_NAMES, RetrySettings
from ..ledger.jobs.tenants import TenantLimit
from ..ledger.model import Lease

Execution: TypeAlias = Literal["thread", "async", "transaction", "process"]
"""Where the function runs: in a thread, on the event loop, in a thread with the transaction that
settles the job, or in a process of its own."""

NO_TIMEOUT = RetrySettings().using(None, {"attempt_timeout": None})
DURABLE = NO_TIMEOUT.using(RetryPolicy(5, 5, 600, 0.5), {"backoff": steps(5, 30, 120, 600)})
"""Default of `retry=`: 5 attempts, waits of 5 s, 30 s, 2 min and 10 min (± 10 %), and no timeout.

The policy applies where `retry(...)` sets only some of `backoff_base`, `backoff_max` and `jitter`.
"""
DEFAULT_JITTER = 0.1
"""Default of `jitter`, as a part of `backoff_base`."""
CALL_OPTIONS = {
    "key": "the key of the job",
    "spill": "not needed, since the work is already durable",
    "hedge": "not needed, since a job runs once at a time",
    "reject": "an error that the function raises",
}
"""Options of `retry(...)` that only calls in process have, and what a job has instead."""


@dataclass(frozen=True, slots=True, eq=False)
class JobType:
    """The function, policy and limits of one job type. Immutable.

    Attributes:
        name: The job type, as stored in `kind`.
        run: `run(lease)` returns the stored result, as bytes or None. A coroutine function if
            `execution` is "async", and `run(connection, lease)` if it is "transaction". It raises
            the errors of the function, and `Undecodable` for a payload that does not fit it. If
            `execution` is "process", the process of the pool calls it.
        execution: Where the function runs.
        settings: Policy, backoff, error rules and attempt timeout. The `timeout` of a policy is
            not used: a job has a deadline instead.
        concurrency: Maximum number of running jobs, over all workers.
        rate: Maximum number of starts in a second, over all workers.
        on_exhausted: State of a job without attempts left.
        parks_on_outage: Whether an outage parks the job type instead of counting against its jobs.
        fn: The user's function.
        memory_limit: Maximum memory of its process, in bytes.
        tenants: Limits of each tenant. None: the job type has no tenants.
        is_sequenced: Whether its jobs have sequences, which run one after another.
        is_mirror: Whether another engine runs its jobs, and ends those whose deadline passes.
        describe: Returns the attributes of an attempt in traces. None: those of a job.
    """

    name: str
    run: Callable[..., Any]
    execution: Execution
    settings: RetrySettings
    concurrency: int | None = None
    rate: float | None = None
    on_exhausted: Literal["dead", "blocked"] = "dead"
    parks_on_outage: bool = True
    fn: Callable[..., Any] | None = None
    memory_limit: int | None = None
    tenants: TenantLimit | None = None
    is_sequenced: bool = False
    is_mirror: bool = False
    describe: Callable[[Lease], Mapping[str, str]] | None = None


class Undecodable(Exception):
    """The payload does not fit the function. The job becomes a dead letter at once.

    Args:
        problem: What does not fit, equal for all jobs with the same cause.
        value: What this job has.
        reason: Reason of the dead letter.
    """

    def __init__(
        self, problem: str, value: str = "", /, *, reason: DeadReason = "undecodable"
    ) -> None:
        super().__init__(f"{problem}. {value}" if value else problem)
        self.problem = problem
        self.reason = reason


class EndedElsewhere(Exception):
    """Another engine ran the job and ended it without a result. Its word is final here.

    Args:
        outcome: `"dead"`, `"blocked"` or `"cancelled"`.
        reason: Reason of the dead letter.
        error: Text of the error.
        signature: Signature of the error.
        until: When a blocked job is replayed.
        attempts: Attempts of the other engine. None: not known.
    """

    def __init__(
        self,
        outcome: Literal["dead", "blocked", "cancelled"],
        reason: str,
        error: str | None = None,
        signature: str | None = None,
        until: datetime | None = None,
        attempts: int | None = None,
        /,
    ) -> None:
        super().__init__((error or reason).partition("\n")[0])
        self.outcome = outcome
        self.reason = reason
        self.error = error
        self.signature = signature
        self.until = until
        self.attempts = attempts


class ProcessCrashed(Exception):
    """The process of a job ended in the middle of an attempt."""


class Unstorable(Exception):
    """The job succeeded, and its result cannot be stored. A retry would not help."""


def durable_settings(
    name: str, retry: object, default: RetrySettings = DURABLE, /
) -> RetrySettings:
    """Check a `retry=` of a job type or dataset, and return its settings.

    A `RetryPolicy` is used as it is. Options that `retry(...)` did not get have the values of
    `default`.
    """
    if retry is None:
        return default
    if isinstance(retry, RetryPolicy):
        return NO_TIMEOUT.using(retry, {})
    if not isinstance(retry, Retry):
        raise TypeError(
            f"{name}: retry= must be a RetryPolicy, a Retry (from `retry(...)`) or None, "
            f"not {retry!r}"
        )
    for option, instead in CALL_OPTIONS.items():
        if getattr(retry.settings, option) is not None:
            raise TypeError(
                f"{name}: retry= has {option}=, which is only for calls in process; here it is "
                f"{instead}"
            )
    return _with_defaults(retry.settings, default)


def _with_defaults(own: RetrySettings, default: RetrySettings) -> RetrySettings:
    """Return `own` with the values of `default` for options that were not passed."""
    changes: dict[str, Any] = {}
    if "attempt_timeout" not in own.given:
        changes["attempt_timeout"] = default.attempt_timeout
    if "policy" not in own.given:
        policy = changes["policy"] = _policy_with_defaults(own, default.policy)
        if own.given.isdisjoint(("backoff", "backoff_base", "backoff_max", "jitter")):
            changes["backoff"] = default.backoff
        elif "backoff" not in own.given:
            changes["backoff"] = policy.wait
    return replace(own, **changes)


def _policy_with_defaults(own: RetrySettings, default: RetryPolicy) -> RetryPolicy:
    passed = {name: getattr(own.policy, name) for name in POLICY_NAMES if name in own.given}
    if (base := passed.get("backoff_base")) is not None:
        passed.setdefault(
            "backoff_max", max(base, default.backoff_max)
        )  # a longer first wait is kept
        passed.setdefault("jitter", DEFAULT_JITTER * base)
    return replace(default, **passed)


def execution_of(
    name: str,
    fn: Callable[..., Any],
    /,
    *,
    in_transaction: bool,
    isolation: Literal["process"] | None = None,
) -> Execution:
    """Return where a function runs.

    Raises:
        TypeError: It cannot be run as a job, or not there.
        ValueError: The isolation is unknown.
    """
    if isinstance(fn, (classmethod, staticmethod, type)) or not callable(fn):
        raise TypeError(f"{name}: must decorate a function, not {type(fn).__name__}")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"{name}: {qualified_name(fn)} is a generator, which has no single result; use a "
            f"function"
        )
    if isolation is not None:
        _check_isolation(name, fn, isolation, in_transaction)
        return "process"
    if not in_transaction:
        return "async" if inspect.iscoroutinefunction(fn) else "thread"
    if inspect.iscoroutinefunction(fn):
        raise TypeError(
            f"{name}: {qualified_name(fn)} is async, and its transaction would stay open while "
            f"other tasks run; in_transaction=True is for sync functions"
        )
    return "transaction"


def _check_isolation(
    name: str, fn: Callable[..., Any], isolation: object, in_transaction: bool
) -> None:
    if isolation != "process":
        raise ValueError(f"{name}: isolation= must be 'process' or None, not {isolation!r}")
    if inspect.iscoroutinefunction(fn):
        raise TypeError(
            f"{name}: {qualified_name(fn)} is async; isolation='process' is for sync functions"
        )
    if in_transaction:
        raise TypeError(
            f"{name}: isolation='process' and in_transaction=True cannot be combined, because a "
            f"transaction belongs to one process; open a transaction inside the function"
        )
    if "<" in getattr(fn, "__qualname__", ""):  # <locals> or <lambda>
        raise TypeError(
            f"{name}: {qualified_name(fn)} is a lambda or defined inside a function, so that a new "
            f"process cannot import it; define it at the top level of a module"
        )
