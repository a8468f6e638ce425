"""A backend whose client is not installed names the extra at its first use."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from redrive import RetryPolicy
from redrive.storage import Registry, RegistryConfig
from redrive.storage.backend import backend_class

S3 = {"bucket": "b", "key": "k", "secret": "s"}


@pytest.mark.parametrize(
    ("kind", "options", "missing", "extra"),
    [
        ("s3", S3, ("botocore", "botocore.exceptions"), "s3"),
        ("s3", S3, ("s3fs",), "s3"),
        ("s3-pyarrow", S3, ("pyarrow", "pyarrow.fs"), "s3-pyarrow"),
        ("azure", {"container": "c", "account_url": "http://127.0.0.1:1"}, ("azure", "azure.storage.blob"), "azure"),
        ("s3-obstore", S3, ("obstore",), "obstore"),
        ("azure-obstore", {"container": "c", "account_url": "http://127.0.0.1:1"}, ("obstore",), "obstore"),
        ("gcs", {"bucket": "b", "token": "t"}, ("obstore",), "obstore"),
        ("sftp", {"host": "127.0.0.1", "port": 1}, ("asyncssh",), "sftp"),
        ("graph", {"drive": "me/drive", "token": "t", "base_url": "http://127.0.0.1:1"}, ("httpx2",), "graph"),
    ],
)
def test_the_error_names_the_extra_to_install(
    kind: str, options: dict[str, Any], missing: tuple[str, ...], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend_class(kind)  # The module of a type that is in use.
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    config = {"stores": {"raw": {"type": kind, "options": options, "retry": {"max_attempts": 1}}}}
    with Registry(RegistryConfig.from_dict(config)) as registry:
        store = registry.get_store("raw")
        for act in (lambda: store.read("a"), lambda: list(store.files())):
            with pytest.raises(ImportError) as caught:
                act()
            assert str(caught.value) == f'this backend needs its client: pip install "redrive[{extra}]"'
    assert registry.config.backends["raw"].retry == RetryPolicy(max_attempts=1)


@pytest.mark.req("X-6")
@pytest.mark.parametrize("kind", ["s3", "s3-pyarrow"])
def test_a_configuration_without_the_client_names_the_extra(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of these types is a subclass of their client's session, so that it is imported first."""
    for name in [name for name in sys.modules if name.startswith(("aiobotocore", "redrive.storage.s3"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiobotocore", None)
    config = RegistryConfig.from_dict({"stores": {"raw": {"type": kind, "options": S3}}})
    with pytest.raises(ValueError, match=rf'type {kind} needs aiobotocore: pip install "redrive\[s3\]"'):
        Registry(config)
