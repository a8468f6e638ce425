"""Layer: one place in a stack that tries again, as far as the layers around it need to know it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from ..backoff import Backoff
from ..core.budget import UNLIMITED, Budget
from ..core.classify import classify, meaning
from ..core.decision import LONGEST
from ..core.fault import KINDS, RETRYABLE, Kind
from ..core.known.aws import CODES as AWS
from ..core.known.grpc import CODES as GRPC
from ..core.known.status import by_status
from ..core.policy import SERVICE, RetryPolicy
from ..core.seconds import positive
from .channel import Options, channel
from .codes import EVERY, Codes
from .retry import Retry
from .rules import judgement

By: TypeAlias = Literal[
    "redrive",
    "tenacity",
    "urllib3",
    "botocore",
    "openai",
    "anthropic",
    "azure",
    "google",
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
"""Whose layer it is."""
SEEN = frozenset(
    ("tenacity", "urllib3", "botocore", "openai", "anthropic", "azure", "google", "redis", "stripe", "elasticsearch")
)
"""Libraries whose errors tell Redrive that retries were spent: what `core/known` can read. The others raise the last error
as if it were the first."""
Error: TypeAlias = str | type[Exception]
"""A kind of fault, a code ("UNAVAILABLE", "503", "SlowDown"), or a type of exception."""
STEADY = 1000
"""From this attempt on, waits are taken to stay as they are: a billion attempts are not gone through one by one."""


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
    by: By = "redrive"
    seen: bool | None = None
    budget: str | Budget | None = None
    claims: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"the name of a layer must be text: {self.name!r}")
        if self.by not in get_args(By):
            raise ValueError(f"by must be one of {', '.join(get_args(By))}, not {self.by!r}")
        if self.nested not in ("final", "allow"):
            raise ValueError(f"nested must be 'final' or 'allow', not {self.nested!r}")
        if self.policy is None and not self.ours:
            raise ValueError(
                f"the number of attempts of {self.by} is unknown here; set max_attempts, including the first attempt"
            )
        if self.policy is not None and not isinstance(self.policy, RetryPolicy):
            raise TypeError(f"policy must be a RetryPolicy, not {self.policy!r}")
        if self.attempt_timeout not in (None, "none"):
            object.__setattr__(self, "attempt_timeout", positive("attempt_timeout", self.attempt_timeout))
        if self.seen is not None and (self.ours or not isinstance(self.seen, bool)):
            raise TypeError(f"seen must be true or false, and only for a layer that is not Redrive's: {self.seen!r}")
        if self.on is not None:
            object.__setattr__(self, "on", _errors(self.on))
        self.wait(1)

    @classmethod
    def of(cls, retry: Retry, /) -> Layer:
        """Describe a `Retry` as a layer.

        Args:
            retry: The `Retry`.

        Returns:
            The layer.
        """
        settings = retry.settings
        return cls(
            retry.operation or "retry",
            policy=settings.policy,
            attempt_timeout="none" if settings.attempt_timeout is None else settings.attempt_timeout,
            backoff=None if settings.backoff == settings.policy.wait else settings.backoff,
            on=_judged(settings.judgement.rules) if settings.judgement.rules else None,
            nested="final" if settings.final else "allow",
            budget=None if settings.budget is UNLIMITED else settings.budget,
            claims=any(isinstance(rule, Codes) and rule.claims for rule in settings.judgement.rules),
        )

    @classmethod
    def of_channel(cls, options: Options, /) -> Layer:
        """Describe the retries of a gRPC channel as a layer.

        Args:
            options: Options of the channel.

        Returns:
            The layer.
        """
        own = channel(options)
        policy = RetryPolicy(own.max_attempts, own.backoff_base, own.backoff_max, jitter=0)
        return cls("channel", by="grpc", policy=policy, backoff=own.wait, on=own.codes or None)

    @property
    def ours(self) -> bool:
        """Whether it is Redrive's: keeps to deadlines around it, and knows the mark of inner layers."""
        return self.by == "redrive"

    @property
    def tells(self) -> bool:
        """Whether a Redrive layer around it can see that its retries were spent."""
        return self.ours or (self.by in SEEN if self.seen is None else self.seen)

    @property
    def max_attempts(self) -> int:
        """Attempts, the first one included."""
        return (self.policy or SERVICE).max_attempts

    @property
    def timeout(self) -> float:
        """Seconds for the whole of it; infinite: no limit."""
        timeout = (self.policy or SERVICE).timeout
        return math.inf if timeout is None else timeout

    @property
    def each(self) -> float:
        """Seconds for one attempt; infinite: no limit."""
        if self.attempt_timeout is None:
            return 10.0 if self.ours else math.inf
        return math.inf if self.attempt_timeout == "none" else self.attempt_timeout

    @cached_property
    def errors(self) -> tuple[Error, ...]:
        """What it tries again."""
        return self.on or (KINDS if self.by == "tenacity" else tuple(kind for kind in KINDS if kind in RETRYABLE))

    def retries(self, error: Error, /) -> bool:
        """Whether it would try again after this error, had nobody inside spent retries on it."""
        named = name_of(error)
        for own in self.errors:
            if own == kind_of(error) or name_of(own) == named:
                return True
            if isinstance(error, type) and isinstance(own, type) and issubclass(error, own):
                return True
        return False

    def wait(self, attempt: int, /) -> tuple[float, float]:
        """Seconds after failed attempt n, at the least and at the most."""
        backoff: Callable[[int, float], float] = self.backoff or (self.policy or SERVICE).wait
        try:
            drawn = sorted((_bounded(backoff(attempt, 0.0)), _bounded(backoff(attempt, 1.0))))
        except Exception as problem:
            raise ValueError(f"the backoff of {self.name} raises {type(problem).__name__}: {problem}") from problem
        return drawn[0], drawn[1]

    def reach(self, limit: float, /) -> int:
        """How many attempts can start within so many seconds, where each fails at once and the waits are at their shortest."""
        if limit == math.inf:
            return self.max_attempts
        passed = 0.0
        for attempt in range(1, min(self.max_attempts, STEADY)):
            passed += self.wait(attempt)[0]
            if passed >= limit:
                return attempt
        step = self.wait(STEADY)[0]
        if self.max_attempts <= STEADY or step <= 0:
            return self.max_attempts
        return min(self.max_attempts, STEADY - 1 + math.ceil((limit - passed) / step))

    def waiting(self, attempts: int, /) -> float:
        """Seconds of waits between so many attempts, at the most."""
        some = math.fsum(self.wait(attempt)[1] for attempt in range(1, min(attempts, STEADY)))
        return some + max(0, attempts - STEADY) * self.wait(STEADY)[1]


