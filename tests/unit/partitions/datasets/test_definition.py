"""`@app.dataset(...)`: every option is checked at once, with a clear message."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, RetryPolicy, backoff, retry
from redrive.partitions import Dataset, Partition, Sink, row_count
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.verdicts import VerdictWriter
from redrive.partitions.datasets.validator import Validator
from redrive.partitions.reader import Reader
from redrive.storage import Store
from redrive.storage.memory import Memory


@pytest.fixture
def app() -> App:
    return App("sqlite:///never-opened.db", stores={"raw": {"type": "memory"}})


def extract(partition: Partition, out: Sink) -> None:
    """All orders."""


def define_dataset(app: App, fn: Any = extract, source: Any = "crm", query: Any = "orders", **more: Any) -> Dataset:
    given: dict[str, Any] = {"raw": "raw", "checks": [row_count(min=1)], "customers": ["acme"]}
    return app.dataset(source, query, **{**given, **more})(fn)


def test_a_dataset_reads_and_does_nothing_else(app: App) -> None:
    orders = define_dataset(app)
    assert (orders.source, orders.query, orders.function) == ("crm", "orders", extract)
    assert repr(orders) == "<Dataset crm/orders>"
    assert orders.__doc__ == "All orders."
    assert {name for name in dir(orders) if not name.startswith("_")} == {"source", "query", "function", "read", "aread"}
    assert not app.opener.is_open, "nothing was opened"


@pytest.mark.req("P-3")
def test_roles_have_no_methods_beyond_their_rights() -> None:
    def public(role: type) -> set[str]:
        return {name for name in dir(role) if not name.startswith("_")}

    assert public(Sink) == {"rows", "arows", "open"}, "an extraction writes"
    assert public(Validator) == {"validate"}, "its verdict alone has no effect"
    assert public(Reader) == {"read"}, "a consumer reads"
    assert public(VerdictWriter) == {"apply", "rollback"}, "it queues nothing"
    assert not public(ControlPlane) & {"apply", "rollback"}, "it applies no verdict"


def test_defaults(app: App) -> None:
    define_dataset(app)
    (one,) = app.datasets
    policy = one.limits.policy
    assert (policy.max_attempts, policy.max_age, one.limits.concurrency) == (6, timedelta(days=7), 10)
    assert [policy.backoff(n, 0.5) for n in range(1, 5)] == [300, 1800, 7200, 7200]
    assert one.settings.attempt_timeout is None
    assert one.validator.version == "1"


def test_options_are_stored(app: App) -> None:
    define_dataset(
        app,
        retry=retry(max_attempts=3, backoff=backoff.steps(1, 2)),
        max_age=3600,
        concurrency=2,
        source_concurrency=4,
        rate=50 / 60,
        source_rate=2,
        cron="15 2 * * *",
        timezone="Europe/Prague",
        version="7",
    )
    (one,) = app.datasets
    assert (one.limits.policy.max_attempts, one.limits.policy.max_age) == (3, timedelta(hours=1))
    assert one.settings.attempt_timeout is None, "the 10 s of calls are not meant for extractions"
    assert (one.limits.concurrency, one.limits.source_concurrency, str(one.cron)) == (2, 4, "15 2 * * * Europe/Prague")
    assert (one.limits.rate, one.limits.source_rate) == (50 / 60, 2.0)


def test_an_explicit_timeout_is_kept(app: App) -> None:
    define_dataset(app, retry=retry(attempt_timeout=10))
    (one,) = app.datasets
    assert one.settings.attempt_timeout == 10


def test_other_forms_of_options(app: App) -> None:
    define_dataset(
        app, raw=Store(Memory("m")), customers=lambda: iter(["a", "b", "a"]), retry=RetryPolicy(max_attempts=2), max_age=None
    )
    (one,) = app.datasets
    assert one.current_customers() == ["a", "b"]
    assert (one.limits.policy.max_attempts, one.limits.policy.max_age) == (2, None)
    assert one.store().name == "m"


def generator(partition: Partition, out: Sink) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"raw": "rwa"}, r"crm/orders: raw='rwa' is not a store of this app; App\(stores=...\) has raw"),
        ({"raw": 3}, "raw= is a store, or the name of one"),
        ({"checks": row_count(min=1)}, r"checks= is a list of checks, such as \[row_count\(min=1\)\]"),
        ({"checks": [row_count]}, "row_count makes a check, and is none itself"),
        ({"checks": ["row_count"]}, "a check is a function"),
        ({"customers": "acme"}, "customers are a list of ids, or a function"),
        ({"customers": ["acme", 3]}, "a customer must be text, not int"),
        ({"customers": ["acme", " "]}, "a customer must be printable and not empty"),
        ({"cron": "15 2 * *"}, "needs five fields"),
        ({"timezone": "Europe/Prague"}, "timezone= needs cron=; pass both, or remove timezone="),
        ({"cron": "15 2 * * *", "timezone": "Prague"}, "is not a time zone that this machine knows"),
        ({"retry": 5}, "retry= must be a RetryPolicy, a Retry"),
        ({"retry": retry(key="a:b:c:d:e")}, "retry= has key="),
        ({"max_age": 0}, "max_age must be above 0"),
        ({"max_age": "week"}, "max_age must be seconds or a timedelta"),
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"source_concurrency": 1.5}, "source_concurrency must be a whole number"),
        ({"rate": 0}, "rate is extractions that start in a second, above 0"),
        ({"source_rate": "2/s"}, "source_rate must be a number"),
        ({"version": 2}, "version= says which version of the checks this is"),
        ({"fn": generator}, "is a generator: hand its rows to the sink"),
        ({"fn": lambda partition: None}, "is called with the partition and the sink, but takes"),
        ({"fn": 3}, "must decorate a function"),
        ({"source": 3}, "source must be text"),
        ({"source": ""}, "source must be printable and not empty"),
        ({"query": "a\n"}, "query must be printable"),
    ],
)
def test_invalid_options_are_rejected(app: App, changed: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        define_dataset(app, **changed)
    assert not len(app.datasets)


def test_a_second_dataset_of_one_name_is_rejected(app: App) -> None:
    define_dataset(app)
    with pytest.raises(ValueError, match="there is a dataset crm/orders already, .*extract; .* needs another query or source"):
        define_dataset(app)
    define_dataset(app, query="orders/v2")
    assert [one.name for one in app.datasets] == ["crm/orders", "crm/orders%2Fv2"]
    with pytest.raises(ValueError, match="unknown dataset crm/oders; known: crm/orders, crm/orders%2Fv2"):
        app.datasets.find("crm", "oders")


def test_the_customers_function_is_called_each_time(app: App) -> None:
    define_dataset(app, customers=lambda: ["acme", None])
    (one,) = app.datasets
    with pytest.raises(TypeError, match="crm/orders: a customer must be text, not NoneType"):
        one.current_customers()


def test_a_failing_customers_function_is_named_with_its_dataset(app: App) -> None:
    def customers() -> Iterator[str]:
        yield "acme"
        raise FileNotFoundError("customers.txt")

    define_dataset(app, customers=customers)
    (extraction,) = app.datasets
    with pytest.raises(ValueError, match=r"^crm/orders: customers\(\) failed: FileNotFoundError: customers.txt$"):
        extraction.current_customers()


def test_a_worker_may_have_datasets_only(app: App) -> None:
    with pytest.raises(ValueError, match="no commands and no handlers are registered"):
        app.kinds()
    define_dataset(app)
    assert app.kinds() == []
    assert app.kinds(["crm/orders"]) == []
    with pytest.raises(ValueError, match="'crm/oders' is not registered; registered: crm/orders"):
        app.kinds(["crm/oders"])
