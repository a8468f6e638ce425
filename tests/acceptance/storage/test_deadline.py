"""Calls to a server that never responds end near the deadline, on every backend."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redrive import RetryPolicy, deadline
from redrive.errors import Unavailable
from redrive.storage import Store
from redrive.storage.azure import Azure
from redrive.storage.graph import Graph
from redrive.storage.obstore import AzureObstore, Gcs, S3Obstore
from redrive.storage.s3 import S3, S3Arrow
from redrive.storage.sftp import Sftp

SECONDS = 1.0
KEY = "Zm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYg=="


@pytest.fixture
def silent() -> Iterator[int]:
    """Yield the port of a server that accepts connections and requests, and never responds."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)
    for connection in held:
        connection.close()


def _backend(kind: str, port: int) -> Any:
    url = f"http://127.0.0.1:{port}"
    policy = RetryPolicy(max_attempts=3, backoff_base=0.1)
    access: dict[str, Any] = {"bucket": "b", "endpoint_url": url, "region": "us-east-1", "key": "k", "secret": "s"}
    if kind == "s3":
        return S3("x", **access, retry=policy)
    if kind == "s3-pyarrow":
        return S3Arrow("x", **access, retry=policy, arrow_kwargs={"request_timeout": 3, "connect_timeout": 3})
    if kind == "s3-obstore":
        return S3Obstore("x", **access, retry=policy)
    if kind == "gcs":
        return Gcs("x", bucket="b", token="t", endpoint_url=url, retry=policy)
    if kind == "azure-obstore":
        return AzureObstore("x", container="c", account_url=f"{url}/a", credential=KEY, retry=policy)
    if kind == "azure":
        connection = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey={KEY};BlobEndpoint={url}/a;"
        return Azure("x", container="c", connection_string=connection, retry=policy, client_kwargs={"read_timeout": 5})
    if kind == "graph":
        return Graph("x", drive="me/drive", token="t", base_url=url, retry=policy)
    return Sftp("x", host="127.0.0.1", port=port, username="u", password="p", any_host_key=True, retry=policy)


ACTS: dict[str, Callable[[Store], object]] = {
    "read": lambda store: store.read("file"),
    "read_bytes": lambda store: store.read_bytes("file"),
    "write": lambda store: store.write("file", b"x"),
    "create": lambda store: store.create("file", iter([b"x"])),
    "info": lambda store: store.info("file"),
    "exists": lambda store: store.exists("file"),
    "delete": lambda store: store.delete("file"),
    "copy": lambda store: store.copy("file", "other"),
    "move": lambda store: store.move("file", "other"),
    "files": lambda store: list(store.files()),
    "list": lambda store: list(store.list(recursive=False)),
    "folders": lambda store: list(store.folders()),
    "check": lambda store: store.check(),
}


@pytest.mark.req("S-12")
@pytest.mark.parametrize("kind", ["s3", "s3-pyarrow", "azure", "graph", "sftp", "s3-obstore", "azure-obstore", "gcs"])
def test_every_call_ends_near_the_deadline(kind: str, silent: int) -> None:
    """Without deadlines these calls take 9 s and more: the client's timeouts, and its retries."""
    backend = _backend(kind, silent)
    store = Store(backend)
    with pytest.raises(Unavailable), deadline(0.2):
        store.info("file")  # loads the client, which no deadline interrupts
    with ThreadPoolExecutor(len(ACTS)) as threads:
        ends = list(threads.map(lambda act: _error_and_seconds(store, act), ACTS.values()))
    backend.close()
    assert {name: error for name, (error, _) in zip(ACTS, ends, strict=True) if error is not Unavailable} == {}
    assert max(took for _, took in ends) < 8 * SECONDS


def _error_and_seconds(store: Store, act: Callable[[Store], object]) -> tuple[type[Exception] | None, float]:
    """Return the outcome and the duration in seconds."""
    began = time.monotonic()
    try:
        with deadline(SECONDS):
            act(store)
    except Exception as error:
        return type(error), time.monotonic() - began
    return None, time.monotonic() - began
