"""Errors of libraries that are known by name and shape: MySQL's and MongoDB's codes, twilio, kubernetes, opensearch."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import classify, retry
from redrive.core.fault import Fault, Kind

pytestmark = pytest.mark.req("C-3")


def kind(module: str, name: str, base: type[Exception] = Exception) -> Any:
    """A class that imitates one of a library."""
    return type(name, (base,), {"__module__": module})


def with_attributes(error: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


MYSQL = kind("pymysql.err", "OperationalError", kind("pymysql.err", "Error"))
CONNECTOR = kind("mysql.connector.errors", "OperationalError", kind("mysql.connector.errors", "Error"))
MONGO = kind("pymongo.errors", "OperationFailure", kind("pymongo.errors", "PyMongoError"))


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (2003, Fault("transient", sent=False)),
        (1040, Fault("throttled", sent=False)),
        (2006, Fault("transient")),
        (2013, Fault("transient")),
        (1205, Fault("transient")),
        (1213, Fault("transient")),
        (3024, Fault("timeout")),
        (1045, Fault("permanent")),
        (1049, Fault("permanent")),
        (1153, Fault("permanent")),
        (9999, Fault("unknown")),
    ],
)
def test_mysql_codes(code: int, fault: Fault) -> None:
    assert classify(MYSQL(code, "said")) == fault
    assert classify(with_attributes(CONNECTOR("said"), errno=code)) == fault


@pytest.mark.parametrize("name", ["IntegrityError", "ProgrammingError", "DataError", "NotSupportedError"])
def test_mysql_statements_that_are_wrong(name: str) -> None:
    assert classify(kind("pymysql.err", name, kind("pymysql.err", "Error"))(1062, "duplicate")).kind == "permanent"


@pytest.mark.parametrize(
    ("code", "label", "expected"),
    [
        (112, None, "transient"),
        (10107, None, "transient"),
        (50, None, "timeout"),
        (16500, None, "throttled"),
        (13, None, "permanent"),
        (8000, "TransientTransactionError", "transient"),
        (8000, "RetryableWriteError", "transient"),
        (8000, "SystemOverloadedError", "throttled"),
        (None, None, "unknown"),
    ],
)
def test_mongo_codes_and_labels(code: int | None, label: str | None, expected: Kind) -> None:
    error = with_attributes(MONGO("said"), code=code, has_error_label=lambda word: word == label)
    assert classify(error).kind == expected


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("AutoReconnect", Fault("transient")),
        ("NetworkTimeout", Fault("timeout")),
        ("ServerSelectionTimeoutError", Fault("timeout", sent=False)),
        ("WaitQueueTimeoutError", Fault("timeout", sent=False)),
        ("DuplicateKeyError", Fault("permanent")),
        ("ConfigurationError", Fault("permanent")),
    ],
)
def test_mongo_errors(name: str, fault: Fault) -> None:
    assert classify(kind("pymongo.errors", name)("said")) == fault


@pytest.mark.parametrize(
    "made",
    [
        kind("twilio.base.exceptions", "TwilioRestException"),
        kind("kubernetes.client.exceptions", "ApiException"),
        kind("kubernetes.client.exceptions", "ServiceException", kind("kubernetes.client.exceptions", "ApiException")),
        kind("kubernetes_asyncio.client.exceptions", "ApiException"),
    ],
)
def test_errors_with_a_status(made: Any) -> None:
    expected: dict[int, Kind] = {503: "transient", 429: "throttled", 404: "permanent", 409: "permanent"}
    for status, meant in expected.items():
        assert classify(with_attributes(made("said"), status=status)) == Fault(meant, status=status)
    assert classify(with_attributes(made("said"), status=429, headers={"Retry-After": "7"})).after == 7
    assert classify(made("said")).kind == "unknown"


def test_opensearch() -> None:
    transport = kind("opensearchpy.exceptions", "TransportError")
    assert classify(with_attributes(transport("x"), status_code=503)).kind == "transient"
    assert classify(with_attributes(transport("x"), status_code="N/A")).kind == "unknown"
    assert classify(kind("opensearchpy.exceptions", "ConnectionTimeout", transport)("x")).kind == "timeout"


@pytest.mark.req("C-1")
@pytest.mark.parametrize(
    ("group", "attempts"),
    [
        (lambda: ExceptionGroup("g", [OSError("a"), OSError("b")]), 3),
        (lambda: ExceptionGroup("g", [ExceptionGroup("h", [OSError("a")]), OSError("b")]), 3),
        (lambda: ExceptionGroup("g", [OSError("a"), ValueError("b")]), 1),
        (lambda: ExceptionGroup("g", [ExceptionGroup("h", [ValueError("a")]), OSError("b")]), 1),
    ],
)
@pytest.mark.parametrize("on", [OSError, (OSError, LookupError), lambda error: True if isinstance(error, OSError) else None])
def test_a_group_is_retried_only_if_each_member_is(group: Any, attempts: int, on: Any) -> None:
    """Retried only if each member would be, with and without on=."""
    count = 0

    def fail() -> None:
        nonlocal count
        count += 1
        raise group()

    with pytest.raises(ExceptionGroup):
        retry(max_attempts=3, backoff_base=0, jitter=0, on=on).call(fail)
    assert count == attempts
