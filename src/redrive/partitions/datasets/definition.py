"""Extraction: what `@app.dataset(...)` was told of one function, checked."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from ...commands.cron import Cron
from ...core.policy import RetryPolicy
from ...core.seconds import Seconds, positive, whole_number
from ...engine.settings import RetrySettings
from ...storage.store import Store
from ...worker.job_type import NO_TIMEOUT, durable_settings, execution_of, qualified_name
from ..key import Partition, named
from ..model import Check
from ..raw.writer import Sink
from ..retry_schedule import STEPS, Policy, Terms
from .validator import Validator

Extract: TypeAlias = Callable[[Partition, Sink], None] | Callable[[Partition, Sink], Awaitable[None]]
"""An extraction: writes all data of a partition into a sink. Plain or async."""
Customers: TypeAlias = Callable[[], Iterable[str]] | Sequence[str]
ATTEMPTS = 6
CONCURRENCY = 10
DURABLE = NO_TIMEOUT.using(RetryPolicy(ATTEMPTS, 300, 7200, 30), {"backoff": STEPS})
"""Defaults of datasets: six attempts, 5 min, 30 min and then 2 h apart (± 10 %), no time limit for an attempt."""


class CustomersFailed(ValueError):
    """The function of `customers=` raised. The message names the dataset and the error."""


@dataclass(frozen=True, slots=True, eq=False)
class Extraction:
    """What a dataset was told. Immutable: anything may share it."""

    terms: Terms
    fn: Callable[..., Any]
    execution: Literal["thread", "async"]
    settings: RetrySettings
    validator: Validator
    store: Callable[[], Store]
    """Where raw data lies; asked at first use."""
    customers: Callable[[], Iterable[str]] | tuple[str, ...]
    cron: Cron | None
    place: str
    """Where the function stands, for messages."""

    @property
    def name(self) -> str:
        """What it is called in records and by `only=`: `crm/orders`."""
        return dataset_name(self.terms.source, self.terms.query_name)

    def everyone(self) -> list[str]:
        """Return the current customers, each once.

        Raises:
            CustomersFailed: The function of `customers=` raised.
            TypeError, ValueError: A customer is not a valid name.
        """
        if not callable(self.customers):
            return _customers(self.name, self.customers)
        try:
            given = self.customers()
            if isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
                given = list(given)  # A generator runs here, and may raise too.
        except Exception as error:  # Code of the user, which may do anything.
            problem = f"{type(error).__name__}: {error}"
            raise CustomersFailed(f"{self.name}: customers() failed: {problem}") from error
        return _customers(self.name, given)


def dataset_name(source: str, query_name: str, /) -> str:
    """`crm/orders`."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (source, query_name))


def extraction(
    fn: Callable[..., Any], source: str, query: str, /, *, store: Callable[[], Store], checks: Sequence[Check],
    customers: Customers, cron: str | None, timezone: str, retry: object, max_age: Seconds | None, concurrency: int | None,
    source_concurrency: int | None, rate: float | None, source_rate: float | None, version: str,
) -> Extraction:  # fmt: skip
    """Everything that was told, checked; TypeError or ValueError says what is wrong with it."""
    name = dataset_name(named("source", source), named("query", query))
    place = qualified_name(fn)
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{name}: {place} is a generator: hand its rows to the sink, out.rows(...), in place of yielding them")
    execution = execution_of(name, fn, in_transaction=False)
    _takes(name, fn, place)
    settings = durable_settings(name, retry, DURABLE)
    age = None if max_age is None else timedelta(seconds=positive("max_age", max_age))
    limits = {} if source_concurrency is None else {"source_concurrency": whole_number("source_concurrency", source_concurrency)}
    terms = Terms(
        source, query, Policy(max_attempts=settings.max_attempts, backoff=settings.backoff, max_age=age),
        concurrency=CONCURRENCY if concurrency is None else whole_number("concurrency", concurrency), rate=rate,
        source_rate=source_rate, **limits,
    )  # fmt: skip
    if cron is None and timezone != "UTC":
        raise TypeError(f"{name}: timezone= needs cron=; pass both, or remove timezone=")
    return Extraction(
        terms=terms,
        fn=fn,
        execution="async" if execution == "async" else "thread",
        settings=settings,
        validator=Validator(name, _version(name, version), _checks(name, checks)),
        store=store,
        customers=customers if callable(customers) else tuple(_customers(name, customers)),
        cron=None if cron is None else Cron(cron, timezone),
        place=place,
    )


def _takes(name: str, fn: Callable[..., Any], place: str) -> None:
    signature = inspect.signature(fn)
    try:
        signature.bind(None, None)
    except TypeError:
        raise TypeError(f"{name}: {place} is called with the partition and the sink, but takes {signature}") from None


def _checks(name: str, checks: object) -> Sequence[Check]:
    if callable(checks) or isinstance(checks, (str, bytes)) or not isinstance(checks, Iterable):
        raise TypeError(f"{name}: checks= is a list of checks, such as [row_count(min=1)], not {checks!r}")
    return list(checks)


def _customers(name: str, given: object) -> list[str]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"{name}: customers are a list of ids, or a function that gives one, not {given!r}")
    return list(dict.fromkeys(named(f"{name}: a customer", one) for one in given))


def _version(name: str, version: object) -> str:
    if not isinstance(version, str) or not version.isprintable() or not 0 < len(version) <= 100:
        raise TypeError(f'{name}: version= says which version of the checks this is, in a word such as "2", not {version!r}')
    return version
