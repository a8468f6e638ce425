"""Measured: the requests of one client for one fault, counted at the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from redrive.testing import FaultServer
from redrive.testing.http_server import Step
from tests.acceptance.wire.fault import Fault
from tests.acceptance.wire.subject import HOME, Client
from tests.servers.azurite import ACCOUNT
from tests.servers.gcs import gcs_server
from tests.servers.graph import graph_server

DATA = bytes(range(256)) * 1000
PATH = "folder/file.bin"


@dataclass(frozen=True, slots=True)
class Measured:
    """The requests of one client for one fault."""

    requests: int
    """How often the faulty request was sent."""
    waits: tuple[float, ...]
    """Seconds between these requests."""
    error: BaseException | None
    right: bool
    """Whether the data is right afterwards."""

    @property
    def seconds(self) -> float:
        """Return the sum of the waits."""
        return sum(self.waits)


def measure(client_context: AbstractContextManager[Client], proxy: FaultServer, fault: Fault, asks_first: int = 0) -> Measured:
    """Read or write once with the fault.

    asks_first: Number of requests without a body that could be cut.
    """
    with client_context as client:
        client.write(PATH, DATA)
        client.read(PATH)  # Connect, and find credentials and regions.
        count_before = proxy.count
        new = DATA[::-1]
        before: list[Step] = ["pass"] * asks_first if fault.name.startswith("cut") else []
        proxy.script(*before, *fault.script)
        error, right = _attempt(client, fault, new)
        requests = proxy.requests[count_before:]
        proxy.script()
        if fault.act == "write" and fault.passes:
            right = client.read(PATH) == new
    # The most frequent request: some clients send another one first.
    sends = Counter((request.method, request.path) for request in requests)
    most, count = sends.most_common(1)[0]
    times = [request.at for request in requests if (request.method, request.path) == most]
    return Measured(count, tuple(later - earlier for earlier, later in pairwise(times)), error, right)


def _attempt(client: Client, fault: Fault, new: bytes) -> tuple[BaseException | None, bool]:
    try:
        if fault.act == "read":
            return None, client.read(PATH) == DATA
        client.write(PATH, new)
    except Exception as error:
        return error, False
    return None, True


@contextmanager
def open_proxy(server: str, address: str = "") -> Iterator[FaultServer]:
    """Start a FaultServer in front of the real server. For Graph and GCS it is our own server."""
    if server == "GCS":
        with gcs_server(HOME) as gcs, FaultServer(upstream=gcs.url) as proxy:
            yield proxy
        return
    if server == "Graph":
        with graph_server() as graph, FaultServer(upstream=graph.service) as proxy:
            graph.other = proxy.url
            yield proxy
        return
    with FaultServer(upstream=_prepare(server, address)) as proxy:
        yield proxy


def _prepare(server: str, address: str) -> str:
    if server == "S3":
        from tests.servers.buckets import client

        s3: Any = client(address)
        if HOME not in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]:
            s3.create_bucket(Bucket=HOME)
        s3.close()
        return f"http://127.0.0.1:{urlsplit(address).port}"
    from azure.storage.blob import ContainerClient

    with ContainerClient.from_connection_string(address, HOME) as container:
        if not container.exists():
            container.create_container()
    endpoint = dict(part.split("=", 1) for part in address.strip(";").split(";"))["BlobEndpoint"]
    return endpoint.removesuffix(f"/{ACCOUNT}")
