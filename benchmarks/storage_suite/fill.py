"""Create small objects to list."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.storage_suite.subjects import HOME
from tests.servers.buckets import client

THREADS = 8


def fill(backend: str, address: str, count: int) -> None:
    """Create objects in 100 folders under `list`."""
    names = [f"list/{number % 100:02d}/{number:06d}" for number in range(count)]
    match backend:
        case "local" | "sftp":
            _create_files(Path(address if backend == "local" else json.loads(address)["root"]), names)
        case "azure" | "azure-obstore":
            _create_blobs(address, names)
        case _:
            _create_objects(address, names)


def _create_files(root: Path, names: list[str]) -> None:
    for folder in {Path(name).parent for name in names}:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in names:
        (root / name).write_bytes(b"x")


def _create_objects(address: str, names: list[str]) -> None:
    s3 = client(address)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda name: s3.put_object(Bucket=HOME, Key=name, Body=b"x"), names))


def _create_blobs(address: str, names: list[str]) -> None:
    """Create blobs with bare requests, which are faster than the Azure client."""
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
            response = pool.request("PUT", f"{container.url}/{name}?{key}", body=b"x", headers=headers)
            if response.status != 201:
                raise RuntimeError(f"{name}: {response.status} {response.data[:300]!r}")

        list(threads.map(put, names))
