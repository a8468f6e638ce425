"""Settings: what `retry(...)` was told, checked and made ready for the loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import iscoroutinefunction, signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

from ..core.breaker import Breaker
from ..core.budget import UNLIMITED, Budget
from ..core.decision import LONGEST
from ..core.fault import Fault, Rules
from ..core.key import Key, KeyOf
from ..core.policy import SERVICE, RetryPolicy
from ..core.seconds import Seconds, positive, seconds
from ..errors import AttemptTimeout
from .rules import Judge, Judgement, judgement

if TYPE_CHECKING:
    from ..backoff import Backoff  # only a name here; its module costs 3 ms
    from .spilled import Spill

POLICY_NAMES = ("max_attempts", "backoff_base", "backoff_max", "jitter", "timeout")
TABLED = 10
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Options(TypedDict, total=False):
    """What `retry(...)` takes by name; explained there."""

    max_attempts: int
    backoff_base: float
    backoff_max: float
    jitter: float
    timeout: float | None
    on: Rules | None
    reject: Callable[[Any], bool] | None
    backoff: Backoff | None
    budget: Budget | str | None
    breaker: Breaker | str | None
    attempt_timeout: Seconds | None
    idempotent: bool
    nested: Literal["final", "allow"]
    key: Key | KeyOf | None
    fields: Mapping[str, Any] | None
    spill: Spill | None
    hedge: Seconds | None
    operation: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """What the loops read. Immutable: threads, event loops and forked children may share one."""

    policy: RetryPolicy = SERVICE
    judgement: Judgement = field(default_factory=lambda: judgement(None), repr=False)
    reject: Callable[[Any], bool] | None = None
    backoff: Backoff = SERVICE.wait
    budget: Budget = UNLIMITED
    breaker: Breaker | None = None
    attempt_timeout: float | None = 10.0
    idempotent: bool = True
    declared: bool = False
    """Whether `idempotent=` was passed. Clients look at the method and the key of a request where it was not."""
    final: bool = True
    key: Key | KeyOf | None = None
    fields: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    spill: Spill | None = None
    hedge: float | None = None
    """Seconds after which a second call is started beside one that is slow."""
    operation: str | None = None
    overdue: Callable[[str], Exception] = AttemptTimeout
    """What an async attempt raises when its time is over: of a client of ours, the library's own time-out."""
    given: frozenset[str] = frozenset()
    """Names of the options that were passed, and `policy` for a whole one. Durable work has other defaults for the rest."""
    origins: tuple[object, ...] = ()
    """The `Retry` objects this was made from: what a test may order faults for."""

    max_attempts: int = field(init=False)
    judge: Judge = field(init=False, repr=False)
    known: dict[type[Exception], Fault] = field(init=False, repr=False)
    waits: tuple[float, ...] = field(init=False, repr=False)
    """The policy's waits by attempt, before jitter, worked out beforehand: `[0]` is not used."""
    tabled: int = field(init=False, repr=False)
    """Attempts below this one need no decision of their own, if the error needs none; 0 where each one does."""
    jitter: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # The loops read these at each failure: one step each, not two.
        object.__setattr__(self, "max_attempts", self.policy.max_attempts)
        object.__setattr__(self, "judge", self.judgement.judge)
        object.__setattr__(self, "known", self.judgement.known)
        simple = self.backoff == self.policy.wait and self.idempotent and self.breaker is None and self.policy.jitter < LONGEST
        tabled = min(self.max_attempts, TABLED) if simple else 0
        object.__setattr__(self, "tabled", tabled)
        object.__setattr__(
            self, "waits", tuple(min(LONGEST, self.policy.wait(max(1, attempt), 0.0)) for attempt in range(tabled))
        )
        object.__setattr__(self, "jitter", self.policy.jitter)

    @property
    def shows(self) -> bool:
        """Whether its attempts can be seen from inside: those without a limit or a key are not published at first."""
        special = any(each is not None for each in (self.key, self.reject, self.breaker, self.hedge))
        return special or self.attempt_timeout is not None or self.policy.timeout is not None

    @property
    def job_id(self) -> None:
        """A call is no job."""
        return

    def named(self, operation: str | None, origin: object) -> Settings:
        """A copy under another name: made for every `call`, so without the checks and the pace of `replace`."""
        copy: Settings = object.__new__(Settings)
        for name in _FIELDS:
            object.__setattr__(copy, name, getattr(self, name))
        object.__setattr__(copy, "operation", operation)
        object.__setattr__(copy, "origins", (*self.origins, origin))
        return copy

    def using(self, policy: RetryPolicy | None, options: Mapping[str, Any]) -> Self:
        """A copy with other options, each of them checked."""
        changes: dict[str, Any] = {"given": self.given.union(options, () if policy is None else ("policy",))}
        given = {name: options[name] for name in POLICY_NAMES if name in options}
        if policy is not None or given:
            changes["policy"] = _policy(self.policy, policy, given)
            if self.backoff == self.policy.wait:
                changes["backoff"] = changes["policy"].wait
        for name, value in options.items():
            if name in POLICY_NAMES:
                continue
            if name not in _CHECKS:
                known = ", ".join((*POLICY_NAMES, *_CHECKS))
                raise TypeError(f"retry has no option {name!r}; use one of: {known}")
            field_name, check = _CHECKS[name]
            checked = check(value)
            if name == "backoff" and checked is None:
                checked = changes.get("policy", self.policy).wait
                changes["given"] -= {"backoff"}
            changes[field_name] = checked
            if name == "idempotent":
                changes["declared"] = True
        made = replace(self, **changes)
        if made.hedge is not None and not (made.declared and made.idempotent):
            raise TypeError("hedge= runs a call twice at once; set idempotent=True if the call is safe to repeat")
        return made


