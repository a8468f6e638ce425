"""S3: objects in a bucket, through s3fs. botocore retries, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

from ...core.policy import RetryPolicy
from ...errors import AlreadyExists
from ..backend import OBJECT_STORE_CAPABILITIES, FileInfo, How, ensure_absent, import_client
from ..body import Body
from ..path import ListingFilter
from ..reader import ResumingStream, open_reader
from .client import S3Client, from_s3
from .upload import WRITE_TOKEN, S3Upload

READ_BYTES = 2 * 1024 * 1024
"""Bytes read at a time."""
MAX_COPY_BYTES = 5 * 1024**3
"""Larger objects are copied in parts."""


class S3:
    """Objects in a bucket. Threads may share it. A forked child connects again.

    With `retry`, botocore sends a request at most `max_attempts` times. A body that breaks while
    it is read is fetched again from that byte, if the object has not changed. Writes of more than
    5 MiB are multipart uploads with four parts at a time.

    Args:
        name: Name in messages.
        bucket: The bucket, which must exist.
        endpoint_url: Address of the service. Default: AWS.
        key: Access key. Default: found by botocore (environment, profile, role).
        config_kwargs: Arguments of botocore's `Config`.
        client_kwargs: Arguments of botocore's client.
        retry: The policy. None: the defaults of s3fs and botocore.
    """

    capabilities = OBJECT_STORE_CAPABILITIES

    def __init__(
        self,
        name: str = "s3",
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
        retry: RetryPolicy | None = None,
    ) -> None:
        self.name = name
        self.bucket = bucket
        client_options = dict(client_kwargs or {})
        if region is not None:
            client_options["region_name"] = region
        self._client = S3Client(
            {
                "endpoint_url": endpoint_url,
                "key": key,
                "secret": secret,
                "token": token,
                "anon": anonymous,
                "client_kwargs": client_options,
                "config_kwargs": config_kwargs,
            },
            retry,
        )
        self._policy = RetryPolicy() if retry is None else retry

    def read(self, path: str, /) -> BinaryIO:
        with self._storage_errors(path):
            response = self._call("get_object", Key=path)

        def open_at(position: int) -> _ResponseStream:
            same_version = {"Range": f"bytes={position}-", "IfMatch": response["ETag"]}
            return _ResponseStream(self._client, self._call("get_object", Key=path, **same_version))

        def open_ranges(position: int) -> _RangeStream:
            return _RangeStream(self._client, self._call, path, response, position)

        stream = ResumingStream(
            _ResponseStream(self._client, response),
            response["ContentLength"],
            open_at,
            policy=self._policy,
            break_rules=(_is_broken_body,),
            operation=f"{self.name}.read",
            open_after_seek=open_ranges,
        )
        to_storage_error = partial(from_s3, path=path, backend=self.name, bucket=self.bucket)
        return open_reader(stream, to_storage_error, window=READ_BYTES)

    def read_bytes(self, path: str, /) -> bytes:
        with self.read(path) as file:
            return file.read()

    def write(self, path: str, body: Body, how: How, /) -> None:
        with self._storage_errors(path):
            upload = S3Upload(self._client, self.bucket, path, only_if_absent=how == "create")
            try:
                if how == "create" and upload.may_be_multipart(body):
                    ensure_absent(self, path)
                upload.send(body)
            except Exception as error:
                if how != "create" or not _is_conflict(error, path):
                    raise
                # A second attempt finds the object of the first one, if the response was lost.
                metadata = self._call("head_object", Key=path).get("Metadata", {})
                if metadata.get(WRITE_TOKEN) != upload.token:
                    raise

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        prefix = f"{folder}/" if folder else ""
        listing = ListingFilter(self.name)
        delimiter = {} if recursive else {"Delimiter": "/"}
        for page in self._list_pages(folder, Prefix=prefix, **delimiter):
            for item in page.get("Contents", ()):
                if listing.accepts_path(item["Key"]):
                    etag = item["ETag"].strip('"')
                    yield FileInfo(item["Key"], item["Size"], item["LastModified"], etag)

    def folders(self, folder: str, /) -> Iterator[str]:
        prefix = f"{folder}/" if folder else ""
        listing = ListingFilter(self.name)
        for page in self._list_pages(folder, Prefix=prefix, Delimiter="/"):
            for item in page.get("CommonPrefixes", ()):
                path = item["Prefix"][:-1]
                if listing.accepts_path(path):
                    yield path

    def info(self, path: str, /) -> FileInfo:
        with self._storage_errors(path):
            head = self._call("head_object", Key=path)
        return FileInfo(path, head["ContentLength"], head["LastModified"], head["ETag"].strip('"'))

    def delete(self, path: str, /) -> None:
        with self._storage_errors(path):
            self._call("delete_object", Key=path)

    def move(self, source: str, target: str, /) -> None:
        self.copy(source, target)
        self.delete(source)

    def copy(self, source: str, target: str, /) -> None:
        size = self.info(source).size
        with self._storage_errors(source):
            source_object = {"Bucket": self.bucket, "Key": source}
            if size <= MAX_COPY_BYTES:
                self._call("copy_object", Key=target, CopySource=source_object)
            else:
                S3Upload(self._client, self.bucket, target).copy(source_object, size)

    def check(self) -> None:
        with self._storage_errors(""):
            # Not HeadBucket: the response to a HEAD request has no error code.
            self._call("list_objects_v2", MaxKeys=1)

    def close(self) -> None:
        self._client.close()

    def _call(self, method: str, /, **arguments: Any) -> Any:
        return self._client.call(method, Bucket=self.bucket, **arguments)

    def _list_pages(self, folder: str, **arguments: Any) -> Iterator[Any]:
        continuation: dict[str, str] = {}
        while True:
            with self._storage_errors(folder):
                page = self._call("list_objects_v2", **arguments, **continuation)
            yield page
            if not page.get("IsTruncated"):
                return
            continuation = {"ContinuationToken": page["NextContinuationToken"]}

    @contextmanager
    def _storage_errors(self, path: str) -> Iterator[None]:
        botocore = import_client("botocore.exceptions", "s3")  # Installed with s3fs.
        try:
            yield
        except (botocore.BotoCoreError, botocore.ClientError, OSError, TimeoutError) as error:
            raise from_s3(error, path=path, backend=self.name, bucket=self.bucket) from error


class _ResponseStream:
    """The body of one response."""

    def __init__(self, client: S3Client, response: Any) -> None:
        self._client = client
        self._body = response["Body"]

    def read(self, size: int, /) -> bytes:
        return self._client.read(self._body, size)

    def close(self) -> None:
        self._body.close()


class _RangeStream:
    """An object from a byte on, one request for each range. The connection is reused.

    It reads the version of the object that a first response had.
    """

    def __init__(
        self, client: S3Client, call: Callable[..., Any], path: str, version: Any, position: int
    ) -> None:
        self._client = client
        self._call = call
        self._path = path
        self._version = version
        self._position = position

    def read(self, size: int, /) -> bytes:
        last = min(self._position + size, self._version["ContentLength"]) - 1
        byte_range = f"bytes={self._position}-{last}"
        response = self._call(
            "get_object", Key=self._path, Range=byte_range, IfMatch=self._version["ETag"]
        )
        piece = self._client.read(response["Body"], last + 1 - self._position)
        response["Body"].close()
        self._position += len(piece)
        return piece

    def close(self) -> None:
        """Do nothing: no response is open between requests."""


def _is_conflict(error: Exception, path: str) -> bool:
    return isinstance(from_s3(error, path=path, backend="", bucket=""), AlreadyExists)


def _is_broken_body(error: Exception) -> bool | None:
    """Retry rule: True unless the error has a response, for which botocore spent its attempts."""
    return None if hasattr(error, "response") else True
