"""Redrive, remote-store and the bare clients. Each one reads, writes and lists, in chunks of 1 MiB."""

import json
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from benchmarks.storage_suite.chunks import CHUNK, Source, chunks, read_all
from benchmarks.storage_suite.folders import Folder, Ssh

HOME = "bench-storage"


RIVALS = {"s3-obstore": "s3", "azure-obstore": "azure"}
"""The backend with another client for the same service, as the peer of a backend that remote-store does not have."""


class Ours:
    """redrive.storage with a retry policy, as recommended."""

    def __init__(self, backend: str, address: str) -> None:
        from redrive import RetryPolicy
        from redrive.storage import Store
        from redrive.storage.backend import backend_class

        policy = {} if backend == "local" else {"retry": RetryPolicy()}
        self.store = Store(backend_class(backend)(backend, **_options(backend, address), **policy))

    def write(self, path: str, size: int) -> None:
        self.store.write(path, Source(size))

    def read(self, path: str) -> int:
        with self.store.read(path) as file:
            return read_all(file)

    def list(self, folder: str) -> int:
        return sum(1 for _ in self.store.files(folder))


PEERS = {
    "local": ("_local", "LocalBackend"),
    "sftp": ("_sftp", "SFTPBackend"),
    "s3": ("_s3", "S3Backend"),
    "s3-pyarrow": ("_s3_pyarrow", "S3PyArrowBackend"),
    "azure": ("_azure", "AzureBackend"),
}


class Peer:
    """remote-store from PyPI."""

    def __init__(self, backend: str, address: str) -> None:
        module, name = PEERS[backend]
        backend_class = getattr(import_module(f"remote_store.backends.{module}"), name)
        match backend:
            case "local":
                store_backend = backend_class(address)
            case "sftp":
                store_backend = backend_class(**_paramiko(address))
            case "azure":
                store_backend = backend_class(HOME, connection_string=address, hns=False)
            case _:
                parts = urlsplit(address)
                options = {"endpoint_url": f"http://127.0.0.1:{parts.port}", "key": parts.username, "secret": parts.password}
                store_backend = backend_class(HOME, region_name="us-east-1", **options)
        self.store = import_module("remote_store").Store(store_backend)

    def write(self, path: str, size: int) -> None:
        self.store.write(path, Source(size), overwrite=True)

    def read(self, path: str) -> int:
        with self.store.read(path) as file:
            return read_all(file)

    def list(self, folder: str) -> int:
        return sum(1 for _ in self.store.list_files(folder, recursive=True))


class S3fs:
    """s3fs with typical code."""

    def __init__(self, _backend: str, address: str) -> None:
        import s3fs

        options = _s3(address)
        self.files = s3fs.S3FileSystem(
            key=options["key"],
            secret=options["secret"],
            endpoint_url=options["endpoint_url"],
            client_kwargs={"region_name": options["region"]},
            use_listings_cache=False,
        )

    def write(self, path: str, size: int) -> None:
        with self.files.open(f"{HOME}/{path}", "wb") as file:
            for chunk in chunks(size):
                file.write(chunk)

    def read(self, path: str) -> int:
        with self.files.open(f"{HOME}/{path}", "rb") as file:
            return read_all(file)

    def list(self, folder: str) -> int:
        return len(self.files.find(f"{HOME}/{folder}", detail=True))


class PyArrow(S3fs):
    """PyArrow with typical code."""

    def __init__(self, _backend: str, address: str) -> None:
        from pyarrow import fs

        options = _s3(address)
        self.fs = fs
        self.files = fs.S3FileSystem(
            access_key=options["key"],
            secret_key=options["secret"],
            region=options["region"],
            scheme="http",
            endpoint_override=options["endpoint_url"].removeprefix("http://"),
        )

    def write(self, path: str, size: int) -> None:
        with self.files.open_output_stream(f"{HOME}/{path}") as file:
            for chunk in chunks(size):
                file.write(chunk)

    def read(self, path: str) -> int:
        with self.files.open_input_stream(f"{HOME}/{path}", buffer_size=4 * CHUNK) as file:
            return read_all(file)

    def list(self, folder: str) -> int:
        entries = self.files.get_file_info(self.fs.FileSelector(f"{HOME}/{folder}", recursive=True, allow_not_found=True))
        return sum(1 for each in entries if each.type == self.fs.FileType.File)


