"""Layer: one retry layer of a stack, as far as the analysis needs to know it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from io import BytesIO
from typing import Any, Literal, TypeAlias, get_args

from ..backoff import Backoff
from ..core.budget import UNLIMITED, Budget
from ..core.classification.classify import classify, meaning
from ..core.classification.known.cloud import AWS_CODES
from ..core.classification.known.grpc import CODES as GRPC_CODES
from ..core.classification.known.http_responses import fault_of_status
from ..core.fault import KINDS, MAX_WAIT_SECONDS, RETRYABLE, Kind
from ..core.policy import SERVICE, RetryPolicy
from ..core.seconds import positive
from ..engine.retry import Retry
from ..engine.settings import error_rules
from .grpc import ALL_CODES, ChannelOptions, CodeRule, channel_retries

Library: TypeAlias = Literal[
    "redrive",
    "tenacity",
    "urllib3",
    "botocore",
    "openai",
    "anthropic",
    "azure",
    "google",
    "obstore",
    "redis",
    "grpc",
    "stamina",
    "backoff",
    "stripe",
    "elasticsearch",
    "aiohttp",
    "aiohttp-retry",
    "other",
]
"""The library of a layer."""
RECOGNISED_LIBRARIES = frozenset(
    """tenacity urllib3 botocore openai anthropic azure google obstore redis stripe
    elasticsearch""".split()
)
"""Libraries whose errors show that retries were used up, so that Redrive can read it."""
Error: TypeAlias = str | type[Exception]
"""A kind of fault, a code ("UNAVAILABLE", "503", "SlowDown"), or an exception type."""
MAX_COMPUTED_WAITS = 1000
"""From this attempt on, waits are assumed to be constant."""


@dataclass(frozen=True)
class Layer:
    """A place that retries: a layer of Redrive, or of another library.

    Immutable: threads may share one.

    Args:
        name: Name of the layer.
        policy: Policy. None: the default of `retry()`. A layer of another library must have one.
        attempt_timeout: Seconds for one attempt. None: 10 for Redrive, no limit for others.
            `"none"`: no limit.
        backoff: Other waits than the policy's.
        on: Errors that it retries. None: transient, throttled and timeout. For tenacity, all
            errors.
        nested: `"final"` or `"allow"`, as in `retry`.
        by: Library of the layer.
        seen: Whether Redrive can tell from the errors that the retries of this layer were used up.
            None: as known for the library.
        budget: Budget that it shares with others, or its name.
        claims: Whether layers of Redrive inside leave these codes to this layer.

    Raises:
        ValueError: An option is not valid.
        TypeError: An option has the wrong type.
    """

    name: str
    _: KW_ONLY
    policy: RetryPolicy | None = None
    attempt_timeout: float | Literal["none"] | None = None
    backoff: Backoff | None = None
    on: tuple[Error, ...] | None = None
    nested: Literal["final", "allow"] = "final"
    by: Library = "redrive"
    seen: bool | None = None
    budget: str | Budget | None = None
    claims: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"the name of a layer must be text: {self.name!r}")
        if self.by not in get_args(Library):
            raise ValueError(f"by must be one of {', '.join(get_args(Library))}, not {self.by!r}")
        if self.nested not in ("final", "allow"):
            raise ValueError(f"nested must be 'final' or 'allow', not {self.nested!r}")
        if self.policy is None and not self.is_ours:
            raise ValueError(
                f"the number of attempts of {self.by} is unknown here; "
                "set max_attempts, including the first attempt"
            )
        if self.policy is not None and not isinstance(self.policy, RetryPolicy):
            raise TypeError(f"policy must be a RetryPolicy, not {self.policy!r}")
        if self.attempt_timeout not in (None, "none"):
            seconds = positive("attempt_timeout", self.attempt_timeout)
            object.__setattr__(self, "attempt_timeout", seconds)
        if self.seen is not None and (self.is_ours or not isinstance(self.seen, bool)):
            raise TypeError(
                "seen must be true or false, and only for a layer that is not Redrive's: "
                f"{self.seen!r}"
            )
        if self.on is not None:
            object.__setattr__(self, "on", _check_errors(self.on))
        self.wait(1)  # raises if the backoff does

    @classmethod
    def of(cls, retry: Retry, /) -> Layer:
        """Describe a `Retry` as a layer.

        Args:
            retry: The `Retry`.

        Returns:
            The layer.
        """
        settings, rules = retry.settings, retry.settings.error_rules.rules
        timeout = settings.attempt_timeout
        return cls(
            retry.operation or "retry",
            policy=settings.policy,
            attempt_timeout="none" if timeout is None else timeout,
            backoff=None if settings.backoff == settings.policy.wait else settings.backoff,
            on=_errors_of(rules) if rules else None,
            nested="final" if settings.nested_is_final else "allow",
            budget=None if settings.budget is UNLIMITED else settings.budget,
            claims=any(isinstance(rule, CodeRule) and rule.claims for rule in rules),
        )

    @classmethod
    def of_channel(cls, options: ChannelOptions, /) -> Layer:
        """Describe the retries of a gRPC channel as a layer.

        Args:
            options: Options of the channel.

        Returns:
            The layer.
        """
        channel = channel_retries(options)
        policy = RetryPolicy(
            channel.max_attempts, channel.backoff_base, channel.backoff_max, jitter=0
        )
        codes = channel.codes or None
        return cls("channel", by="grpc", policy=policy, backoff=channel.wait, on=codes)

    @property
    def is_ours(self) -> bool:
        """Whether it is a layer of Redrive, which respects deadlines and marks of inner layers."""
        return self.by == "redrive"

    @property
    def marks_exhaustion(self) -> bool:
        """Whether outer layers of Redrive recognise that its retries were used up."""
        if self.is_ours:
            return True
        return self.by in RECOGNISED_LIBRARIES if self.seen is None else self.seen

    @property
    def max_attempts(self) -> int:
        """Maximum number of attempts, including the first one."""
        return (self.policy or SERVICE).max_attempts

    @property
    def timeout(self) -> float:
        """Seconds for all attempts together. Infinite: no limit."""
        timeout = (self.policy or SERVICE).timeout
        return math.inf if timeout is None else timeout

    @property
    def attempt_limit(self) -> float:
        """Seconds for one attempt. Infinite: no limit."""
        if self.attempt_timeout is None:
            return 10.0 if self.is_ours else math.inf
        return math.inf if self.attempt_timeout == "none" else self.attempt_timeout

    @cached_property
    def errors(self) -> tuple[Error, ...]:
        """The errors that it retries."""
        if self.on:
            return self.on
        return tuple(kind for kind in KINDS if self.by == "tenacity" or kind in RETRYABLE)

    def retries(self, error: Error, /) -> bool:
        """Return whether it retries this error, if no inner layer has."""
        name = error_name(error)
        for retried in self.errors:
            if retried == kind_of(error) or error_name(retried) == name:
                return True
            if isinstance(error, type) and isinstance(retried, type) and issubclass(error, retried):
                return True
        return False

    def wait(self, attempt: int, /) -> tuple[float, float]:
        """Return the minimum and maximum wait after a failed attempt, from 1."""
        backoff: Callable[[int, float], float] = self.backoff or (self.policy or SERVICE).wait
        try:
            low, high = sorted(_bound_wait(backoff(attempt, draw)) for draw in (0.0, 1.0))
        except Exception as problem:
            kind = type(problem).__name__
            raise ValueError(f"the backoff of {self.name} raises {kind}: {problem}") from problem
        return low, high

    def attempts_within(self, limit: float, /) -> int:
        """Return how many attempts can start within so many seconds.

        Each fails at once, and the waits are the shortest possible.
        """
        if limit == math.inf:
            return self.max_attempts
        elapsed = 0.0
        for attempt in range(1, min(self.max_attempts, MAX_COMPUTED_WAITS)):
            elapsed += self.wait(attempt)[0]
            if elapsed >= limit:
                return attempt
        step = self.wait(MAX_COMPUTED_WAITS)[0]
        if self.max_attempts <= MAX_COMPUTED_WAITS or step <= 0:
            return self.max_attempts
        further = math.ceil((limit - elapsed) / step)
        return min(self.max_attempts, MAX_COMPUTED_WAITS - 1 + further)

    def total_wait(self, attempts: int, /) -> float:
        """Return the maximum seconds of waits between so many attempts."""
        computed = range(1, min(attempts, MAX_COMPUTED_WAITS))
        total = math.fsum(self.wait(attempt)[1] for attempt in computed)
        further = max(0, attempts - MAX_COMPUTED_WAITS)
        return total + further * self.wait(MAX_COMPUTED_WAITS)[1]


def error_name(error: Error) -> str:
    """Return the name of an error in a table."""
    return error if isinstance(error, str) else error.__name__


def kind_of(error: Error) -> Kind:
    """Return the kind of fault of a code or a type."""
    if isinstance(error, type):
        fault = meaning(error)
        return "unknown" if fault is None else fault.kind
    for kind in KINDS:
        if kind == error:
            return kind
    if error.isdecimal():
        return fault_of_status(int(error)).kind
    if error in GRPC_CODES:
        return GRPC_CODES[error].kind
    return "permanent" if error in ALL_CODES else AWS_CODES.get(error, "unknown")


def _check_errors(on: object) -> tuple[Error, ...]:
    errors = on if isinstance(on, (tuple, list)) else (on,)
    for error in errors:
        is_name = isinstance(error, str) and error
        if not is_name and not (isinstance(error, type) and issubclass(error, Exception)):
            raise TypeError(
                f"on must list kinds of fault ({', '.join(KINDS)}), codes and exception types, not "
                f"{error!r}"
            )
    if not errors:
        raise ValueError("on is empty, so nothing is retried; remove it, or set max_attempts = 1")
    return tuple(errors)


def _bound_wait(wait: float) -> float:
    return min(wait, MAX_WAIT_SECONDS) if wait > 0 else 0.0  # as `decide` does, also with NaN


def _errors_of(rules: tuple[Any, ...]) -> tuple[Error, ...]:
    """Return the errors that rules retry.

    Functions are called with an example of each kind. They are listed too, because they may retry
    errors that only they know.
    """
    types = [rule for rule in rules if isinstance(rule, type)]
    codes = [code for rule in rules if isinstance(rule, CodeRule) for code in rule.codes]
    functions = [rule for rule in rules if not isinstance(rule, (type, CodeRule))]
    names = [
        f"{getattr(rule, '__name__', type(rule).__name__)}()"
        for rule in functions
        if rule is not classify
    ]
    kinds = []
    for kind, example in _examples().items() if functions else ():
        try:
            if error_rules(tuple(functions)).classify(example).retryable:
                kinds.append(kind)
        except Exception:
            pass  # a rule that raises does not retry this kind
    return (*kinds, *codes, *types, *names)


def _examples() -> dict[Kind, Exception]:
    from email.message import Message  # noqa: PLC0415  # slow to import, and rarely used
    from urllib.error import HTTPError  # noqa: PLC0415

    def http_error(status: int) -> Exception:
        error = HTTPError("http://example.invalid", status, "an example", Message(), BytesIO())
        error.close()  # Python 3.14 warns if an HTTPError is deleted with an open body
        return error

    return {
        "transient": ConnectionResetError(),
        "throttled": http_error(429),
        "timeout": TimeoutError(),
        "permanent": http_error(404),
        "unknown": type("Example", (Exception,), {})(),
    }
