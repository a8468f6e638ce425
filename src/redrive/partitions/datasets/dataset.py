"""Datasets: the definition that `@app.dataset(...)` makes, and the datasets of an app by name."""

from __future__ import annotations

import inspect
import sys
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from ...commands.cron import Cron
from ...core.callables import qualified_name, signature_text
from ...core.policy import RetryPolicy
from ...core.seconds import positive
from ...engine.settings import RetrySettings
from ...ledger.ledger import Ledger
from ...storage.registry import Registry as Stores
from ...storage.store import Store
from ...worker.job_type import NO_TIMEOUT, durable_settings, execution_of
from ..key import Day, Partition, check_name
from ..model import Check
from ..queries import PartitionQueries
from ..raw.writer import Sink
from ..reader import Reader, Reading
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
            f"{name}: {place} is called with the partition and the sink, but takes "
            f"{signature_text(fn)}"
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


class Datasets:
    """The datasets of an app. Threads and forked children may share it."""

    def __init__(self, ledger: Callable[[], Ledger], stores: Callable[[], Stores], /) -> None:
        self._ledger, self._stores = ledger, stores
        self._extractions: dict[tuple[str, str], Extraction] = {}

    def decorator(
        self, source: str, query: str, /, *, raw: str | Store, **options: Any
    ) -> Callable[[Callable[..., Any]], Dataset]:
        """Return a decorator that registers an extraction."""
        name = dataset_name(check_name("source", source), check_name("query", query))

        def decorate(fn: Callable[..., Any]) -> Dataset:
            store = self._store(name, raw)
            extraction = define_extraction(fn, source, query, store=store, **options)
            self._add(extraction)
            reader = Reader(
                source, query, lambda: PartitionQueries(self._ledger()), extraction.store
            )
            return Dataset(extraction, reader)

        return decorate

    def _add(self, new: Extraction) -> None:
        known = self._extractions.get(new.limits.dataset)
        if known is not None and not hasattr(sys, "ps1"):  # a user at a prompt redefines functions
            raise ValueError(
                f"there is a dataset {new.name} already, {known.place}; "
                f"{new.place} needs another query or source"
            )
        self._extractions[new.limits.dataset] = new

    def _store(self, name: str, raw: object) -> Callable[[], Store]:
        if isinstance(raw, Store):
            return lambda: raw
        if not isinstance(raw, str):
            raise TypeError(
                f"{name}: raw= is a store, or the name of one of App(stores=...), "
                f"not {type(raw).__name__}: {raw!r}"
            )
        known = self._stores().config.stores
        if raw not in known:
            raise ValueError(
                f"{name}: raw={raw!r} is not a store of this app; "
                f"App(stores=...) has {', '.join(known) or 'none'}"
            )
        return lambda: self._stores().get_store(raw)

    def find(self, source: str, query: str, /) -> Extraction:
        """Return a dataset.

        Raises:
            ValueError: It is unknown. The message names the known ones.
        """
        extraction = self._extractions.get((source, query))
        if extraction is None:
            known = ", ".join(each.name for each in self) or "none at all"
            raise ValueError(f"unknown dataset {dataset_name(source, query)}; known: {known}")
        return extraction

    def select(self, only: Collection[str] | None, /) -> list[Extraction]:
        """Return the datasets of a worker: all, or those that are named."""
        return [each for each in self if only is None or each.name in only]

    def __iter__(self) -> Iterator[Extraction]:
        return iter(self._extractions.values())

    def __len__(self) -> int:
        return len(self._extractions)


class Dataset:
    """A registered dataset, for consumers to read. Made by `@app.dataset(...)`.

    Operators retry, reprocess and backfill it. Threads and event loops may share it.

    Attributes:
        source: Name of the source.
        query: Name of the query.
        function: The extraction function.
    """

    def __init__(self, extraction: Extraction, reader: Reader) -> None:
        self.source = extraction.limits.source
        self.query = extraction.limits.query_name
        self.function: Extract = extraction.fn
        self._extraction = extraction
        self._reader = reader
        self.__doc__ = extraction.fn.__doc__

    def read(self, customer_id: str, since: Day, until: Day | None = None, /) -> Reading:
        """Return the accepted data of a customer, and the days that are missing.

        Args:
            customer_id: Id of the customer.
            since: First day.
            until: Last day, inclusive. Default: one day.

        Returns:
            Files and gaps.
        """
        return self._reader.read(customer_id, since, until)

    async def aread(self, customer_id: str, since: Day, until: Day | None = None, /) -> Reading:
        """Return the accepted data of a customer, from async code.

        The files are read by sync calls.

        Args:
            customer_id: Id of the customer.
            since: First day.
            until: Last day, inclusive. Default: one day.

        Returns:
            Files and gaps.
        """
        return await to_thread(self._reader.read, customer_id, since, until)

    def __repr__(self) -> str:
        return f"<Dataset {self.source}/{self.query}>"


def extraction_of(dataset: Dataset, /) -> Extraction:
    """Return the extraction of a dataset, for workers. Consumers only read."""
    return dataset._extraction
