"""Subjects: three ways to the same server. Each reads, writes and lists; data comes and goes in pieces of 1 MiB."""

import io
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

PIECE = 1024 * 1024
HOME = "bench-storage"
BLOCK = bytes(index % 251 for index in range(PIECE))


class Source(io.RawIOBase):
    """So many bytes, made up as they are read. Cannot seek, as a pipe cannot."""

    def __init__(self, size: int) -> None:
        self.left = size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        take = min(self.left, PIECE if size < 0 else size)
        self.left -= take
        return BLOCK[:take] if take <= PIECE else (BLOCK * (take // PIECE + 1))[:take]

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        piece = self.read(len(target))
        target[: len(piece)] = piece
        return len(piece)


def pieces(size: int) -> Iterator[bytes]:
    source = Source(size)
    while piece := source.read(PIECE):
        yield piece


def drained(file: object) -> int:
    total = 0
    while piece := file.read(PIECE):  # type: ignore[attr-defined]
        total += len(piece)
    return total


class Ours:
    """redrive.storage, with a policy: that is how it is meant to be used."""

    def __init__(self, backend: str, address: str) -> None:
        from redrive import RetryPolicy
        from redrive.storage import Store
        from redrive.storage.kinds import kind

        told = {"container": HOME, "connection_string": address} if backend == "azure" else {"bucket": HOME, **_s3(address)}
        self.store = Store(kind(backend)(backend, **told, retry=RetryPolicy()))

    def write(self, path: str, size: int) -> None:
        self.store.write(path, Source(size))

    def read(self, path: str) -> int:
        with self.store.read(path) as file:
            return drained(file)

    def list(self, folder: str) -> int:
        return sum(1 for _ in self.store.files(folder))


class Peer:
    """remote-store, from PyPI."""

    def __init__(self, backend: str, address: str) -> None:
        from remote_store import Store
        from remote_store.backends import _azure, _s3, _s3_pyarrow

        made = {"s3": _s3.S3Backend, "s3-pyarrow": _s3_pyarrow.S3PyArrowBackend, "azure": _azure.AzureBackend}[backend]
        if backend == "azure":
            told = {"connection_string": address, "hns": False}
        else:
            parts = urlsplit(address)
            told = {"endpoint_url": f"http://127.0.0.1:{parts.port}", "key": parts.username, "secret": parts.password}
            told["region_name"] = "us-east-1"
        self.store = Store(made(HOME, **told))

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
        found = self.files.get_file_info(self.fs.FileSelector(f"{HOME}/{folder}", recursive=True))
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


NATIVE = {"s3": S3fs, "s3-pyarrow": PyArrow, "azure": AzureBlob}


def subject(who: str, backend: str, address: str) -> Ours:
    """One of ours, native, peer."""
    made = {"ours": Ours, "peer": Peer}.get(who) or NATIVE[backend]
    return made(backend, address)  # type: ignore[return-value]


def _s3(address: str) -> dict[str, str]:
    parts = urlsplit(address)
    return {
        "endpoint_url": f"http://127.0.0.1:{parts.port}",
        "region": "us-east-1",
        "key": parts.username or "",
        "secret": parts.password or "",
    }


def say(**figures: float) -> None:
    print(json.dumps(figures))
