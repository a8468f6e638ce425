"""SimulatedPolicy: a retry policy as the simulation needs it, of Redrive or of another library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from ..backoff import Backoff
from ..core.backoff_table import backoff_from_table
from ..core.breaker import Breaker
from ..core.budget import Budget
from ..core.policy import ALIASES, SERVICE, RetryPolicy
from ..core.seconds import whole_number

MAX_LAYERS = 5
MAX_DISTINCT_WAITS = 64
"""Attempts after which the backoff must not change."""
POLICY_KEYS = tuple(each.name for each in fields(RetryPolicy))
KEYS = ("name", "library", *POLICY_KEYS, "backoff", "budget", "breaker", "layers", "nested")
PEER_KEYS = ("name", "library", "layers")
STAMINA_MAX = 5.0
SAMPLE_DRAWS = (0.0, 0.25, 0.5, 0.999)


@dataclass(frozen=True, slots=True)
class SimulatedPolicy:
    """One retry policy, used by every client of a fleet. Immutable.

    Args:
        name: Its name in the report.
        max_attempts: Attempts of one call. Infinite: it never gives up.
        backoff: The wait after a failed attempt. It also takes an array of random numbers.
        timeout: Seconds for all attempts and waits of a call. None: no limit.
        fits_waits: Whether a wait that does not fit in the timeout ends the call at once, as in
            Redrive. Otherwise only a failure after the timeout does.
        budget: Options of `Budget`, or None.
        breaker: Options of `Breaker`, or None.
        layers: Number of retry layers with this policy that surround each other.
        nested_is_final: Whether outer layers do not retry an error that an inner layer retried.
    """

    name: str
    max_attempts: float = SERVICE.max_attempts
    backoff: Backoff = SERVICE.wait
    timeout: float | None = SERVICE.timeout
    fits_waits: bool = True
    budget: Mapping[str, float] | None = None
    breaker: Mapping[str, float] | None = None
    layers: int = 1
    nested_is_final: bool = True
    distinct_waits: int = field(init=False, repr=False, compare=False)
    """Attempts that differ in their waits. Later ones wait as long as the last of these."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "distinct_waits", _count_distinct_waits(self.backoff))


def stamina_defaults(name: str = "stamina") -> SimulatedPolicy:
    """Return the defaults of `stamina.retry`: 10 attempts, at most 45 s, backoff up to 5 s."""
    return SimulatedPolicy(
        name,
        max_attempts=10,
        backoff=_stamina_wait,
        timeout=45.0,
        fits_waits=False,
        nested_is_final=False,
    )


def tenacity_defaults(name: str = "tenacity") -> SimulatedPolicy:
    """Return the defaults of `@tenacity.retry`: attempts without an end and without a wait."""
    return SimulatedPolicy(
        name,
        max_attempts=math.inf,
        backoff=_no_wait,
        timeout=None,
        fits_waits=False,
        nested_is_final=False,
    )


def no_retries(name: str = "no retries") -> SimulatedPolicy:
    """Return a policy of one attempt."""
    return SimulatedPolicy(name, max_attempts=1)


PEERS: dict[str, Callable[[str], SimulatedPolicy]] = {
    "stamina": stamina_defaults,
    "tenacity": tenacity_defaults,
    "none": no_retries,
}
LIBRARIES = ("redrive", *PEERS)


def policy_from_table(where: str, table: Mapping[str, Any], /) -> SimulatedPolicy:
    """Return the policy of a `[[policy]]` table.

    Args:
        where: The table, for errors.
        table: Its content.

    Raises:
        ValueError: A key is unknown, or a value is out of range.
        TypeError: A value has the wrong type.
    """
    name = table.get("name", table.get("library", "redrive"))
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"{where}: name must be text: {name!r}")
    where = f"{where} ({name})"
    for key in table:
        if key not in KEYS and key not in ALIASES:
            similar = get_close_matches(key, KEYS, 1)
            hint = f" (did you mean {similar[0]!r}?)" if similar else ""
            raise ValueError(f"{where}: unknown key {key!r}{hint}; known: {', '.join(KEYS)}")
    try:
        return _policy(name, table)
    except (TypeError, ValueError) as problem:
        raise type(problem)(f"{where}: {problem}") from None


def _policy(name: str, table: Mapping[str, Any]) -> SimulatedPolicy:
    library = table.get("library", "redrive")
    if library not in LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(LIBRARIES)}: {library!r}")
    layers = whole_number("layers", table.get("layers", 1))
    if layers > MAX_LAYERS:
        raise ValueError(f"layers must be at most {MAX_LAYERS}: {layers!r}")
    if library in PEERS:
        own = [key for key in table if key not in PEER_KEYS]
        if own:
            raise ValueError(
                f"library = {library!r} stands for its defaults; remove {', '.join(own)}"
            )
        return replace(PEERS[library](name), layers=layers)
    nested = table.get("nested", "final")
    if nested not in ("final", "allow"):
        raise ValueError(f"nested must be 'final' or 'allow', not {nested!r}")
    values = {key: value for key, value in table.items() if key in POLICY_KEYS or key in ALIASES}
    changed = RetryPolicy.from_mapping(values) or SERVICE
    policy = replace(
        SERVICE, **{ALIASES.get(k, k): getattr(changed, ALIASES.get(k, k)) for k in values}
    )
    return SimulatedPolicy(
        name,
        max_attempts=policy.max_attempts,
        backoff=_backoff(table, policy),
        timeout=policy.timeout,
        budget=_options("budget", table, Budget),
        breaker=_options("breaker", table, Breaker),
        layers=layers,
        nested_is_final=nested == "final",
    )


def _backoff(table: Mapping[str, Any], policy: RetryPolicy) -> Backoff:
    if "backoff" not in table:
        return policy.wait
    waits = ("backoff_base", "backoff_max", "jitter")
    doubled = [key for key in table if ALIASES.get(key, key) in waits]
    if doubled:
        raise ValueError(f"backoff sets the waits; remove {', '.join(doubled)}")
    return backoff_from_table(table["backoff"])


def _options(
    key: str, table: Mapping[str, Any], kind: Callable[..., Any]
) -> Mapping[str, float] | None:
    """Return the options of a budget or a breaker. `true` stands for its defaults."""
    value = table.get(key, False)
    if isinstance(value, bool):
        return {} if value else None
    if not isinstance(value, Mapping):
        raise TypeError(f"{key} must be true, false or a table of its options, not {value!r}")
    try:
        kind(**value)
    except TypeError as problem:
        detail = str(problem).partition(".__init__() ")[2] or str(problem)
        raise TypeError(f"{key}: {detail}") from None
    return dict(value)


def _count_distinct_waits(backoff: Backoff) -> int:
    def waits(attempt: int) -> list[float]:
        return [backoff(attempt, draw) for draw in SAMPLE_DRAWS]

    last = waits(MAX_DISTINCT_WAITS)
    if waits(4 * MAX_DISTINCT_WAITS) != last:
        raise ValueError(
            f"the backoff grows for more than {MAX_DISTINCT_WAITS} attempts; set a cap"
        )
    attempt = MAX_DISTINCT_WAITS
    while attempt > 1 and waits(attempt - 1) == last:
        attempt -= 1
    return attempt


def _stamina_wait(attempt: int, draw: Any, /) -> Any:
    # A sum of two cases, because `min` does not take an array of draws.
    wait = 0.1 * 2.0 ** min(attempt - 1, 100) + draw
    return (wait <= STAMINA_MAX) * wait + (wait > STAMINA_MAX) * STAMINA_MAX


def _no_wait(_attempt: int, draw: Any, /) -> Any:
    return draw * 0.0
