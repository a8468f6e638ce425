"""Filled: so many small objects, to be listed."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.storage_suite.subjects import HOME
from tests.servers.buckets import client

THREADS = 8


def filled(backend: str, address: str, count: int) -> None:
    """Put them into a hundred folders under `list`."""
    names = [f"list/{number % 100:02d}/{number:06d}" for number in range(count)]
    match backend:
        case "local" | "sftp":
            _folders(Path(address if backend == "local" else json.loads(address)["root"]), names)
        case "azure":
            _blobs(address, names)
        case _:
            _objects(address, names)


def _folders(root: Path, names: list[str]) -> None:
    for folder in {Path(name).parent for name in names}:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in names:
        (root / name).write_bytes(b"x")


def _objects(address: str, names: list[str]) -> None:
    s3 = client(address)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda name: s3.put_object(Bucket=HOME, Key=name, Body=b"x"), names))


def _blobs(address: str, names: list[str]) -> None:
    """By bare requests: azure's client takes three times as long for a byte as Azurite does."""
    import urllib3
    from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

    container = ContainerClient.from_connection_string(address, HOME)
    key = generate_container_sas(
        str(container.account_name),
        HOME,
        account_key=container.credential.account_key,
        permission=ContainerSasPermissions(write=True, create=True),
        expiry=datetime.now(timezone.utc) + timedelta(hours=1),
    )
    headers = {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2024-11-04"}
    with urllib3.PoolManager(maxsize=THREADS, retries=False) as pool, ThreadPoolExecutor(THREADS) as threads:

        def put(name: str) -> None:
            answer = pool.request("PUT", f"{container.url}/{name}?{key}", body=b"x", headers=headers)
            if answer.status != 201:
                raise RuntimeError(f"{name}: {answer.status} {answer.data[:300]!r}")

        list(threads.map(put, names))
