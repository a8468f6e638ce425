"""Subjects: three ways to the same server. Each reads, writes and lists; data comes and goes in pieces of 1 MiB."""

import json
from importlib import import_module
from urllib.parse import urlsplit

from benchmarks.storage_suite.folders import Folder, Ssh
from benchmarks.storage_suite.pieces import PIECE, Source, drained, pieces

HOME = "bench-storage"


class Ours:
    """redrive.storage, with a policy: that is how it is meant to be used."""

    def __init__(self, backend: str, address: str) -> None:
        from redrive import RetryPolicy
        from redrive.storage import Store
        from redrive.storage.backend import backend_class

        policy = {} if backend == "local" else {"retry": RetryPolicy()}
        self.store = Store(backend_class(backend)(backend, **_told(backend, address), **policy))

    def write(self, path: str, size: int) -> None:
        self.store.write(path, Source(size))

    def read(self, path: str) -> int:
        with self.store.read(path) as file:
            return drained(file)

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
    """remote-store, from PyPI."""

    def __init__(self, backend: str, address: str) -> None:
        module, kind = PEERS[backend]
        made = getattr(import_module(f"remote_store.backends.{module}"), kind)
        match backend:
            case "local":
                its = made(address)
            case "sftp":
                its = made(**_paramiko(address))
            case "azure":
                its = made(HOME, connection_string=address, hns=False)
            case _:
                parts = urlsplit(address)
                told = {"endpoint_url": f"http://127.0.0.1:{parts.port}", "key": parts.username, "secret": parts.password}
                its = made(HOME, region_name="us-east-1", **told)
        self.store = import_module("remote_store").Store(its)

    def write(self, path: str, size: int) -> None:
        self.store.write(path, Source(size), overwrite=True)

    def read(self, path: str) -> int:
        with self.store.read(path) as file:
            return drained(file)

    def list(self, folder: str) -> int:
        return sum(1 for _ in self.store.list_files(folder, recursive=True))


class S3fs:
    """s3fs, as its users use it."""

    def __init__(self, _backend: str, address: str) -> None:
        import s3fs

        told = _s3(address)
        self.files = s3fs.S3FileSystem(
            key=told["key"],
            secret=told["secret"],
            endpoint_url=told["endpoint_url"],
            client_kwargs={"region_name": told["region"]},
            use_listings_cache=False,
        )

    def write(self, path: str, size: int) -> None:
        with self.files.open(f"{HOME}/{path}", "wb") as file:
            for piece in pieces(size):
                file.write(piece)

    def read(self, path: str) -> int:
        with self.files.open(f"{HOME}/{path}", "rb") as file:
            return drained(file)

    def list(self, folder: str) -> int:
        return len(self.files.find(f"{HOME}/{folder}", detail=True))


class PyArrow(S3fs):
    """PyArrow, as its users use it; it lists by itself."""

    def __init__(self, _backend: str, address: str) -> None:
        from pyarrow import fs

        told = _s3(address)
        self.fs = fs
        self.files = fs.S3FileSystem(
            access_key=told["key"],
            secret_key=told["secret"],
            region=told["region"],
            scheme="http",
            endpoint_override=told["endpoint_url"].removeprefix("http://"),
        )

    def write(self, path: str, size: int) -> None:
        with self.files.open_output_stream(f"{HOME}/{path}") as file:
            for piece in pieces(size):
                file.write(piece)

    def read(self, path: str) -> int:
        with self.files.open_input_stream(f"{HOME}/{path}", buffer_size=4 * PIECE) as file:
            return drained(file)

    def list(self, folder: str) -> int:
        found = self.files.get_file_info(self.fs.FileSelector(f"{HOME}/{folder}", recursive=True, allow_not_found=True))
        return sum(1 for each in found if each.type == self.fs.FileType.File)


class AzureBlob:
    """azure-storage-blob, as its users use it."""

    def __init__(self, _backend: str, address: str) -> None:
        from azure.storage.blob import ContainerClient

        self.container = ContainerClient.from_connection_string(address, HOME)

    def write(self, path: str, size: int) -> None:
        self.container.upload_blob(path, pieces(size), overwrite=True)

    def read(self, path: str) -> int:
        return sum(len(chunk) for chunk in self.container.download_blob(path).chunks())

    def list(self, folder: str) -> int:
        return sum(1 for _ in self.container.list_blobs(f"{folder}/"))


NATIVE = {"s3": S3fs, "s3-pyarrow": PyArrow, "azure": AzureBlob, "local": Folder, "sftp": Ssh}


def subject(who: str, backend: str, address: str) -> Ours:
    """One of ours, native, peer."""
    made = {"ours": Ours, "peer": Peer}.get(who) or NATIVE[backend]
    return made(backend, address)  # type: ignore[return-value]


def _told(backend: str, address: str) -> dict[str, object]:
    match backend:
        case "azure":
            return {"container": HOME, "connection_string": address}
        case "local":
            return {"root": address}
        case "sftp":
            return dict(json.loads(address))
        case _:
            return {"bucket": HOME, **_s3(address)}


def _paramiko(address: str) -> dict[str, object]:
    import paramiko

    told = json.loads(address)
    key = {"pkey": paramiko.Ed25519Key(filename=told["private_key"])} if "private_key" in told else {"password": told["password"]}
    return {
        "host": told["host"],
        "port": told["port"],
        "username": told["username"],
        "base_path": told["root"],
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
