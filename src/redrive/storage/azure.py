"""Azure: blobs in a container, through azure-storage-blob, with its retry policy and no other."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

from ..core.policy import RetryPolicy
from ..engine.retry import retry
from ..errors import AlreadyExists, NotFound, StorageError
from ..native.azure_storage import azure
from .azure_call import call, listed, pages
from .azure_mapped import from_azure
from .azure_reading import MOST, Broken, Pieces
from .backend import How
from .body import Body
from .deadline import DeadlinePassed, time_left
from .extra import client
from .info import Capabilities, FileInfo
from .reading import reading
from .resumed import Resumed
from .skipped import Skipped

PIECE = 8 * 1024 * 1024
"""Bytes sent at a time."""
TOKEN = "redrive_write"  # noqa: S105  # a name
"""In the metadata of what was created only if absent: whose it is, should the answer be lost."""
COPY_SECONDS = 600.0


class Azure:
    """Blobs in a container. Threads may share it; a forked child connects anew.

    With `retry`, a request is sent `max_attempts` times at most, with the policy's waits; a body that breaks while it is read is
    fetched again from where it broke, as long as it is the same version. azure's own loop around downloads is off.
    """

    capabilities = Capabilities(
        atomic_write=True, exclusive_create=True, atomic_move=False, native_copy=True, empty_folders=False
    )

    def __init__(
        self,
        name: str = "azure",
        /,
        *,
        container: str,
        connection_string: str | None = None,
        account_url: str | None = None,
        credential: Any = None,
        client_kwargs: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        """container: must be there. Either connection_string, or account_url with a credential (a key, a SAS, a token).

        client_kwargs: for azure's ContainerClient. retry: None leaves azure's own, which waits 15 s and more.
        """
        if (connection_string is None) == (account_url is None):
            raise TypeError("azure needs either connection_string or account_url")
        self.name = name
        self.container = container
        self._address = connection_string, account_url, credential
        self._options = {"max_chunk_get_size": MOST, **(client_kwargs or {})}  # what came in one request is not cut up
        self._retry = retry
        self._policy = RetryPolicy() if retry is None else retry
        self._lock = threading.Lock()
        self._made: tuple[int, Any] | None = None

    def read(self, path: str, /) -> BinaryIO:
        with self._mapped(path):
            again = retry(self._policy, on=Broken, attempt_timeout=None, operation=f"{self.name}.read")
            pieces = again.call(Pieces, self._client.get_blob_client(path))  # with its first bytes, which may break too
        resumed = Resumed(pieces, pieces.length, pieces.again, self._policy, (Broken,), self.name)
        return reading(resumed, partial(from_azure, path=path, backend=self.name, container=self.container), window=MOST)

    def read_bytes(self, path: str, /) -> bytes:
        with self.read(path) as file:
            return file.read()

    def write(self, path: str, body: Body, how: How, /) -> None:
        token = secrets.token_hex(16)
        told: dict[str, Any] = {"metadata": {TOKEN: token}} if how == "create" else {}
        with self._mapped(path):
            blob = self._client.get_blob_client(path)
            if how == "create" and (body.size is None or body.size > PIECE):
                self._refuse(path)  # before the source is read: a generator is not run for nothing
            try:
                self._send(blob, body, told, only_if_absent=how == "create")
            except Exception as error:
                if how != "create" or not isinstance(from_azure(error, path=path, backend="", container=""), AlreadyExists):
                    raise
                if call(blob.get_blob_properties).metadata.get(TOKEN) != token:
                    raise
                # Ours: it was there at the second attempt because of the first, whose answer was lost.

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        start = f"{folder}/" if folder else None
        skipped = Skipped(self.name)
        with self._mapped(folder):
            many = self._client.list_blobs if recursive else partial(self._client.walk_blobs, delimiter="/")
            for blob in listed(partial(many, start)):
                if getattr(blob, "size", None) is not None and skipped.is_path(blob.name):  # a prefix has no size
                    yield FileInfo(blob.name, blob.size, blob.last_modified, blob.etag)

    def paths(self, folder: str, /, *, recursive: bool) -> Iterator[str]:
        """The same without sizes and times: azure takes half a millisecond to make an object of what it is told of a blob."""
        if not recursive:
            yield from (found.path for found in self.files(folder, recursive=False))
            return
        skipped = Skipped(self.name)
        with self._mapped(folder):
            for page in pages(partial(self._client.list_blob_names, name_starts_with=f"{folder}/" if folder else None)):
                yield from skipped.paths(page)

    def folders(self, folder: str, /) -> Iterator[str]:
        skipped = Skipped(self.name)
        with self._mapped(folder):
            for found in listed(partial(self._client.walk_blobs, f"{folder}/" if folder else None, delimiter="/")):
                if found.name.endswith("/") and skipped.is_path(found.name[:-1]):
                    yield found.name[:-1]

    def info(self, path: str, /) -> FileInfo:
        with self._mapped(path):
            found = call(self._client.get_blob_client(path).get_blob_properties)
        return FileInfo(path, found.size, found.last_modified, found.etag.strip('"'))

    def delete(self, path: str, /) -> None:
        try:
            with self._mapped(path):
                call(self._client.delete_blob, path, delete_snapshots="include")
        except NotFound as missing:
            if path not in str(missing):  # it is the container that is missing
                raise

    def move(self, source: str, target: str, /) -> None:
        self.copy(source, target)
        self.delete(source)

    def copy(self, source: str, target: str, /) -> None:
        with self._mapped(source):
            blob = self._client.get_blob_client(target)
            begun = call(blob.start_copy_from_url, self._client.get_blob_client(source).url)
            self._finished(blob, target, begun["copy_status"])

    def check(self) -> None:
        with self._mapped(""):
            call(self._client.get_container_properties)

    def close(self) -> None:
        with self._lock:
            made, self._made = self._made, None
        if made is not None and made[0] == os.getpid():
            made[1].close()

    @property
    def _client(self) -> Any:
        blobs = client("azure.storage.blob", "azure")
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                connection_string, account_url, credential = self._address
                options = {**self._options, **({} if self._retry is None else azure(self._retry).value)}
                if connection_string is not None:
                    made = blobs.ContainerClient.from_connection_string(connection_string, self.container, credential, **options)
                else:
                    made = blobs.ContainerClient(str(account_url), self.container, credential, **options)
                self._made = os.getpid(), made
            return self._made[1]

    def _send(self, blob: Any, body: Body, told: dict[str, Any], *, only_if_absent: bool) -> None:
        from azure.core import MatchConditions  # noqa: PLC0415
        from azure.storage.blob import BlobBlock  # noqa: PLC0415

        last = {"match_condition": MatchConditions.IfMissing} if only_if_absent else {}
        piece = body.read(PIECE)
        if len(piece) < PIECE:
            call(blob.upload_blob, piece, overwrite=not only_if_absent, **told)
            return
        blocks: list[BlobBlock] = []
        while piece:  # nobody sees blocks before they are committed; those that never are, azure drops after a week
            blocks.append(BlobBlock(block_id=f"{len(blocks):08d}-{secrets.token_hex(4)}"))
            call(blob.stage_block, blocks[-1].id, piece)
            piece = body.read(PIECE << len(blocks) // 5000)  # azure takes 50,000 of them
        call(blob.commit_block_list, blocks, **told, **last)

    def _finished(self, blob: Any, target: str, status: str) -> None:
        """Within one account a copy is done at once; a large one may take a while."""
        began, wait = time.monotonic(), 0.1
        while status == "pending" and time.monotonic() - began < COPY_SECONDS:
            left = time_left()
            time.sleep(wait if left is None else min(wait, left))
            wait = min(2 * wait, 5.0)
            status = call(blob.get_blob_properties).copy.status
        if status != "success":
            raise StorageError(f"{self.name}: the copy to {target!r} is {status}", path=target, backend=self.name)

    def _refuse(self, path: str) -> None:
        try:
            self.info(path)
        except NotFound:
            return
        raise AlreadyExists(f"{self.name}: file {path!r} already exists", path=path, backend=self.name)

    @contextmanager
    def _mapped(self, path: str) -> Iterator[None]:
        azure_error = client("azure.core.exceptions", "azure").AzureError
        try:
            yield
        except (azure_error, Broken, DeadlinePassed) as error:
            raise from_azure(error, path=path, backend=self.name, container=self.container) from error
