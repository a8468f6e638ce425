"""Upload: an object on its way into a bucket, in one request or in parts. Nobody sees it before it is whole."""

from __future__ import annotations

import secrets
from collections import deque
from concurrent.futures import Future
from typing import Any

from ..engine.attempt import current
from .body import Body
from .s3_client import S3Client, awaited, ended

PART = 5 * 1024 * 1024
"""Bytes in a part: the least that S3 takes."""
PARTS = 10_000
"""The most that S3 takes."""
AT_ONCE = 4
MEMORY = 64 * 1024 * 1024
"""Bytes on their way at a time, where parts are so large that fewer than four fit; one always does."""
CLEARING = 5.0
"""Seconds for taking back what was begun: after an error, the caller is waiting to hear of it."""
HASTY = 0.5
"""Seconds for the same after the deadline has passed."""
COPY_PART = 1024**3
TOKEN = "redrive-write"  # noqa: S105  # a name
"""In the metadata of what was created only if absent: whose it is, should the answer be lost."""


class Upload:
    """One object to be written. For one write, and not shared."""

    def __init__(self, client: S3Client, bucket: str, path: str, *, only_if_absent: bool = False) -> None:
        self.token = secrets.token_hex(16)
        self._client = client
        self._where = {"Bucket": bucket, "Key": path}
        self._first: dict[str, Any] = {"Metadata": {TOKEN: self.token}} if only_if_absent else {}
        self._last: dict[str, Any] = {"IfNoneMatch": "*"} if only_if_absent else {}

    @staticmethod
    def is_large(body: Body) -> bool:
        """Whether it goes up in parts, or may."""
        return body.size is None or body.size > PART

    def send(self, body: Body) -> None:
        """Write all of it."""
        size = part_size(body.size, 1)
        head = body.read(size)
        if len(head) < size:
            self._client.call("put_object", **self._where, **self._first, **self._last, Body=head)
            return
        self._in_parts(lambda upload: self._parts(upload, head, body))

    def copy(self, source: dict[str, str], size: int) -> None:
        """Copy an object that is too large for one request."""
        self._in_parts(lambda upload: self._copies(upload, source, size))

    def _in_parts(self, parts: Any) -> None:
        upload = {
            **self._where,
            "UploadId": self._client.call("create_multipart_upload", **self._where, **self._first)["UploadId"],
        }
        try:
            etags = parts(upload)
            listed = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
            self._client.call("complete_multipart_upload", **upload, **self._last, MultipartUpload={"Parts": listed})
        except BaseException:
            try:
                left = current().remaining
                clearing = CLEARING if left is None else min(CLEARING, max(left, HASTY))
                awaited(self._client.start("abort_multipart_upload", **upload), clearing)
            except Exception:  # the first error is the one to tell; the bucket's own rules clear up what is left
                pass
            raise

    def _parts(self, upload: dict[str, Any], head: bytes, body: Body) -> list[str]:
        sent: deque[Future[Any]] = deque()
        etags: list[str] = []
        part, number = head, 1
        try:
            while part:
                sent.append(self._client.start("upload_part", **upload, PartNumber=number, Body=part))
                number += 1
                size = part_size(body.size, number)
                while len(sent) >= min(AT_ONCE, max(1, MEMORY // size)):
                    etags.append(ended(sent[0])["ETag"])  # no more than so many parts are in memory
                    sent.popleft()
                part = body.read(size)
            etags.extend(ended(future)["ETag"] for future in sent)
        except BaseException:
            for future in sent:
                future.cancel()
            raise
        return etags

    def _copies(self, upload: dict[str, Any], source: dict[str, str], size: int) -> list[str]:
        etags = []
        for number, start in enumerate(range(0, size, COPY_PART), 1):
            reach = f"bytes={start}-{min(start + COPY_PART, size) - 1}"
            answer = self._client.call("upload_part_copy", **upload, PartNumber=number, CopySource=source, CopySourceRange=reach)
            etags.append(answer["CopyPartResult"]["ETag"])
        return etags


def part_size(size: int | None, number: int) -> int:
    """Bytes of a part, by its number from 1: so many that all of them fit; doubled every thousand where only the end tells."""
    if size is None:
        return PART << (number - 1) // 1000
    return max(PART, -(-size // PARTS))
