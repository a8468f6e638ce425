"""S3Upload: one object, in one request or as a multipart upload. It appears when complete."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ...engine.attempt import current
from ..body import Body
from .client import S3Client, result_until_deadline, wait_or_cancel

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
