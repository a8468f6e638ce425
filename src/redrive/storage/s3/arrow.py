"""S3Arrow: an `S3` that reads and lists objects with PyArrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from ...core.policy import RetryPolicy
from ...native.aws import pyarrow_s3
from ..backend import FileInfo, import_client
from ..deadline import DeadlinePassed, PerProcess, call_until_deadline
from ..path import ListingFilter
from ..reader import open_reader
from .backend import S3
from .client import from_s3

READ_BYTES = 4 * 1024 * 1024
"""Bytes read at a time, each in one request."""


class S3Arrow(S3):
    """Objects in a bucket, read and listed by PyArrow. Threads may share it.

    Limits of PyArrow, for which `s3` is the better choice:

    - It completes every upload. A source that fails would leave a part in place of the old file.
      So files are written as `S3` does.
    - It reads ranges without a condition, and may mix two versions if an object is replaced.
    - It lists a folder as a whole, not in pages, which needs memory for millions of objects.
    - A child that is forked after the first use must not use it.

    Args:
        name: Name in messages.
        bucket: The bucket. Options without a description are those of `S3`.
        arrow_kwargs: Arguments of `pyarrow.fs.S3FileSystem`.
        retry: The policy of both clients. None: their defaults.
    """

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
        access = {
            "endpoint_url": endpoint_url,
            "region": region,
            "key": key,
            "secret": secret,
            "token": token,
        }
        super().__init__(
            name,
            bucket=bucket,
            **access,
            anonymous=anonymous,
            config_kwargs=config_kwargs,
            client_kwargs=client_kwargs,
            retry=retry,
        )
        self._options = {**_arrow_options(access, anonymous), **(arrow_kwargs or {})}
        self._retry = retry
        self._arrow: PerProcess[Any] = PerProcess()

    def read(self, path: str, /) -> BinaryIO:
        with self._arrow_errors(path):
            # An input file, not a stream: Arrow then knows the size, does not request bytes
            # beyond the end, and reports a missing file at once.
            file = call_until_deadline(lambda: self._open(path))
        return open_reader(
            _ArrowStream(file), partial(self._to_storage_error, path), window=READ_BYTES
        )

    def read_bytes(self, path: str, /) -> bytes:
        with self._arrow_errors(path):
            return call_until_deadline(lambda: self._read_whole(path))

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        entries = self._list_recursively(folder) if recursive else None
        if entries is None:
            yield from super().files(folder, recursive=recursive)
            return
        listing = ListingFilter(self.name)
        for path, entry in entries:
            if listing.accepts_path(path):
                yield FileInfo(path, entry.size, entry.mtime)

    def paths(self, folder: str, /, *, recursive: bool) -> Iterator[str]:
        """List the paths of files, without sizes and times."""
        entries = self._list_recursively(folder) if recursive else None
        if entries is None:
            yield from (info.path for info in super().files(folder, recursive=recursive))
        else:
            yield from ListingFilter(self.name).accepted_paths([path for path, _ in entries])

    def close(self) -> None:
        self._arrow.pop()  # Arrow closes its connections when the object is dropped.
        super().close()

    def _connect(self) -> Any:
        fs = import_client("pyarrow.fs", "s3-pyarrow")
        retries = {} if self._retry is None else {"retry_strategy": pyarrow_s3(self._retry).value}
        return fs.S3FileSystem(**retries, **self._options)

    def _open(self, path: str) -> Any:
        return self._arrow.get(self._connect).open_input_file(f"{self.bucket}/{path}")

    def _read_whole(self, path: str) -> bytes:
        with self._open(path) as file:
            data: bytes = file.readall()
            return data

    def _list_recursively(self, folder: str) -> Iterator[tuple[str, Any]] | None:
        """Return all files below a folder, some with invalid paths.

        None if a key is not a valid path for Arrow, which then lists nothing.
        """
        arrow = import_client("pyarrow", "s3-pyarrow")
        fs = import_client("pyarrow.fs", "s3-pyarrow")
        base = f"{self.bucket}/{folder}" if folder else self.bucket
        selector = fs.FileSelector(base, recursive=True, allow_not_found=True)
        with self._arrow_errors(folder):
            try:
                entries = call_until_deadline(
                    lambda: self._arrow.get(self._connect).get_file_info(selector)
                )
            except arrow.ArrowInvalid:
                return None
        if not entries:
            self.check()  # Arrow lists a missing bucket as an empty one.
        cut = len(self.bucket) + 1
        # The size of a folder is None.
        return ((entry.path[cut:], entry) for entry in entries if entry.size is not None)

    def _to_storage_error(self, path: str, error: Exception) -> Exception:
        return from_s3(error, path=path, backend=self.name, bucket=self.bucket)

    @contextmanager
    def _arrow_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._to_storage_error(path, error) from error


class _ArrowStream:
    """An input file of Arrow, read without a copy."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._is_abandoned = False
        self.length: int = file.size()

    def seek(self, position: int, /) -> None:
        self._file.seek(min(position, self.length))

    def read(self, size: int, /) -> Any:
        try:
            return call_until_deadline(lambda: self._file.read_buffer(size))
        except DeadlinePassed:
            self._is_abandoned = True
            raise

    def close(self) -> None:
        if not self._is_abandoned:  # Otherwise a thread may still read from it.
            self._file.close()


def _arrow_options(access: Mapping[str, str | None], anonymous: bool) -> dict[str, Any]:
    """Return the options of `S3` as arguments of `pyarrow.fs.S3FileSystem`."""
    options: dict[str, Any] = {
        "access_key": access["key"],
        "secret_key": access["secret"],
        "session_token": access["token"],
        "region": access["region"],
        "anonymous": anonymous or None,
    }
    if access["endpoint_url"]:
        address = urlsplit(access["endpoint_url"])
        endpoint = address.netloc + address.path.rstrip("/")
        options |= {"scheme": address.scheme, "endpoint_override": endpoint}
    return {name: value for name, value in options.items() if value is not None}
