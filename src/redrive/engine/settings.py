"""RetrySettings: the options of `retry(...)`, checked and prepared for the loops.

`error_rules` turns the value of `on=` into one function that classifies errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import iscoroutinefunction, signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from ..core.breaker import Breaker
from ..core.budget import UNLIMITED, Budget
from ..core.classification.classify import classify, meaning
from ..core.fault import MAX_WAIT_SECONDS, PERMANENT, TRANSIENT, UNKNOWN, Fault, Rule, Rules
from ..core.policy import SERVICE, RetryPolicy
from ..core.seconds import Seconds, positive, seconds
from ..errors import AttemptTimeout, Rejected

if TYPE_CHECKING:
    # For annotations only: these take 5 ms.
    from typing import TypedDict

    from ..backoff import Backoff
    from ..core.key import Key, KeyOf
    from .spill import Spill

    class Options(TypedDict, total=False):
        """The options of `retry(...)`, which documents them."""

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


Classifier: TypeAlias = Callable[[Exception], Fault]
MAX_KNOWN_TYPES = 256
"""Error types whose fault is remembered. Some programs create classes at run time."""


class ErrorRules:
    """How errors are classified."""

    __slots__ = ("classify", "known_faults", "rules")

    def __init__(
        self,
        classify: Classifier,
        known_faults: dict[type[Exception], Fault],
        rules: tuple[Rule, ...] = (),
    ) -> None:
        self.classify = classify
        self.known_faults = known_faults
        """Types all of whose errors have the same fault. It fills up as errors occur."""
        self.rules = rules
        """The value of `on=`, for `redrive layers`. Empty: the standard rule."""


def error_rules(on: Rules | None, name: str = "on") -> ErrorRules:
    """Return the rules that a value of `on=` stands for. None: the standard rule.

    Args:
        on: Exception types and functions of the error.
        name: Name of the option in error messages.

    Raises:
        TypeError: A rule is not valid.
        ValueError: No rule is passed.
    """
    if on is None:
        return ErrorRules(classify, {})
    rules = on if isinstance(on, tuple) else (on,)
    if not rules:
        raise ValueError(
            "on=() would retry nothing; "
            "remove it for the standard rule, or use RetryPolicy.disabled()"
        )
    for rule in rules:
        _check_rule(rule, name)
    if all(isinstance(rule, type) for rule in rules):
        return _type_rules(rules)
    return ErrorRules(_function_rules(rules), {}, rules)


def _type_rules(types: tuple[Any, ...]) -> ErrorRules:
    known_faults: dict[type[Exception], Fault] = {}

    def classify_by_type(error: Exception) -> Fault:
        fault = _match_types(error, types)
        if (
            fault is TRANSIENT
            and meaning(type(error)) is not None
            and len(known_faults) < MAX_KNOWN_TYPES
        ):
            known_faults[type(error)] = fault
        return fault

    return ErrorRules(classify_by_type, known_faults, types)


def _function_rules(rules: tuple[Rule, ...]) -> Classifier:
    return lambda error: _match_rules(error, rules)


# Functions of the module, because a closure that calls itself would be a reference cycle.


def _match_types(error: Exception, types: tuple[Any, ...]) -> Fault:
    if isinstance(error, (*types, Rejected)):
        return _as_retryable(classify(error))
    return _classify_group(error, _match_types, types)


def _match_rules(error: Exception, rules: tuple[Rule, ...]) -> Fault:
    for rule in rules:
        if isinstance(rule, type):
            decision: Fault | bool | None = isinstance(error, rule) or None
        else:
            decision = rule(error)
        if decision is None:
            continue
        if isinstance(decision, Fault):
            return decision
        if not isinstance(decision, bool):
            kind = type(decision).__name__
            raise TypeError(
                f"a rule must return a Fault, True, False or None, not {kind}: {decision!r}"
            )
        return _as_retryable(classify(error)) if decision else PERMANENT
    if isinstance(error, Rejected):
        return classify(error)
    return _classify_group(error, _match_rules, rules)


def _classify_group(
    error: Exception,
    match: Callable[[Exception, tuple[Any, ...]], Fault],
    rules: tuple[Any, ...],
) -> Fault:
    """Classify a group that no rule matches. It is retryable only if all of its members are."""
    if not isinstance(error, ExceptionGroup):
        return UNKNOWN
    from ..core.classification.known.inspect import MAX_ERRORS, worst_fault  # noqa: PLC0415  # groups are rare

    if len(error.exceptions) > MAX_ERRORS:
        return UNKNOWN
    return worst_fault([match(member, rules) for member in error.exceptions])


def _as_retryable(fault: Fault) -> Fault:
    """Return a retryable fault that keeps Retry-After and whether the request was sent."""
    if fault is UNKNOWN or fault is PERMANENT:
        return TRANSIENT
    return fault if fault.retryable else replace(fault, kind="transient")


def _check_rule(rule: object, name: str) -> None:
    if isinstance(rule, type):
        if not issubclass(rule, BaseException):
            raise TypeError(
                f"{name}= takes exception types and functions; "
                f"{rule.__name__} is not an exception type"
            )
        if not issubclass(rule, Exception):
            raise TypeError(
                f"{rule.__name__} is never retried, because it stops the program or the caller; "
                "remove it"
            )
    elif not callable(rule):
        raise TypeError(
            f"{name}= takes exception types, functions of the error, or a tuple of both, not "
            f"{rule!r}"
        )


POLICY_NAMES = ("max_attempts", "backoff_base", "backoff_max", "jitter", "timeout")
MAX_PRECOMPUTED_WAITS = 10
NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class RetrySettings:
    """The settings of one retry layer. Immutable: threads, event loops and forks may share them.

    Without slots, because each block copies them, and a copy of `__dict__` is four times faster.
    """

    policy: RetryPolicy = SERVICE
    error_rules: ErrorRules = field(default_factory=lambda: error_rules(None), repr=False)
    reject: Callable[[Any], bool] | None = None
    backoff: Backoff = SERVICE.wait
    budget: Budget = UNLIMITED
    breaker: Breaker | None = None
    attempt_timeout: float | None = 10.0
    idempotent: bool = True
    idempotent_explicit: bool = False
    """Whether `idempotent=` was passed. If not, clients decide by the request's method and key."""
    nested_is_final: bool = True
    key: Key | KeyOf | None = None
    fields: Mapping[str, Any] = field(default_factory=lambda: NO_FIELDS)
    spill: Spill | None = None
    hedge: float | None = None
    """Seconds after which a second call is started beside a slow one."""
    operation: str | None = None
    timeout_error: Callable[[str], Exception] = AttemptTimeout
    """Makes the error of an async attempt that took too long. Clients raise their library's own."""
    given: frozenset[str] = frozenset()
    """Options that were passed, and `policy` for a whole policy. Jobs have other defaults."""
    origins: tuple[object, ...] = ()
    """The `Retry` objects from which these settings were made. Tests inject faults by them."""

    # Copies of fields of fields, because the loops read them at each failure.
    max_attempts: int = field(init=False)
    classify: Classifier = field(init=False, repr=False)
    known_faults: dict[type[Exception], Fault] = field(init=False, repr=False)
    jitter: float = field(init=False, repr=False)
    precomputed: int = field(init=False, repr=False)
    """For attempts below this number, a transient error needs only `waits`. 0: for none."""
    waits: tuple[float, ...] = field(init=False, repr=False)
    """The waits of the policy by attempt, without jitter. `[0]` is not used."""

    def __post_init__(self) -> None:
        policy = self.policy
        is_simple = (
            self.backoff == policy.wait
            and self.idempotent
            and self.breaker is None
            and policy.jitter < MAX_WAIT_SECONDS
        )
        precomputed = min(policy.max_attempts, MAX_PRECOMPUTED_WAITS) if is_simple else 0
        waits = (policy.wait(max(1, attempt), 0.0) for attempt in range(precomputed))
        set_field = object.__setattr__
        set_field(self, "max_attempts", policy.max_attempts)
        set_field(self, "classify", self.error_rules.classify)
        set_field(self, "known_faults", self.error_rules.known_faults)
        set_field(self, "jitter", policy.jitter)
        set_field(self, "precomputed", precomputed)
        set_field(self, "waits", tuple(min(MAX_WAIT_SECONDS, wait) for wait in waits))

    @property
    def needs_full_loop(self) -> bool:
        """Whether the first attempt needs the loop: for a key, a breaker, a hedge, or `reject=`."""
        special = (self.key, self.reject, self.breaker, self.hedge)
        return any(option is not None for option in special)

    @property
    def publishes_scope(self) -> bool:
        """Whether code inside can see the first attempt. Without a limit or a key it cannot."""
        has_limit = self.attempt_timeout is not None or self.policy.timeout is not None
        return has_limit or self.needs_full_loop

    @property
    def job_id(self) -> None:
        """None: a call is not a job."""
        return

    def named(self, operation: str | None, origin: object) -> RetrySettings:
        """Return a copy with another name. Faster than `replace`, because each `call` makes one."""
        copy: RetrySettings = object.__new__(RetrySettings)
        changes = {"operation": operation, "origins": (*self.origins, origin)}
        object.__setattr__(copy, "__dict__", self.__dict__ | changes)
        return copy

    def using(self, policy: RetryPolicy | None, options: Mapping[str, Any]) -> Self:
        """Return a copy with other options. Each of them is checked."""
        policy_option = () if policy is None else ("policy",)
        changes: dict[str, Any] = {"given": self.given.union(options, policy_option)}
        policy_fields = {name: options[name] for name in POLICY_NAMES if name in options}
        if policy is not None or policy_fields:
            changes["policy"] = _policy(self.policy, policy, policy_fields)
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
                changes["idempotent_explicit"] = True
        copy = replace(self, **changes)
        if copy.hedge is not None and not (copy.idempotent_explicit and copy.idempotent):
            raise TypeError(
                "hedge= runs a call twice at once; "
                "set idempotent=True if the call is safe to repeat"
            )
        return copy


