"""S3: objects in a bucket, through s3fs, with botocore's retries and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

from ..core.policy import RetryPolicy
from ..errors import AlreadyExists, NotFound
from .backend import How
from .body import Body
from .extra import client
from .info import Capabilities, FileInfo
from .reading import reading
from .resumed import Resumed
from .s3_client import S3Client
from .s3_mapped import from_s3
from .s3_upload import TOKEN, Upload
from .skipped import Skipped

PIECE = 2 * 1024 * 1024
"""Bytes read at a time."""
COPIED_AT_ONCE = 5 * 1024**3
"""Bytes: S3 copies larger objects only part by part."""


class S3:
    """Objects in a bucket. Threads may share it; a forked child connects anew.

    With `retry`, a request is sent `max_attempts` times at most, by botocore; a body that breaks while it is read is fetched
    again from where it broke, as long as it is the same version. Writes of more than 5 MiB go up in parts, four at a time.
    """

    capabilities = Capabilities(
        atomic_write=True, exclusive_create=True, atomic_move=False, native_copy=True, empty_folders=False
    )

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
        """bucket: must be there. key, secret, token: else as botocore finds them (environment, profile, role).

        config_kwargs: for botocore's Config. client_kwargs: for its client. retry: None leaves s3fs and botocore as they are.
        """
        self.name = name
        self.bucket = bucket
        told = dict(client_kwargs or {})
        if region is not None:
            told["region_name"] = region
        self._client = S3Client(
            {
                "endpoint_url": endpoint_url,
                "key": key,
                "secret": secret,
                "token": token,
                "anon": anonymous,
                "client_kwargs": told,
                "config_kwargs": config_kwargs,
            },
            retry,
        )
        self._policy = RetryPolicy() if retry is None else retry

    def read(self, path: str, /) -> BinaryIO:
        with self._mapped(path):
            answer = self._call("get_object", Key=path)

        def again(at: int) -> _Stream:
            return _Stream(self._client, self._call("get_object", Key=path, Range=f"bytes={at}-", IfMatch=answer["ETag"]))

        def ranges(at: int) -> _Ranges:
            return _Ranges(self._client, self._call, path, answer, at)

        first = _Stream(self._client, answer)
        resumed = Resumed(first, answer["ContentLength"], again, self._policy, (_broken,), self.name, ranges)
        return reading(resumed, partial(from_s3, path=path, backend=self.name, bucket=self.bucket), window=PIECE)

    def read_bytes(self, path: str, /) -> bytes:
        with self.read(path) as file:
            return file.read()

    def write(self, path: str, body: Body, how: How, /) -> None:
        with self._mapped(path):
            upload = Upload(self._client, self.bucket, path, only_if_absent=how == "create")
            try:
                if how == "create" and upload.is_large(body):
                    self._refuse(path)  # before the source is read: a generator is not run for nothing
                upload.send(body)
            except Exception as error:
                if how != "create" or not isinstance(from_s3(error, path=path, backend="", bucket=""), AlreadyExists):
                    raise
                if self._call("head_object", Key=path).get("Metadata", {}).get(TOKEN) != upload.token:
                    raise
                # Ours: it was there at the second attempt because of the first, whose answer was lost.

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        start = f"{folder}/" if folder else ""
        skipped = Skipped(self.name)
        for page in self._pages(folder, Prefix=start, **({} if recursive else {"Delimiter": "/"})):
            for found in page.get("Contents", ()):
                if skipped.is_path(found["Key"]):
                    yield FileInfo(found["Key"], found["Size"], found["LastModified"], found["ETag"].strip('"'))

    def folders(self, folder: str, /) -> Iterator[str]:
        start = f"{folder}/" if folder else ""
        skipped = Skipped(self.name)
        for page in self._pages(folder, Prefix=start, Delimiter="/"):
            for found in page.get("CommonPrefixes", ()):
                if skipped.is_path(found["Prefix"][:-1]):
                    yield found["Prefix"][:-1]

    def info(self, path: str, /) -> FileInfo:
        with self._mapped(path):
            found = self._call("head_object", Key=path)
        return FileInfo(path, found["ContentLength"], found["LastModified"], found["ETag"].strip('"'))

    def delete(self, path: str, /) -> None:
        with self._mapped(path):
            self._call("delete_object", Key=path)

    def move(self, source: str, target: str, /) -> None:
        self.copy(source, target)
        self.delete(source)

    def copy(self, source: str, target: str, /) -> None:
        size = self.info(source).size
        with self._mapped(source):
            place = {"Bucket": self.bucket, "Key": source}
            if size <= COPIED_AT_ONCE:
                self._call("copy_object", Key=target, CopySource=place)
            else:
                Upload(self._client, self.bucket, target).copy(place, size)

    def check(self) -> None:
        with self._mapped(""):
            self._call("list_objects_v2", MaxKeys=1)  # not a HEAD: its answer has no room for what is wrong

    def close(self) -> None:
        self._client.close()

    def _call(self, method: str, /, **arguments: Any) -> Any:
        return self._client.call(method, Bucket=self.bucket, **arguments)

    def _pages(self, folder: str, **arguments: Any) -> Iterator[Any]:
        more: dict[str, str] = {}
        while True:
            with self._mapped(folder):
                page = self._call("list_objects_v2", **arguments, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _refuse(self, path: str) -> None:
        try:
            self.info(path)
        except NotFound:
            return
        raise AlreadyExists(f"{self.name}: file {path!r} already exists", path=path, backend=self.name)

    @contextmanager
    def _mapped(self, path: str) -> Iterator[None]:
        botocore = client("botocore.exceptions", "s3")  # comes with s3fs
        try:
            yield
        except (botocore.BotoCoreError, botocore.ClientError, OSError, TimeoutError) as error:
            raise from_s3(error, path=path, backend=self.name, bucket=self.bucket) from error


class _Stream:
    """The body of an answer."""

    def __init__(self, client: S3Client, answer: Any) -> None:
        self._client = client
        self._body = answer["Body"]

    def read(self, size: int, /) -> bytes:
        return self._client.read(self._body, size)

    def close(self) -> None:
        self._body.close()


class _Ranges:
    """An object from a byte on, range by range, each in one request: its connection is used again."""

    def __init__(self, client: S3Client, call: Callable[..., Any], path: str, first: Any, at: int) -> None:
        self._client, self._call, self._path = client, call, path
        self._first = first
        """The response whose version this is."""
        self._at = at

    def read(self, size: int, /) -> bytes:
        last = min(self._at + size, self._first["ContentLength"]) - 1
        reach = f"bytes={self._at}-{last}"
        answer = self._call("get_object", Key=self._path, Range=reach, IfMatch=self._first["ETag"])
        piece = self._client.read(answer["Body"], last + 1 - self._at)
        answer["Body"].close()
        self._at += len(piece)
        return piece

    def close(self) -> None:
        """Nothing is open between requests."""


def _broken(error: Exception) -> bool | None:
    """Whether the body broke. What has a status is an answer, on which botocore has spent its attempts."""
    return None if hasattr(error, "response") else True
