"""S3: objects in a bucket, through s3fs. botocore retries, and nothing else does.

`S3Upload` writes one object, in one request or as a multipart upload. It appears when complete.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

from ...core.policy import RetryPolicy
from ...engine.attempt import current
from ...errors import AlreadyExists
from ..backend import OBJECT_STORE_CAPABILITIES, FileInfo, How, ensure_absent, import_client
from ..body import Body
from ..path import ListingFilter
from ..reader import ResumingStream, open_reader
from .client import S3Client, from_s3, result_until_deadline, wait_or_cancel

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


# --- Uploads

MIN_PART_BYTES = 5 * 1024 * 1024
"""Smallest part that S3 accepts."""
MAX_PARTS = 10_000
"""Largest number of parts that S3 accepts."""
PARTS_AT_ONCE = 4
MAX_IN_FLIGHT_BYTES = 64 * 1024 * 1024
"""Bytes sent at a time, if parts are so large that fewer than four fit. One part always fits."""
ABORT_SECONDS = 5.0
"""Time to abort an upload after an error, for which the caller is waiting."""
LATE_ABORT_SECONDS = 0.5
"""Time to abort an upload after the deadline has passed."""
COPY_PART_BYTES = 1024**3
WRITE_TOKEN = "redrive-write"  # noqa: S105  # a name
"""Metadata of an object written with `create`: identifies its writer if the response was lost."""


class S3Upload:
    """The upload of one object. For one write. Do not share it."""

    def __init__(
        self, client: S3Client, bucket: str, path: str, *, only_if_absent: bool = False
    ) -> None:
        self.token = secrets.token_hex(16)
        self._client = client
        self._object = {"Bucket": bucket, "Key": path}
        self._create_options: dict[str, Any] = {}
        self._complete_options: dict[str, Any] = {}
        if only_if_absent:
            self._create_options = {"Metadata": {WRITE_TOKEN: self.token}}
            self._complete_options = {"IfNoneMatch": "*"}

    @staticmethod
    def may_be_multipart(body: Body) -> bool:
        """Return whether the body needs more than one request, or its size is unknown."""
        return body.size is None or body.size > MIN_PART_BYTES

    def send(self, body: Body) -> None:
        """Upload the whole body."""
        size = part_size(body.size, 1)
        first_parts = [body.read(size)]
        if len(first_parts[0]) < size:
            options = {**self._create_options, **self._complete_options}
            self._client.call("put_object", **self._object, **options, Body=first_parts[0])
            return
        # In a list, so that `_send_parts` can take it out: it would stay in memory to the end.
        self._run_multipart(lambda upload: self._send_parts(upload, first_parts, body))

    def copy(self, source: dict[str, str], size: int) -> None:
        """Copy an object that is too large for one request."""
        self._run_multipart(lambda upload: self._copy_parts(upload, source, size))

    def _run_multipart(self, send_parts: Callable[[dict[str, Any]], list[str]]) -> None:
        created = self._client.call(
            "create_multipart_upload", **self._object, **self._create_options
        )
        upload = {**self._object, "UploadId": created["UploadId"]}
        try:
            etags = send_parts(upload)
            parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
            self._client.call(
                "complete_multipart_upload",
                **upload,
                **self._complete_options,
                MultipartUpload={"Parts": parts},
            )
        except BaseException:
            self._abort(upload)
            raise

    def _abort(self, upload: dict[str, Any]) -> None:
        remaining = current().remaining
        seconds = ABORT_SECONDS
        if remaining is not None:
            seconds = min(ABORT_SECONDS, max(remaining, LATE_ABORT_SECONDS))
        try:
            wait_or_cancel(self._client.start("abort_multipart_upload", **upload), seconds)
        except Exception:
            pass  # The first error is raised. A lifecycle rule of the bucket removes the parts.

    def _send_parts(
        self, upload: dict[str, Any], first_parts: list[bytes], body: Body
    ) -> list[str]:
        in_flight: deque[Future[Any]] = deque()
        etags: list[str] = []
        part, number = first_parts.pop(), 1
        try:
            while part:
                in_flight.append(
                    self._client.start("upload_part", **upload, PartNumber=number, Body=part)
                )
                number += 1
                size = part_size(body.size, number)
                max_in_flight = min(PARTS_AT_ONCE, max(1, MAX_IN_FLIGHT_BYTES // size))
                while len(in_flight) >= max_in_flight:
                    etags.append(result_until_deadline(in_flight[0])["ETag"])
                    in_flight.popleft()
                part = body.read(size)
            etags.extend(result_until_deadline(future)["ETag"] for future in in_flight)
        except BaseException:
            for future in in_flight:
                future.cancel()
            raise
        return etags

    def _copy_parts(self, upload: dict[str, Any], source: dict[str, str], size: int) -> list[str]:
        etags = []
        for number, start in enumerate(range(0, size, COPY_PART_BYTES), 1):
            last = min(start + COPY_PART_BYTES, size) - 1
            response = self._client.call(
                "upload_part_copy",
                **upload,
                PartNumber=number,
                CopySource=source,
                CopySourceRange=f"bytes={start}-{last}",
            )
            etags.append(response["CopyPartResult"]["ETag"])
        return etags


def part_size(size: int | None, number: int) -> int:
    """Return the bytes of a part, by its number from 1, so that all parts fit into one upload.

    If the size of the object is unknown, parts double every thousand.
    """
    if size is None:
        return MIN_PART_BYTES << (number - 1) // 1000
    return max(MIN_PART_BYTES, -(-size // MAX_PARTS))