def _policy(current: RetryPolicy, policy: object, fields: Mapping[str, Any]) -> RetryPolicy:
    if policy is None:
        return replace(current, **fields)
    if not isinstance(policy, RetryPolicy):
        kind = type(policy).__name__
        raise TypeError(f"retry takes a RetryPolicy or a function, not {kind}: {policy!r}")
    if fields:
        raise TypeError(f"pass a policy, or its fields by name, not both: {', '.join(fields)}")
    return policy


def _reject(value: object) -> object:
    if value is not None and not callable(value):
        raise TypeError(
            "reject= must be a function of the result that returns True to reject it, not "
            f"{value!r}"
        )
    if iscoroutinefunction(value):
        raise TypeError(f"reject= must be a sync function of the result, not the async {value!r}")
    return value


def _backoff(value: object) -> object:
    if value is not None and not callable(value):
        raise TypeError(
            "backoff= must be one of redrive.backoff, or a function of (attempt, draw), not "
            f"{value!r}"
        )
    if value is not None:
        _check_backoff_signature(value)
    return value


def _check_backoff_signature(backoff: Any) -> None:
    """Check the parameters of a backoff now. Otherwise the first failure would."""
    try:
        signature(backoff).bind(1, 0.5)
    except TypeError as error:
        raise TypeError(
            "backoff= must be one of redrive.backoff with its numbers, "
            f"or a function of (attempt, draw), not {backoff!r}: {error}"
        ) from None
    except ValueError:
        pass  # a built-in function without a signature