class Obstore:
    """obstore with typical code."""

    def __init__(self, backend: str, address: str) -> None:
        import obstore
        from obstore.store import AzureStore, S3Store

        self.obstore = obstore
        local: Any = {"allow_http": True}
        match backend:
            case "azure-obstore":
                parts = dict(part.split("=", 1) for part in address.strip(";").split(";"))
                self.store: Any = AzureStore(
                    HOME,
                    account_name=parts["AccountName"],
                    account_key=parts["AccountKey"],
                    endpoint=parts["BlobEndpoint"],
                    client_options=local,
                )
            case _:
                options = _s3(address)
                self.store = S3Store(
                    HOME,
                    endpoint=options["endpoint_url"],
                    region=options["region"],
                    access_key_id=options["key"],
                    secret_access_key=options["secret"],
                    client_options=local,
                )

    def write(self, path: str, size: int) -> None:
        self.obstore.put(self.store, path, chunks(size))

    def read(self, path: str) -> int:
        return sum(len(chunk) for chunk in self.obstore.get(self.store, path).stream())

    def list(self, folder: str) -> int:
        return sum(len(page) for page in self.obstore.list(self.store, folder, chunk_size=1000))


class AzureBlob:
    """azure-storage-blob with typical code."""

    def __init__(self, _backend: str, address: str) -> None:
        from azure.storage.blob import ContainerClient

        self.container = ContainerClient.from_connection_string(address, HOME)

    def write(self, path: str, size: int) -> None:
        self.container.upload_blob(path, chunks(size), overwrite=True)

    def read(self, path: str) -> int:
        return sum(len(chunk) for chunk in self.container.download_blob(path).chunks())

    def list(self, folder: str) -> int:
        return sum(1 for _ in self.container.list_blobs(f"{folder}/"))


NATIVE = {
    "s3": S3fs,
    "s3-pyarrow": PyArrow,
    "s3-obstore": Obstore,
    "azure": AzureBlob,
    "azure-obstore": Obstore,
    "local": Folder,
    "sftp": Ssh,
}


def create_subject(role: str, backend: str, address: str) -> Ours:
    """Create a client by its role: `ours`, `native` or `peer`."""
    if role == "peer" and backend in RIVALS:
        return Ours(RIVALS[backend], address)
    subject_class = {"ours": Ours, "peer": Peer}.get(role) or NATIVE[backend]
    return subject_class(backend, address)  # type: ignore[return-value]


def _options(backend: str, address: str) -> dict[str, object]:
    match backend:
        case "azure" | "azure-obstore":
            return {"container": HOME, "connection_string": address}
        case "local":
            return {"root": address}
        case "sftp":
            return dict(json.loads(address))
        case _:
            return {"bucket": HOME, **_s3(address)}


def _paramiko(address: str) -> dict[str, object]:
    import paramiko

    options = json.loads(address)
    key = (
        {"pkey": paramiko.Ed25519Key(filename=options["private_key"])}
        if "private_key" in options
        else {"password": options["password"]}
    )
    return {
        "host": options["host"],
        "port": options["port"],
        "username": options["username"],
        "base_path": options["root"],
        "host_key_policy": "auto",
        **key,
    }


def _s3(address: str) -> dict[str, str]:
    parts = urlsplit(address)
    return {
        "endpoint_url": f"http://127.0.0.1:{parts.port}",
        "region": "us-east-1",
        "key": parts.username or "",
        "secret": parts.password or "",
    }