def name_of(error: Error) -> str:
    """What an error is called in a table."""
    return error if isinstance(error, str) else error.__name__


def kind_of(error: Error) -> Kind:
    """The kind of fault that a code or a type stands for."""
    if isinstance(error, type):
        fault = meaning(error)
        return "unknown" if fault is None else fault.kind
    for kind in KINDS:
        if kind == error:
            return kind
    if error.isdecimal():
        return by_status(int(error)).kind
    if error in GRPC:
        return GRPC[error].kind
    return "permanent" if error in EVERY else AWS.get(error, "unknown")


def _errors(on: object) -> tuple[Error, ...]:
    given = on if isinstance(on, (tuple, list)) else (on,)
    for error in given:
        if not (isinstance(error, str) and error) and not (isinstance(error, type) and issubclass(error, Exception)):
            raise TypeError(f"on must list kinds of fault ({', '.join(KINDS)}), codes and exception types, not {error!r}")
    if not given:
        raise ValueError("on is empty, so nothing is retried; remove it, or set max_attempts = 1")
    return tuple(given)


def _bounded(wait: float) -> float:
    return min(wait, LONGEST) if wait > 0 else 0.0  # as `decide` does, with NaN too


def _judged(rules: tuple[Any, ...]) -> tuple[Error, ...]:
    """Types as they are; functions are asked about a well-known error of each kind, and stand for what only they know."""
    types = [rule for rule in rules if isinstance(rule, type)]
    codes = [code for rule in rules if isinstance(rule, Codes) for code in rule.codes]
    functions = [rule for rule in rules if not isinstance(rule, (type, Codes))]
    own = [f"{getattr(rule, '__name__', type(rule).__name__)}()" for rule in functions if rule is not classify]
    kinds = []
    for kind, example in _examples().items() if functions else ():
        try:
            if judgement(tuple(functions)).judge(example).retryable:
                kinds.append(kind)
        except Exception:
            pass  # a rule that raises is of no use for this one
    return (*kinds, *codes, *types, *own)


def _examples() -> dict[Kind, Exception]:
    from email.message import Message  # noqa: PLC0415  # heavy, and only for rules of the user's own
    from io import BytesIO  # noqa: PLC0415
    from urllib.error import HTTPError  # noqa: PLC0415

    def answered(status: int) -> Exception:
        error = HTTPError("http://example.invalid", status, "an example", Message(), BytesIO())
        error.close()  # Python 3.14 warns of an HTTPError that is collected with an open body.
        return error

    return {
        "transient": ConnectionResetError(),
        "throttled": answered(429),
        "timeout": TimeoutError(),
        "permanent": answered(404),
        "unknown": type("Example", (Exception,), {})(),
    }
