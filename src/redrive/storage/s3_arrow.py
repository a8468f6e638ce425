"""S3Arrow: the same objects, read through PyArrow's own client."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from ..core.policy import RetryPolicy
from ..native.arrow import pyarrow_s3
from .backend import How
from .body import Body
from .deadline import DeadlinePassed, bounded
from .extra import client
from .info import FileInfo
from .reading import reading
from .s3 import S3
from .s3_mapped import from_s3
from .skipped import Skipped

PIECE = 4 * 1024 * 1024
"""Bytes read at a time, each in one request."""


class S3Arrow:
    """Objects in a bucket, read and listed by PyArrow; the rest goes through s3fs. Threads may share it.

    Arrow finishes every upload, whatever happens: a source that fails half way would leave half a file in place of the old one.
    So files are written through s3fs, whole or not at all. Arrow reads range by range, and does not see that an object was
    replaced in between: where that happens, take `s3`. It lists a folder as a whole: where there are millions of objects beneath
    it, take `s3`, which goes page by page. Arrow and forks don't go together: a child that is forked after the first use must not
    use it.
    """

    capabilities = S3.capabilities

    def __init__(
        self,
        name: str = "s3-pyarrow",
        /,
        *,
        bucket: str,
        endpoint_url: str | None = None,
        region: str | None = None,
        key: str | None = None,
        secret: str | None = None,
        token: str | None = None,
        anonymous: bool = False,
        config_kwargs: Mapping[str, Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
        arrow_kwargs: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        """As for `S3`. arrow_kwargs: for `pyarrow.fs.S3FileSystem`. retry: for both sides; None leaves them as they are."""
        self.name = name
        self.bucket = bucket
        access = {"endpoint_url": endpoint_url, "region": region, "key": key, "secret": secret, "token": token}
        self._s3 = S3(
            name,
            bucket=bucket,
            **access,
            anonymous=anonymous,
            config_kwargs=config_kwargs,
            client_kwargs=client_kwargs,
            retry=retry,
        )
        self._options = {**_arrow(access, anonymous), **(arrow_kwargs or {})}
        self._retry = retry
        self._lock = threading.Lock()
        self._made: tuple[int, Any] | None = None

    def read(self, path: str, /) -> BinaryIO:
        with self._mapped(path):
            # With its size known, Arrow asks for no more than there is, and says at once that a file is missing.
            stream = bounded(lambda: self._arrow.open_input_file(f"{self.bucket}/{path}"))
        return reading(_Stream(stream), partial(self._error, path), window=PIECE)

    def read_bytes(self, path: str, /) -> bytes:
        with self._mapped(path):
            return bounded(lambda: self._read_whole(path))

    def _read_whole(self, path: str) -> bytes:
        with self._arrow.open_input_file(f"{self.bucket}/{path}") as stream:
            found: bytes = stream.readall()
            return found

    def write(self, path: str, body: Body, how: How, /) -> None:
        self._s3.write(path, body, how)

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        found = self._listed(folder) if recursive else None
        if found is None:
            yield from self._s3.files(folder, recursive=recursive)
        else:
            skipped = Skipped(self.name)
            yield from (FileInfo(path, each.size, each.mtime) for path, each in found if skipped.is_path(path))

    def paths(self, folder: str, /, *, recursive: bool) -> Iterator[str]:
        """The same without sizes and times."""
        found = self._listed(folder) if recursive else None
        if found is None:
            yield from (info.path for info in self._s3.files(folder, recursive=recursive))
        else:
            yield from Skipped(self.name).paths([path for path, _ in found])

    def folders(self, folder: str, /) -> Iterator[str]:
        return self._s3.folders(folder)

    def info(self, path: str, /) -> FileInfo:
        return self._s3.info(path)

    def delete(self, path: str, /) -> None:
        self._s3.delete(path)

    def move(self, source: str, target: str, /) -> None:
        self._s3.move(source, target)

    def copy(self, source: str, target: str, /) -> None:
        self._s3.copy(source, target)

    def check(self) -> None:
        self._s3.check()

    def close(self) -> None:
        with self._lock:
            self._made = None
        self._s3.close()

    def _listed(self, folder: str) -> Iterator[tuple[str, Any]] | None:
        """All files beneath a folder, some of which may be no paths; None where somebody's names are none for Arrow."""
        arrow, fs = client("pyarrow", "s3-pyarrow"), client("pyarrow.fs", "s3-pyarrow")
        where = fs.FileSelector(f"{self.bucket}/{folder}" if folder else self.bucket, recursive=True, allow_not_found=True)
        with self._mapped(folder):
            try:
                found = bounded(lambda: self._arrow.get_file_info(where))
            except arrow.ArrowInvalid:
                return None
        if not found:
            self.check()  # to Arrow a missing bucket is an empty one
        cut = len(self.bucket) + 1
        return ((each.path[cut:], each) for each in found if each.size is not None)  # a folder has none

    @property
    def _arrow(self) -> Any:
        fs = client("pyarrow.fs", "s3-pyarrow")
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                told = {} if self._retry is None else {"retry_strategy": pyarrow_s3(self._retry).value}
                self._made = os.getpid(), fs.S3FileSystem(**told, **self._options)
            return self._made[1]

    def _error(self, path: str, error: Exception) -> Exception:
        return from_s3(error, path=path, backend=self.name, bucket=self.bucket)

    @contextmanager
    def _mapped(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(path, error) from error


class _Stream:
    """Arrow's stream, read without a copy."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._is_abandoned = False
        self.length: int = stream.size()  # known since it was opened

    def seek(self, at: int, /) -> None:
        self._stream.seek(min(at, self.length))

    def read(self, size: int, /) -> Any:
        try:
            return bounded(lambda: self._stream.read_buffer(size))
        except DeadlinePassed:
            self._is_abandoned = True
            raise

    def close(self) -> None:
        if not self._is_abandoned:  # else a thread may still read from it
            self._stream.close()


def _arrow(access: Mapping[str, str | None], anonymous: bool) -> dict[str, Any]:
    """The same access in PyArrow's words."""
    told: dict[str, Any] = {
        "access_key": access["key"],
        "secret_key": access["secret"],
        "session_token": access["token"],
        "region": access["region"],
        "anonymous": anonymous or None,
    }
    if access["endpoint_url"]:
        address = urlsplit(access["endpoint_url"])
        told |= {"scheme": address.scheme, "endpoint_override": address.netloc + address.path.rstrip("/")}
    return {name: value for name, value in told.items() if value is not None}
