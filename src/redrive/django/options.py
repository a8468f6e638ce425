"""The settings of a backend in `TASKS`, read and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.tasks import DEFAULT_TASK_QUEUE_NAME
from django.utils.connection import ConnectionDoesNotExist

from ..core.outage import Parking
from ..core.policy import RetryPolicy
from ..core.seconds import dated_duration, real, whole_number
from ..engine.retry import Retry
from ..errors import LedgerError
from ..ledger.db.address import parse

if TYPE_CHECKING:
    from ..engine.retry import RetryLike

PARAMETERS = ("BACKEND", "QUEUES", "OPTIONS")
APP_OPTIONS = (
    *("destinations", "include", "journal", "keep", "parking", "secrets", "sources", "stores"),
)
"""Options that `redrive.App` takes under the same name."""
OPTIONS = ("database", "ledger", "retry", "tasks", *APP_OPTIONS)
TASK_OPTIONS = ("concurrency", "rate", "retry")
VENDORS = ("postgresql", "sqlite")


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The checked settings of a backend. Immutable.

    Attributes:
        queues: Names of its queues. Empty: any name.
        database: Alias of the Django database with the ledger. None: `ledger` has the address.
        ledger: Address of a ledger outside of Django's databases.
        retry: Policy of all tasks. None: the default of jobs.
        tasks: Own options of tasks, by the path of their functions.
        app: Options of the App.
        problems: What is wrong. The other fields have defaults then.
    """

    queues: frozenset[str] = frozenset((DEFAULT_TASK_QUEUE_NAME,))
    database: str | None = "default"
    ledger: str | None = None
    retry: RetryLike | None = None
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    app: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @classmethod
    def read(cls, alias: str, params: Mapping[str, Any], /) -> BackendOptions:
        """Read an entry of `TASKS`. Opens nothing, and raises nothing."""
        place = f"TASKS[{alias!r}]"
        options = params.get("OPTIONS", {})
        queues = params.get("QUEUES", [DEFAULT_TASK_QUEUE_NAME])
        problems = [*_unknown(place, params, PARAMETERS), *_queue_problems(place, queues)]
        if not isinstance(options, Mapping):
            problems.append(f"{place}['OPTIONS'] must be a dict, not {type(options).__name__}")
        else:
            problems += _option_problems(f"{place}['OPTIONS']", options)
        if problems:
            return cls(problems=tuple(problems))
        database = None if "ledger" in options else options.get("database", "default")
        return cls(
            queues=frozenset(queues),
            database=database,
            ledger=options.get("ledger"),
            retry=options.get("retry"),
            tasks=options.get("tasks", {}),
            app={name: options[name] for name in APP_OPTIONS if name in options},
        )

    def retry_of(self, path: str, /) -> RetryLike | None:
        """Return the policy of a task."""
        policy: RetryLike | None = self.tasks.get(path, {}).get("retry", self.retry)
        return policy


def _unknown(place: str, names: Iterable[object], known: Collection[str]) -> Iterator[str]:
    for name in names:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(known)}"
            yield f"{place}: unknown name {name!r}; {hint}"


def _queue_problems(place: str, queues: object) -> Iterator[str]:
    is_collection = isinstance(queues, Collection) and not isinstance(queues, (str, bytes, Mapping))
    if not is_collection or not all(isinstance(name, str) and name for name in queues):  # type: ignore[attr-defined]  # it is iterable
        yield f"{place}['QUEUES'] must be a list of names such as ['default'], not {queues!r:.80}"


def _option_problems(place: str, options: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(place, options, OPTIONS)
    if "ledger" in options:
        if "database" in options:
            yield f"{place}: 'database' and 'ledger' exclude each other; remove one of them"
        try:
            parse(options["ledger"])
        except (LedgerError, TypeError) as error:
            yield f"{place}['ledger']: {error}"
    else:
        yield from _database_problems(f"{place}['database']", options.get("database", "default"))
    yield from _retry_problems(f"{place}['retry']", options.get("retry"))
    yield from _value_problems(place, options)
    tasks = options.get("tasks", {})
    if not isinstance(tasks, Mapping) or not all(
        isinstance(each, Mapping) for each in tasks.values()
    ):
        yield (
            f"{place}['tasks'] must be a dict of dicts, such as "
            "{'shop.tasks.send_receipt': {'concurrency': 4}}, "
            f"not {tasks!r:.80}"
        )
        return
    for path, own in tasks.items():
        yield from _unknown(f"{place}['tasks'][{path!r}]", own, TASK_OPTIONS)
        yield from _retry_problems(f"{place}['tasks'][{path!r}]['retry']", own.get("retry"))
        yield from _value_problems(f"{place}['tasks'][{path!r}]", own)


def _database_problems(place: str, alias: object) -> Iterator[str]:
    try:
        vendor = connections[alias].vendor
    except (ConnectionDoesNotExist, TypeError):
        known = ", ".join(map(repr, connections.settings))
        yield f"{place}: DATABASES has no {alias!r}; use {known}"
        return
    if vendor not in VENDORS:
        yield (
            f"{place}: DATABASES[{alias!r}] is on {vendor}, and a ledger needs PostgreSQL or "
            "SQLite; pass its address as 'ledger' in OPTIONS, such as 'postgresql://user@host/jobs'"
        )


def _retry_problems(place: str, retry: object) -> Iterator[str]:
    if retry is not None and not isinstance(retry, (Retry, RetryPolicy)):
        kind = type(retry).__name__
        yield f"{place} must be retry(...) or a RetryPolicy, not {kind}: {retry!r:.80}"


def _value_problems(place: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of values that are used only by workers."""
    for name, check in VALUE_CHECKS.items():
        if options.get(name) is not None:
            try:
                check(name, options[name])
            except (TypeError, ValueError) as error:
                yield f"{place}: {error}"


def _check_rate(name: str, value: object) -> None:
    if real(name, value) <= 0:
        raise ValueError(f"{name} must be a number of starts per second, above 0: {value!r}")


def _check_keep(name: str, value: object) -> None:
    if value != math.inf:  # for ever
        dated_duration(name, value)


def _check_parking(name: str, value: object) -> None:
    if not isinstance(value, Parking):
        raise TypeError(f"{name} must be a redrive.Parking, not {type(value).__name__}: {value!r}")


VALUE_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "concurrency": whole_number,
    "keep": _check_keep,
    "parking": _check_parking,
    "rate": _check_rate,
}