def _policy(before: RetryPolicy, policy: object, given: Mapping[str, Any]) -> RetryPolicy:
    if policy is None:
        return replace(before, **given)
    if not isinstance(policy, RetryPolicy):
        raise TypeError(f"retry takes a RetryPolicy or a function, not {type(policy).__name__}: {policy!r}")
    if given:
        raise TypeError(f"pass a policy, or its fields by name, not both: {', '.join(given)}")
    return policy


def _predicate(value: object) -> object:
    if value is not None and not callable(value):
        raise TypeError(f"reject= must be a function of the result that returns True to reject it, not {value!r}")
    if iscoroutinefunction(value):
        raise TypeError(f"reject= must be a sync function of the result, not the async {value!r}")
    return value


def _backoff(value: object) -> object:
    if value is not None and not callable(value):
        raise TypeError(f"backoff= must be one of redrive.backoff, or a function of (attempt, draw), not {value!r}")
    if value is not None:
        _check_wait(value)
    return value


def _check_wait(backoff: Any) -> None:
    """A backoff that takes other arguments would only be found out by the first failure."""
    try:
        signature(backoff).bind(1, 0.5)
    except TypeError as error:
        raise TypeError(
            f"backoff= must be one of redrive.backoff with its numbers, or a function of (attempt, draw), "
            f"not {backoff!r}: {error}"
        ) from None
    except ValueError:
        pass  # a built-in that does not say what it takes


def _budget(value: object) -> Budget:
    if value is None:
        return UNLIMITED
    if isinstance(value, str):
        return Budget.named(value)
    if isinstance(value, Budget):
        return value
    raise TypeError(f"budget= must be a Budget or the name of one, not {type(value).__name__}: {value!r}")


def _breaker(value: object) -> Breaker | None:
    if isinstance(value, str):
        return Breaker.named(value)
    if value is None or isinstance(value, Breaker):
        return value
    raise TypeError(f"breaker= must be a Breaker or the name of one, not {type(value).__name__}: {value!r}")


def _limit(value: object) -> float | None:
    return None if value is None else positive("attempt_timeout", value)


def _hedge(value: object) -> float | None:
    return None if value is None else seconds("hedge", value)


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"idempotent= must be True or False, not {value!r}")
    return value


def _final(value: object) -> bool:
    if value not in ("final", "allow"):
        raise ValueError(f"nested= must be 'final' or 'allow', not {value!r}")
    return value == "final"


def _key(value: object) -> object:
    if value is None or isinstance(value, (Key, str)) or callable(value):
        return value
    raise TypeError(
        f"key= must be a Key, a template such as 'shop:{{user}}:{{order_id}}:receipt:v1', or a function, not {value!r}"
    )


def _fields(value: object) -> Mapping[str, Any]:
    if value is None:
        return NOTHING
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"fields= must be a mapping of names to values for every record, not {value!r}")
    return MappingProxyType(dict(value))


def _spill(value: object) -> object:
    if value is not None and (not callable(value) or iscoroutinefunction(value)):
        raise TypeError(
            f"spill= must be a sync function that enqueues the failed call (async code calls it in a thread), not {value!r}"
        )
    return value


def _operation(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise TypeError(f"operation= must be the name of the call, not {value!r}")
    return value


_CHECKS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "on": ("judgement", judgement),
    "reject": ("reject", _predicate),
    "backoff": ("backoff", _backoff),
    "budget": ("budget", _budget),
    "breaker": ("breaker", _breaker),
    "attempt_timeout": ("attempt_timeout", _limit),
    "idempotent": ("idempotent", _yes_or_no),
    "nested": ("final", _final),
    "key": ("key", _key),
    "fields": ("fields", _fields),
    "spill": ("spill", _spill),
    "hedge": ("hedge", _hedge),
    "operation": ("operation", _operation),
}
_FIELDS = tuple(each.name for each in fields(Settings))
