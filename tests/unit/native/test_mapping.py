"""Mappings: dropped fields, descriptions and waits, without the clients."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable

import pytest

from redrive import RetryPolicy, native
from redrive.core.lazy import Deferred
from redrive.native import CLIENTS, google_api, temporal_retry
from redrive.native.mapping import POLICY_FIELDS, Mapped


@pytest.mark.req("R-10")
def test_dropped_fields_are_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redrive.native")
    assert native.httpx(RetryPolicy(4, timeout=9)) == Mapped({"retries": 3}, ("backoff_base", "backoff_max", "jitter", "timeout"))
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    assert record.getMessage().startswith("httpx has no place for backoff_base, backoff_max, jitter, timeout of RetryPolicy(")


def test_a_single_attempt_drops_no_field(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redrive.native")
    for client in CLIENTS.values():
        assert client.dropped_fields(RetryPolicy.disabled()) == ()
    assert native.httpx(RetryPolicy.disabled()).dropped == ()
    assert not caplog.records


def test_an_unset_limit_is_not_dropped() -> None:
    assert "timeout" not in native.httpx(RetryPolicy()).dropped


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_describes_fields_and_waits(name: str) -> None:
    client = CLIENTS[name]
    for policy in (RetryPolicy(), RetryPolicy(2, 0, 0, 0, 5), RetryPolicy.disabled()):
        for field in POLICY_FIELDS:
            form = client.describe_field(field, policy)
            assert (form is None) == (field not in client.templates)
            assert form is None or "{backoff" not in form
        for attempt in (1, 2, 30, 100_000):
            least, most = client.wait_range(policy, attempt)
            assert 0 <= least <= most


def test_a_value_that_is_not_a_policy_is_rejected() -> None:
    with pytest.raises(TypeError, match="a mapping takes a RetryPolicy, not int: 3"):
        native.httpx(3)  # type: ignore[arg-type]


def test_importing_the_package_imports_no_client() -> None:
    clients = ("azure", "botocore", "grpc", "pyarrow", "temporalio", "tenacity", "urllib3")
    program = f"import sys, redrive.native; print([name for name in {clients} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.req("X-10")
@pytest.mark.parametrize(
    ("function", "module", "message"),
    [
        (native.temporal, "temporalio.common", "redrive.native needs temporalio for temporal: pip install temporalio"),
        (native.google, "google.api_core", "redrive.native needs google-api-core for google: pip install google-api-core"),
        (native.tenacity, "tenacity", "redrive.native needs tenacity for tenacity: pip install tenacity"),
        (native.botocore, "botocore.config", "redrive.native needs botocore for botocore: pip install botocore"),
        (native.azure, "azure.storage.blob", "redrive.native needs azure-storage-blob for azure: pip install azure-storage-blob"),
        (native.pyarrow_s3, "pyarrow.fs", "redrive.native needs pyarrow for pyarrow: pip install pyarrow"),
        (native.urllib3, "urllib3", "redrive.native needs urllib3 for urllib3: pip install urllib3"),
    ],
)
def test_a_missing_client_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[RetryPolicy], object], module: str, message: str
) -> None:
    google_api._counting_retry_class.cache_clear()
    monkeypatch.setattr(temporal_retry, "common", Deferred("temporalio.common"))  # remembers a module of an earlier test
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError) as raised:
        function(RetryPolicy())
    assert str(raised.value) == message


@pytest.mark.req("X-10")
def test_temporal_rejects_a_policy_of_its_own() -> None:
    with pytest.raises(TypeError, match="a mapping takes a RetryPolicy, not dict"):
        native.temporal({"max_attempts": 3})  # type: ignore[arg-type]
