"""Extraction: the definition of a dataset, as `@app.dataset(...)` was called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from ...commands.cron import Cron
from ...core.policy import RetryPolicy
from ...core.seconds import positive
from ...engine.settings import RetrySettings
from ...storage.store import Store
from ...worker.job_type import NO_TIMEOUT, durable_settings, execution_of, qualified_name
from ..key import Partition, check_name
from ..model import Check
from ..raw.writer import Sink
from ..retry_schedule import DEFAULT_BACKOFF, DatasetLimits, Policy
from .validator import Validator

Extract: TypeAlias = (
    Callable[[Partition, Sink], None] | Callable[[Partition, Sink], Awaitable[None]]
)
"""An extraction: writes all data of a partition into a sink. Sync or async."""
Customers: TypeAlias = Callable[[], Iterable[str]] | Sequence[str]
DEFAULT_ATTEMPTS = 6
DEFAULT_CONCURRENCY = 10
DEFAULTS = NO_TIMEOUT.using(
    RetryPolicy(DEFAULT_ATTEMPTS, 300, 7200, 30), {"backoff": DEFAULT_BACKOFF}
)
"""Retry defaults of datasets: six attempts, after 5 min, 30 min and then every 2 h (± 10 %), and no
timeout of an attempt.
"""


class CustomersFailed(ValueError):
    """The function of `customers=` raised. The message names the dataset and the error."""


@dataclass(frozen=True, slots=True, eq=False)
class Extraction:
    """The definition of a dataset. Immutable: threads may share it."""

    limits: DatasetLimits
    fn: Callable[..., Any]
    execution: Literal["thread", "async"]
    settings: RetrySettings
    validator: Validator
    store: Callable[[], Store]
    """Returns the store of raw data. Called at first use."""
    customers: Callable[[], Iterable[str]] | tuple[str, ...]
    cron: Cron | None
    place: str
    """Where the function is defined, for messages."""

    @property
    def name(self) -> str:
        """Its name in log records and for `only=`: `crm/orders`."""
        return dataset_name(self.limits.source, self.limits.query_name)

    def current_customers(self) -> list[str]:
        """Return the current customers, each once.

        Raises:
            CustomersFailed: The function of `customers=` raised.
            TypeError: A customer is not text.
            ValueError: A customer is not a valid name.
        """
        if not callable(self.customers):
            return _check_customers(self.name, self.customers)
        try:
            customers = self.customers()
            if isinstance(customers, Iterable) and not isinstance(customers, (str, bytes)):
                customers = list(customers)  # A generator runs here, and may raise too.
        except Exception as error:  # Code of the user, which may do anything.
            problem = f"{type(error).__name__}: {error}"
            raise CustomersFailed(f"{self.name}: customers() failed: {problem}") from error
        return _check_customers(self.name, customers)


def dataset_name(source: str, query_name: str, /) -> str:
    """Return the name of a dataset: `crm/orders`."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (source, query_name))


def define_extraction(
    fn: Callable[..., Any],
    source: str,
    query: str,
    /,
    *,
    store: Callable[[], Store],
    **options: Any,
) -> Extraction:
    """Check the options of a dataset.

    Args:
        fn: The extraction function.
        store: Returns the store of raw data.
        options: All other options of `@app.dataset(...)`.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option has an invalid value.
    """
    name = dataset_name(check_name("source", source), check_name("query", query))
    place = qualified_name(fn)
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"{name}: {place} is a generator: hand its rows to the sink, out.rows(...), "
            "in place of yielding them"
        )
    execution = execution_of(name, fn, in_transaction=False)
    _check_signature(name, fn, place)
    settings = durable_settings(name, options["retry"], DEFAULTS)
    max_age = options["max_age"]
    age = None if max_age is None else timedelta(seconds=positive("max_age", max_age))
    concurrency = options["concurrency"]
    source_concurrency = options["source_concurrency"]
    limits = DatasetLimits(
        source,
        query,
        Policy(max_attempts=settings.max_attempts, backoff=settings.backoff, max_age=age),
        concurrency=DEFAULT_CONCURRENCY if concurrency is None else concurrency,
        source_concurrency=source_concurrency,
        rate=options["rate"],
        source_rate=options["source_rate"],
    )
    cron, timezone = options["cron"], options["timezone"]
    if cron is None and timezone != "UTC":
        raise TypeError(f"{name}: timezone= needs cron=; pass both, or remove timezone=")
    customers = options["customers"]
    version = _check_version(name, options["version"])
    checks = _check_list(name, options["checks"])
    return Extraction(
        limits=limits,
        fn=fn,
        execution="async" if execution == "async" else "thread",
        settings=settings,
        validator=Validator(name, version, checks),
        store=store,
        customers=customers if callable(customers) else tuple(_check_customers(name, customers)),
        cron=None if cron is None else Cron(cron, timezone),
        place=place,
    )


def _check_signature(name: str, fn: Callable[..., Any], place: str) -> None:
    signature = inspect.signature(fn)
    try:
        signature.bind(None, None)
    except TypeError:
        raise TypeError(
            f"{name}: {place} is called with the partition and the sink, but takes {signature}"
        ) from None


def _check_list(name: str, checks: object) -> Sequence[Check]:
    is_text = isinstance(checks, (str, bytes))
    if callable(checks) or is_text or not isinstance(checks, Iterable):
        raise TypeError(
            f"{name}: checks= is a list of checks, such as [row_count(min=1)], not {checks!r}"
        )
    return list(checks)


def _check_customers(name: str, customers: object) -> list[str]:
    if isinstance(customers, (str, bytes)) or not isinstance(customers, Iterable):
        raise TypeError(
            f"{name}: customers are a list of ids, or a function that gives one, not {customers!r}"
        )
    return list(dict.fromkeys(check_name(f"{name}: a customer", each) for each in customers))


def _check_version(name: str, version: object) -> str:
    if isinstance(version, str) and version.isprintable() and 0 < len(version) <= 100:
        return version
    raise TypeError(
        f"{name}: version= says which version of the checks this is, "
        f'in a word such as "2", not {version!r}'
    )
