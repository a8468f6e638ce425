"""OutageScenario: a service, its outages, the clients that call it, and the policies to compare."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from math import ceil
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from ..core.seconds import number, positive, whole_number
from .policies import SimulatedPolicy, policy_from_table

OutageKind: TypeAlias = Literal["down", "hang", "slow"]
"""`down`: requests fail. `hang`: requests get no response. `slow`: capacity is reduced."""
Start: TypeAlias = Literal["spread", "together"]

MAX_CLIENTS = 1_000_000
MAX_PROCESSES = 100_000
MAX_MINUTES = 24 * 60
MAX_POLICIES = 12
MAX_OUTAGES = 100
MIN_LATENCY_SECONDS = 0.005
"""The shortest response. It is also the shortest time step of the simulation."""
MIN_STEPS_PER_SECOND = 10
MIN_PERIOD_SECONDS = 0.1
DEFAULT_SEED = 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SimulatedService:
    """A service that handles a number of requests per second, and queues the others. Immutable.

    A request whose client has given up stays in the queue and uses capacity, as in most servers.

    Args:
        capacity: Requests per second.
        latency: Seconds for a response without queueing.
        spread: Part of the latency by which it varies.
        queue: Seconds that a request may wait in the queue. Longer waits are rejected at once.
        error_latency: Seconds for an error response, or for a refused connection.
        retry_after: Seconds in the Retry-After header of rejections. None: no header.
    """

    capacity: float
    latency: float = 0.05
    spread: float = 0.2
    queue: float = 2.0
    error_latency: float = 0.05
    retry_after: float | None = None

    def __post_init__(self) -> None:
        if number("capacity", self.capacity) == 0:
            raise ValueError(f"capacity must be above 0: {self.capacity!r}")
        _at_least("latency", self.latency, MIN_LATENCY_SECONDS)
        _at_least("error_latency", self.error_latency, MIN_LATENCY_SECONDS)
        number("queue", self.queue)
        if not 0 <= number("spread", self.spread) < 1:
            raise ValueError(f"spread must be a part of the latency, from 0 to 1: {self.spread!r}")
        if self.retry_after is not None:
            number("retry_after", self.retry_after)

    @property
    def shortest(self) -> float:
        """Seconds of the fastest response."""
        return min(self.latency * (1 - self.spread), self.error_latency)


@dataclass(frozen=True, slots=True)
class ServiceOutage:
    """A time in which the service does not respond as it should. Immutable.

    Args:
        at: Seconds from the start of the simulation.
        lasts: Seconds.
        kind: `down`, `hang` or `slow`.
        share: Part of the requests that fail or hang.
        capacity: Part of the capacity that a slow service has.
    """

    at: float
    lasts: float
    kind: OutageKind = "down"
    share: float = 1.0
    capacity: float | None = None

    def __post_init__(self) -> None:
        number("at", self.at)
        positive("lasts", self.lasts)
        if self.kind not in get_args(OutageKind):
            raise ValueError(f"kind must be down, hang or slow: {self.kind!r}")
        if not 0 < number("share", self.share) <= 1:
            raise ValueError(f"share must be above 0 and at most 1: {self.share!r}")
        if (self.capacity is None) == (self.kind == "slow"):
            raise ValueError(
                'capacity is the part of the capacity that is left with kind = "slow"; '
                f"kind is {self.kind!r} and capacity {self.capacity!r}"
            )
        if self.capacity is not None and not 0 < number("capacity", self.capacity) <= 1:
            raise ValueError(f"capacity must be above 0 and at most 1: {self.capacity!r}")

    @property
    def end(self) -> float:
        """Seconds from the start of the simulation to the end of the outage."""
        return self.at + self.lasts


@dataclass(frozen=True, slots=True)
class ClientFleet:
    """Clients that call the service, one call at a time. Immutable.

    Args:
        count: Number of clients.
        every: Average seconds between the starts of two calls of one client. A call that takes
            longer delays the next one.
        processes: Number of processes that the clients share. Each has its own budget and breaker.
            Default: one process for each client.
        attempt_timeout: Seconds until a client gives up on one attempt.
        start: `spread`: clients call at random times. `together`: all call at the same time.
    """

    count: int
    every: float
    processes: int = 0
    attempt_timeout: float = 10.0
    start: Start = "spread"

    def __post_init__(self) -> None:
        if whole_number("count", self.count) > MAX_CLIENTS:
            raise ValueError(f"count must be at most {MAX_CLIENTS:,}: {self.count!r}")
        _at_least("every", self.every, MIN_PERIOD_SECONDS)
        positive("attempt_timeout", self.attempt_timeout)
        if self.start not in get_args(Start):
            raise ValueError(f"start must be spread or together: {self.start!r}")
        if not self.processes:
            object.__setattr__(self, "processes", self.count)
        if whole_number("processes", self.processes) > self.count:
            raise ValueError(f"processes must be at most count: {self.processes!r}")

    @property
    def rate(self) -> float:
        """Calls per second of the whole fleet."""
        return self.count / self.every


@dataclass(frozen=True, slots=True)
class OutageScenario:
    """What is simulated, once for each policy. Immutable."""

    service: SimulatedService
    clients: ClientFleet
    policies: tuple[SimulatedPolicy, ...]
    outages: tuple[ServiceOutage, ...] = ()
    title: str = "Retries in an outage"
    minutes: float = 5.0
    seed: int = DEFAULT_SEED

    @property
    def seconds(self) -> float:
        """Simulated time."""
        return self.minutes * 60

    @property
    def steps_per_second(self) -> int:
        """Time steps in a second. No response arrives within the step of its request."""
        return max(MIN_STEPS_PER_SECOND, ceil(1 / self.service.shortest))


def scenario_from_mapping(content: Mapping[str, Any], /) -> OutageScenario:
    """Return the scenario of a parsed TOML file.

    Raises:
        ValueError: A key is unknown or missing, or a value is out of range. The message names the
            table and the key.
        TypeError: A value has the wrong type.
    """
    known = ("title", "minutes", "seed", "service", "outage", "clients", "policy")
    _check_keys("the scenario", content, known)
    for key in ("service", "clients", "policy"):
        if key not in content:
            form = "[[policy]] tables" if key == "policy" else f"a [{key}] table"
            raise ValueError(f"{key} is missing; add {form}")
    title = content.get("title", "Retries in an outage")
    if not isinstance(title, str) or not title.strip():
        raise TypeError(f"title must be text: {title!r}")
    minutes = positive("minutes", content.get("minutes", 5.0))
    if minutes > MAX_MINUTES:
        raise ValueError(f"minutes must be at most {MAX_MINUTES:,}: {minutes:g}")
    scenario = OutageScenario(
        service=_record(SimulatedService, "[service]", content["service"]),
        clients=_record(ClientFleet, "[clients]", content["clients"]),
        policies=_records("policy", content["policy"], MAX_POLICIES, policy_from_table),
        outages=_records(
            "outage",
            content.get("outage", []),
            MAX_OUTAGES,
            lambda where, table: _record(ServiceOutage, where, table),
        ),
        title=title,
        minutes=minutes,
        seed=whole_number("seed", content.get("seed", DEFAULT_SEED), least=0),
    )
    check_scenario(scenario)
    return scenario


def check_scenario(scenario: OutageScenario, /) -> None:
    """Check what concerns several tables.

    Raises:
        ValueError: Two policies have one name, an outage begins after the end, or processes with
            state of their own are too many.
    """
    names = [policy.name for policy in scenario.policies]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two policies have the name {name!r}; give each another name")
    for place, outage in enumerate(scenario.outages, 1):
        if outage.at >= scenario.seconds:
            raise ValueError(
                f"[[outage]] {place} begins at {outage.at:g} s, after the end of the simulation at "
                f"{scenario.seconds:g} s; set at, or minutes"
            )
    has_state = any(
        policy.budget is not None or policy.breaker is not None for policy in scenario.policies
    )
    if has_state and scenario.clients.processes > MAX_PROCESSES:
        raise ValueError(
            f"[clients]: {scenario.clients.processes:,} processes with a budget or a breaker; "
            f"set processes to at most {MAX_PROCESSES:,}"
        )


def _records(
    name: str, tables: object, most: int, read: Callable[[str, Mapping[str, Any]], T]
) -> tuple[T, ...]:
    if not isinstance(tables, Sequence) or not all(isinstance(each, Mapping) for each in tables):
        raise TypeError(f"{name} must be tables, each under [[{name}]]")
    if name == "policy" and not tables:
        raise ValueError("policy is empty; add [[policy]] tables")
    if len(tables) > most:
        raise ValueError(f"{len(tables)} [[{name}]] tables; the maximum is {most}")
    return tuple(read(f"[[{name}]] {place}", table) for place, table in enumerate(tables, 1))


def _record(kind: type[T], where: str, table: object) -> T:
    """Return a record of a table whose keys are the fields of the record."""
    if not isinstance(table, Mapping):
        raise TypeError(f"{where}: must be a table, not {type(table).__name__}: {table!r}")
    all_fields = fields(kind)  # type: ignore[arg-type]  # a dataclass
    _check_keys(where, table, [each.name for each in all_fields])
    for each in all_fields:
        if each.default is MISSING and each.name not in table:
            raise ValueError(f"{where}: {each.name} is missing")
    try:
        return kind(**table)
    except (TypeError, ValueError) as problem:
        raise type(problem)(f"{where}: {problem}") from None


def _check_keys(where: str, table: Mapping[str, Any], known: Collection[str]) -> None:
    for key in table:
        if key not in known:
            similar = get_close_matches(key, known, 1)
            hint = f" (did you mean {similar[0]!r}?)" if similar else ""
            raise ValueError(f"{where}: unknown key {key!r}{hint}; known: {', '.join(known)}")


def _at_least(name: str, value: object, least: float) -> None:
    if positive(name, value) < least:
        raise ValueError(f"{name} must be at least {least:g} s: {value!r}")
