"""Subject: one backend with our policy, and its client with its defaults."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from redrive import RetryPolicy
from redrive.storage import Store
from redrive.storage.azure import Azure
from redrive.storage.graph import Graph
from redrive.storage.obstore import AzureObstore, Gcs, S3Obstore
from redrive.storage.s3 import S3, S3Arrow
from tests.servers.azurite import ACCOUNT, KEY, connection_string
from tests.servers.buckets import options
from tests.servers.gcs import TOKEN

POLICY = RetryPolicy(max_attempts=3, backoff_base=0.1, backoff_max=0.15, jitter=0.05)
HOME = f"wire-tests{os.environ.get('PYTEST_XDIST_WORKER', '')}"  # Parallel tests share the servers.
"""The bucket, and the container."""


class Client(NamedTuple):
    """Reads and writes one file."""

    read: Callable[[str], bytes]
    write: Callable[[str, bytes], object]


class Subject(NamedTuple):
    """A backend, and its client alone. Both take the address, the port and the timeout."""

    name: str
    server: str
    """Server of `tests.servers.fixtures`. Graph and GCS are our own servers."""
    client: str
    """Name of the client library."""
    ours: Callable[[str, int, float], Any]
    alone: Callable[[str, int, float], Any]
    asks_first: tuple[int, int] = (0, 0)
    """Requests without a body before the read, of the backend and of the client alone."""
    hidden: frozenset[str] = frozenset()
    """Faults for which a hidden layer sends one more request."""


@contextmanager
def _store(backend: Any) -> Iterator[Client]:
    store = Store(backend)
    try:
        yield Client(store.read_bytes, store.write)
    finally:
        backend.close()


def _s3(url: str, port: int, patience: float) -> Any:
    return _store(S3("s3", bucket=HOME, **options(url, port), config_kwargs={"read_timeout": patience}, retry=POLICY))


@contextmanager
def _s3fs(url: str, port: int, patience: float) -> Iterator[Client]:
    import s3fs

    arguments = options(url, port)
    region = {"region_name": arguments.pop("region")}
    files = s3fs.S3FileSystem(
        **arguments, client_kwargs=region, config_kwargs={"read_timeout": patience}, skip_instance_cache=True
    )
    yield Client(lambda path: files.cat_file(f"{HOME}/{path}"), lambda path, data: files.pipe_file(f"{HOME}/{path}", data))


def _arrow(url: str, port: int, patience: float) -> Any:
    arguments = {"request_timeout": patience}
    return _store(
        S3Arrow(
            "s3-pyarrow",
            bucket=HOME,
            **options(url, port),
            config_kwargs={"read_timeout": patience},
            arrow_kwargs=arguments,
            retry=POLICY,
        )
    )


@contextmanager
def _pyarrow(url: str, port: int, patience: float) -> Iterator[Client]:
    from pyarrow.fs import S3FileSystem

    parts = urlsplit(url)
    files = S3FileSystem(
        access_key=parts.username,
        secret_key=parts.password,
        region="us-east-1",
        scheme="http",
        endpoint_override=f"127.0.0.1:{port}",
        request_timeout=patience,
    )

    def read(path: str) -> bytes:
        with files.open_input_file(f"{HOME}/{path}") as stream:
            return bytes(stream.readall())

    def write(path: str, data: bytes) -> None:
        with files.open_output_stream(f"{HOME}/{path}") as stream:
            stream.write(data)

    yield Client(read, write)


def _azure(_address: str, port: int, patience: float) -> Any:
    arguments = {"read_timeout": patience}
    return _store(
        Azure("azure", container=HOME, connection_string=connection_string(port), client_kwargs=arguments, retry=POLICY)
    )


@contextmanager
def _azure_blob(_address: str, port: int, patience: float) -> Iterator[Client]:
    from azure.storage.blob import ContainerClient

    url = f"http://127.0.0.1:{port}/{ACCOUNT}"
    with ContainerClient(url, HOME, {"account_name": ACCOUNT, "account_key": KEY}, read_timeout=patience) as container:
        yield Client(
            lambda path: bytes(container.download_blob(path).readall()),
            lambda path, data: container.upload_blob(path, data, overwrite=True),
        )


def _graph(_address: str, port: int, patience: float) -> Any:
    base = f"http://127.0.0.1:{port}/v1.0"
    return _store(Graph("graph", drive="drives/d1", token="good", base_url=base, timeout=patience, retry=POLICY))


@contextmanager
def _httpx2(_address: str, port: int, patience: float) -> Iterator[Client]:
    import httpx2

    drive, token = f"http://127.0.0.1:{port}/v1.0/drives/d1/root:", {"authorization": "Bearer good"}
    with httpx2.Client(timeout=patience) as client:

        def read(path: str) -> bytes:
            item = client.get(f"{drive}/{path}", headers=token).raise_for_status().json()
            return client.get(item["@microsoft.graph.downloadUrl"]).raise_for_status().content

        def write(path: str, data: bytes) -> object:
            return client.put(f"{drive}/{path}:/content", headers=token, content=data).raise_for_status()

        yield Client(read, write)


def _s3_obstore(url: str, port: int, patience: float) -> Any:
    return _store(S3Obstore("s3-obstore", bucket=HOME, **options(url, port), timeout=patience, retry=POLICY))


def _azure_obstore(_address: str, port: int, patience: float) -> Any:
    return _store(
        AzureObstore("azure-obstore", container=HOME, connection_string=connection_string(port), timeout=patience, retry=POLICY)
    )


def _gcs(_address: str, port: int, patience: float) -> Any:
    address = f"http://127.0.0.1:{port}"
    return _store(Gcs("gcs", bucket=HOME, token=TOKEN, endpoint_url=address, timeout=patience, retry=POLICY))


@contextmanager
def _obstore(store: Any) -> Iterator[Client]:
    import obstore

    yield Client(lambda path: bytes(obstore.get(store, path).bytes()), lambda path, data: obstore.put(store, path, data))


def _limits(patience: float) -> dict[str, Any]:
    return {"allow_http": True, "read_timeout": timedelta(seconds=patience)}


def _obstore_s3(url: str, port: int, patience: float) -> Any:
    from obstore.store import S3Store

    arguments = options(url, port)
    return _obstore(
        S3Store(
            HOME,
            endpoint=arguments["endpoint_url"],
            region=arguments["region"],
            access_key_id=arguments["key"],
            secret_access_key=arguments["secret"],
            client_options=_limits(patience),  # type: ignore[arg-type]
        )
    )


def _obstore_azure(_address: str, port: int, patience: float) -> Any:
    from obstore.store import AzureStore

    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    limits: Any = _limits(patience)
    return _obstore(AzureStore(HOME, account_name=ACCOUNT, account_key=KEY, endpoint=endpoint, client_options=limits))


def _obstore_gcs(_address: str, port: int, patience: float) -> Any:
    from obstore.store import GCSStore

    limits: Any = _limits(patience)
    return _obstore(GCSStore(HOME, bearer_token=TOKEN, base_url=f"http://127.0.0.1:{port}", client_options=limits))


SUBJECTS = (
    Subject("s3", "S3", "s3fs", _s3, _s3fs, asks_first=(0, 1)),
    Subject("s3-pyarrow", "S3", "pyarrow", _arrow, _pyarrow, asks_first=(1, 1), hidden=frozenset(("connection reset",))),
    Subject("azure", "Azure", "azure-storage-blob", _azure, _azure_blob),
    Subject("s3-obstore", "S3", "obstore", _s3_obstore, _obstore_s3),
    Subject("azure-obstore", "Azure", "obstore", _azure_obstore, _obstore_azure),
    Subject("gcs", "GCS", "obstore", _gcs, _obstore_gcs),
    Subject("graph", "Graph", "httpx2", _graph, _httpx2),
)