def _budget(value: object) -> Budget:
    if value is None:
        return UNLIMITED
    if isinstance(value, str):
        return Budget.named(value)
    if isinstance(value, Budget):
        return value
    kind = type(value).__name__
    raise TypeError(f"budget= must be a Budget or the name of one, not {kind}: {value!r}")


def _breaker(value: object) -> Breaker | None:
    if isinstance(value, str):
        return Breaker.named(value)
    if value is None or isinstance(value, Breaker):
        return value
    kind = type(value).__name__
    raise TypeError(f"breaker= must be a Breaker or the name of one, not {kind}: {value!r}")


def _attempt_timeout(value: object) -> float | None:
    return None if value is None else positive("attempt_timeout", value)


def _hedge(value: object) -> float | None:
    return None if value is None else seconds("hedge", value)


def _idempotent(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"idempotent= must be True or False, not {value!r}")
    return value


def _is_nested_final(value: object) -> bool:
    if value not in ("final", "allow"):
        raise ValueError(f"nested= must be 'final' or 'allow', not {value!r}")
    return value == "final"


def _key(value: object) -> object:
    if value is None or isinstance(value, str) or callable(value):
        return value
    from ..core.key import Key  # noqa: PLC0415  # 1 ms that calls without a key do not pay

    if isinstance(value, Key):
        return value
    raise TypeError(
        f"key= must be a Key, a template such as 'shop:{{user}}:{{order_id}}:receipt:v1', or a "
        f"function, not {value!r}"
    )


def _fields(value: object) -> Mapping[str, Any]:
    if value is None:
        return NO_FIELDS
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(
            f"fields= must be a mapping of names to values for every record, not {value!r}"
        )
    return MappingProxyType(dict(value))


def _spill(value: object) -> object:
    if value is not None and (not callable(value) or iscoroutinefunction(value)):
        raise TypeError(
            "spill= must be a sync function that enqueues the failed call (async code calls it in "
            f"a thread), not {value!r}"
        )
    return value


def _operation(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise TypeError(f"operation= must be the name of the call, not {value!r}")
    return value


# The option, the field that it sets, and the function that checks and converts its value.
_CHECKS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "on": ("error_rules", error_rules),
    "reject": ("reject", _reject),
    "backoff": ("backoff", _backoff),
    "budget": ("budget", _budget),
    "breaker": ("breaker", _breaker),
    "attempt_timeout": ("attempt_timeout", _attempt_timeout),
    "idempotent": ("idempotent", _idempotent),
    "nested": ("nested_is_final", _is_nested_final),
    "key": ("key", _key),
    "fields": ("fields", _fields),
    "spill": ("spill", _spill),
    "hedge": ("hedge", _hedge),
    "operation": ("operation", _operation),
}
