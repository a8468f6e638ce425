"""ObstoreBackend: objects in a bucket or container, through obstore. Its subclasses are services.

obstore retries listings, `info`, copies and replacing writes, by the policy. Redrive retries reads,
which it continues at the byte where they broke, and what obstore does not resend after a lost
connection: deletes and conditional writes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO, ClassVar, TypeVar

from ...core.policy import RetryPolicy
from ...engine.nesting import GIVE_UPS, Outcome, mark, outcome
from ...engine.retry import retry
from ...errors import NotFound, StorageError, Unavailable
from ..backend import OBJECT_STORE_CAPABILITIES, FileInfo, How, ensure_absent
from ..body import Body
from ..deadline import DeadlinePassed
from ..errors import copy_outcome, file_not_found
from ..path import TEMPORARY_PREFIX, ListingFilter
from ..reader import ResumingStream, open_reader
from .client import (
    ForkedProcess,
    ObjectStream,
    ObstoreClient,
    from_obstore,
    import_obstore,
    is_conflict,
)

T = TypeVar("T")

PART_BYTES = 5 * 1024 * 1024
"""Bytes of a part, unless the object is so large that there would be too many."""
PARTS_AT_ONCE = 4
PIECE_BYTES = 1024 * 1024
"""Bytes handed over at a time. obstore copies them into its parts, so a whole part would be in
memory twice."""
MAX_IN_FLIGHT_BYTES = 64 * 1024 * 1024
"""Bytes sent at a time, if parts are so large that fewer fit. One part always fits."""
MIB = 1024 * 1024
MAX_RANGE_BYTES = 8 * 1024 * 1024
"""Largest request of a caller that seeks."""
PAGE_OBJECTS = 1000
"""Objects of a listing that are in memory at a time."""
LAYER_NAME = "obstore"


class ObstoreBackend:
    """Objects in one container of a service. Threads may share it.

    A forked child gets an error if its parent used obstore before the fork. `create_store` takes
    the class of obstore's store and further arguments, and returns the store.
    """

    capabilities = OBJECT_STORE_CAPABILITIES
    container_kind: ClassVar[str] = "bucket"
    """The service's word for a container, in messages."""
    max_parts: ClassVar[int] = 10_000
    """Largest number of parts that the service accepts."""
    write_token: ClassVar[str] = "redrive-write"  # noqa: S105  # a name
    """Metadata of an object written with `create`: identifies its writer if a response was lost."""
    copies_metadata: ClassVar[bool] = True
    """Whether a conditional copy keeps the metadata."""
    max_put_bytes: ClassVar[int] = 8 * MIB
    """`create` writes a smaller object in one request. A larger one is uploaded, then copied."""
    max_copy_bytes: ClassVar[int | None] = None
    """Largest object that obstore copies at the service. None: any."""
    other_type: ClassVar[str] = ""
    """The type of backend without such limits, in messages."""

    def __init__(
        self,
        name: str,
        container: str,
        create_store: Callable[[Mapping[str, Any]], Any],
        retry: RetryPolicy | None,
    ) -> None:
        self.name = name
        self._container = container
        self._client = ObstoreClient(create_store, retry)
        self._policy = RetryPolicy.disabled() if retry is None else retry

    def read(self, path: str, /) -> BinaryIO:
        with self._storage_errors(path):
            first = self._resend("read", self._client.open_stream, path)
        version = {"if_match": first.meta["e_tag"]}

        def open_at(position: int) -> ObjectStream:
            return self._client.open_stream(path, range={"offset": position}, **version)

        def open_ranges(position: int) -> _RangeStream:
            return _RangeStream(partial(self._client.read_range, path, **version), position)

        stream = ResumingStream(
            first,
            first.meta["size"],
            open_at,
            policy=self._policy,
            break_rules=(self._is_transient,),
            operation=f"{self.name}.read",
            open_after_seek=open_ranges,
        )
        return open_reader(stream, partial(self._from_client, path), window=MAX_RANGE_BYTES)

    def read_bytes(self, path: str, /) -> bytes:
        with self.read(path) as file:
            return file.read()

    def write(self, path: str, body: Body, how: How, /) -> None:
        with self._storage_errors(path):
            if how == "create":
                self._create(path, body)
            else:
                self._upload(path, body, body.read(self._part_bytes(body)))

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        listing = ListingFilter(self.name)
        for page in self._pages(folder, recursive):
            for item in page:
                if listing.accepts_path(item["path"]):
                    etag = (item["e_tag"] or "").strip('"') or None
                    yield FileInfo(item["path"], item["size"], item["last_modified"], etag)

    def paths(self, folder: str, /, *, recursive: bool) -> Iterator[str]:
        """List the paths of files, without sizes and times."""
        listing = ListingFilter(self.name)
        for page in self._pages(folder, recursive):
            yield from listing.accepted_paths([item["path"] for item in page])

    def folders(self, folder: str, /) -> Iterator[str]:
        listing = ListingFilter(self.name)
        with self._storage_errors(folder, listing=True):
            level = self._client.call("list_with_delimiter", folder or None)
        yield from listing.accepted_paths(list(level["common_prefixes"]))

    def info(self, path: str, /) -> FileInfo:
        with self._storage_errors(path):
            meta = self._client.call("head", path)
        etag = (meta["e_tag"] or "").strip('"') or None
        return FileInfo(path, meta["size"], meta["last_modified"], etag)

    def delete(self, path: str, /) -> None:
        try:
            with self._storage_errors(path):
                self._resend("delete", self._client.call, "delete", path, once=True)
        except NotFound as missing:
            if str(missing) != str(file_not_found(path, self.name)):
                raise  # The container is missing, not the object.

    def move(self, source: str, target: str, /) -> None:
        self.copy(source, target)
        self.delete(source)

    def copy(self, source: str, target: str, /) -> None:
        limit = self.max_copy_bytes
        if limit is None or (limit and self.info(source).size <= limit):
            with self._storage_errors(source):
                self._client.call("copy", source, target)
            return
        with self.read(source) as file:
            self.write(target, Body(file), "atomic")

    def check(self) -> None:
        with self._storage_errors("", listing=True):
            next(self._client.list_pages("", 1), None)

    def close(self) -> None:
        self._client.close()

    # ---- writing ----

    def _part_bytes(self, body: Body) -> int:
        return PART_BYTES if body.size is None else max(PART_BYTES, -(-body.size // self.max_parts))

    def _upload(self, path: str, body: Body, first: bytes, **options: Any) -> None:
        part_bytes = self._part_bytes(body)
        if len(first) < part_bytes:
            self._client.call("put", path, first, use_multipart=False, **options)
            return
        at_once = min(PARTS_AT_ONCE, max(1, MAX_IN_FLIGHT_BYTES // part_bytes))
        upload = self._client.start_upload(
            path, chunk_size=part_bytes, max_concurrency=at_once, **options
        )
        piece = first
        del first  # It would stay in memory to the end.
        try:
            while piece:
                upload.send(piece)
                piece = body.read(PIECE_BYTES)
            upload.finish()
        except BaseException:
            upload.abort()
            raise

    def _create(self, path: str, body: Body) -> None:
        if body.size is None or body.size > self.max_put_bytes:
            ensure_absent(self, path)
        self._check_can_create(path, body.size or 0)
        token = secrets.token_hex(8)
        first = body.read(max(self.max_put_bytes, self._part_bytes(body)))
        options: dict[str, Any] = {"attributes": {self.write_token: token}}
        if len(first) < self.max_put_bytes:
            write = partial(self._client.call, "put", path, first, mode="create", **options)
            self._write_if_absent(path, token, write)
            return
        self._check_can_create(path, len(first))
        # obstore sends a conditional write as one request, with the whole object in memory.
        folder, slash, _ = path.rpartition("/")
        temporary = f"{folder}{slash}{TEMPORARY_PREFIX}{token}"
        self._upload(temporary, body, first, **options)
        try:
            self._check_can_create(path, body.moved)
            copy = partial(self._client.call, "copy", temporary, path, overwrite=False)
            self._write_if_absent(path, token, copy, is_known=self.copies_metadata)
        finally:
            with suppress(StorageError):
                self.delete(temporary)

    def _check_can_create(self, path: str, size: int) -> None:
        largest = self.max_copy_bytes
        if largest is not None and size >= self.max_put_bytes and size > largest:
            limit = f"up to {largest // MIB:,}" if largest else f"under {self.max_put_bytes // MIB}"
            problem = f"{path!r} is too large: create takes {limit} MiB here"
            message = f"{self.name}: {problem}; use write_atomic or type {self.other_type}"
            raise StorageError(message, path=path, backend=self.name)

    def _write_if_absent(
        self, path: str, token: str, write: Callable[..., Any], *, is_known: bool = True
    ) -> None:
        """Write with a condition. After a lost response, find out whose object it is.

        is_known: The object has the token. Otherwise the outcome of a lost response is unknown.
        """
        attempts = 0

        def write_once() -> None:
            nonlocal attempts
            attempts += 1
            write(once=True)

        try:
            self._resend("create", write_once)
        except Exception as error:
            if not is_conflict(error):
                raise
            if not is_known and attempts > 1:
                problem = "the response of an earlier attempt was lost; the file may be this one"
                message = f"{self.name}: {path!r}: the outcome is unknown: {problem}"
                raise Unavailable(message, path=path, backend=self.name) from error
            if not is_known or self._token_of(path) != token:
                raise

    def _token_of(self, path: str) -> str | None:
        result = self._client.call("get", path, options={"head": True})
        token: str | None = result.attributes.get(self.write_token)
        return token

    def _resend(self, action: str, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a function that obstore does not retry, with the retries of the policy."""
        retrying = retry(
            self._policy,
            on=self._is_transient,
            attempt_timeout=None,
            operation=f"{self.name}.{action}",
        )
        return retrying.call(function, *args, **options)

    def _is_transient(self, error: Exception) -> bool | None:
        is_deadline = isinstance(error, DeadlinePassed)
        return None if is_deadline else isinstance(self._from_client("", error), Unavailable)

    # ---- listing ----

    def _pages(self, folder: str, recursive: bool) -> Iterator[list[Any]]:
        with self._storage_errors(folder, listing=True):
            if recursive:
                pages = self._client.list_pages(folder, PAGE_OBJECTS)
            else:
                level = self._client.call("list_with_delimiter", folder or None)
                pages = iter((level["objects"],))
            for page in pages:
                yield [item for item in page if item["size"] or self._is_file(item["path"])]

    def _is_file(self, path: str) -> bool:
        """Tell an empty object from the marker of a folder, whose `/` obstore drops."""
        try:
            self.info(path)
        except NotFound:
            return False
        return True

    # ---- errors ----

    def _from_client(self, path: str, error: Exception) -> StorageError:
        where = {"path": path, "backend": self.name}
        if type(error).__name__ == "PreconditionError" and "Lease" not in str(error):
            return StorageError(f"{self.name}: {path!r} changed while it was read", **where)
        storage_error = from_obstore(
            error, **where, container=self._container, kind=self.container_kind
        )
        if outcome(error) is not None:
            return copy_outcome(storage_error, error)
        if isinstance(storage_error, Unavailable) and not isinstance(error, DeadlinePassed):
            spent = Outcome(
                self._policy.max_attempts,
                0.0,
                "attempts",
                layer=LAYER_NAME,
                serial=GIVE_UPS.next(),
            )
            mark(storage_error, spent, None)
        return storage_error

    @contextmanager
    def _storage_errors(self, path: str, *, listing: bool = False) -> Iterator[None]:
        client_error = import_obstore().exceptions.BaseError
        try:
            yield
        except (client_error, FileNotFoundError, DeadlinePassed, ForkedProcess) as error:
            if listing and type(error).__name__ == "InvalidPathError":
                problem = f"obstore cannot list this folder: {str(error).partition(chr(10))[0]}"
                message = f"{self.name}: {path!r}: {problem}"
                raise StorageError(message, path=path, backend=self.name) from error
            raise self._from_client(path, error) from error


class _RangeStream:
    """An object from a byte on, one request for each range, for callers that seek."""

    def __init__(self, read_range: Callable[..., Any], position: int) -> None:
        self._read_range = read_range
        self._position = position

    def read(self, size: int, /) -> Any:
        piece = memoryview(self._read_range(range=(self._position, self._position + size)))
        self._position += len(piece)
        return piece

    def close(self) -> None:
        """Do nothing: no response is open between requests."""
