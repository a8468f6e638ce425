"""ObstoreClient: the async functions of obstore for sync code, and their errors."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ...core.classification.classify import classify
from ...core.event_loop_thread import EventLoopThread
from ...core.policy import RetryPolicy
from ...engine.attempt import current
from ...errors import AlreadyExists, Denied, NotFound, PathInvalid, StorageError, Unavailable
from ...native.object_store import obstore as obstore_retries
from ..backend import import_client
from ..deadline import DeadlinePassed, PerProcess, time_left
from ..errors import file_exists, file_not_found

T = TypeVar("T")

MIN_VERSION = (0, 12)
"""The first version that aborts an upload if one of its last parts fails."""
CLOSE_SECONDS = 1.0
"""Time for running requests when a client is closed."""
ABORT_SECONDS = 5.0
"""Time to abort an upload after an error, for which the caller is waiting."""
LATE_ABORT_SECONDS = 0.5
"""Time to abort an upload after the deadline has passed."""
CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes read at a time."""
EMPTY = memoryview(b"")

NO_CONTAINER_CODES = frozenset(("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"))
EXISTS_CODES = frozenset(("BlobAlreadyExists", "ConditionalRequestConflict", "PreconditionFailed"))
INVALID_PATH_CODES = frozenset(
    (
        "InvalidObjectName",
        "InvalidResourceName",
        "InvalidUri",
        "KeyTooLongError",
        "OutOfRangeInput",
    )
)
ERROR_BY_CLASS_NAME: dict[str, type[StorageError]] = {
    "FileNotFoundError": NotFound,
    "AlreadyExistsError": AlreadyExists,
    "InvalidPathError": PathInvalid,
    "PermissionDeniedError": Denied,
    "UnauthenticatedError": Denied,
}
ERROR_BY_STATUS: dict[str, type[StorageError]] = {"401": Denied, "403": Denied, "404": NotFound}
_CODE = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_STATUS = re.compile(r"Server returned non-2xx status code: ((\d{3})[^:\n]*)")
_DETAIL = re.compile(r'(?:message|error): "([^"]+)"|source: (TimedOut)|(InvalidCertificate)')
_CREDENTIALS = re.compile(r"latest/api/token|latest/meta-data|computeMetadata|oauth2|token request")


class ForkedProcess(RuntimeError):
    """The parent of this process used obstore, whose threads are missing in a forked child."""

    def __init__(self) -> None:
        super().__init__(
            "obstore does not work in a forked child of a process that used it; "
            "start the child with spawn, or use obstore only after the fork"
        )


class _RuntimeOwner:
    """The process that runs obstore's threads."""

    def __init__(self) -> None:
        self._pid: int | None = None

    def check(self) -> None:
        """Raise ForkedProcess if the threads belong to the parent. A request would hang."""
        if self._pid not in (None, os.getpid()):
            raise ForkedProcess
        self._pid = os.getpid()


RUNTIME_OWNER = _RuntimeOwner()


class _Session(NamedTuple):
    """The connections of one process."""

    loop: EventLoopThread
    store: Any
    """Retries by the policy."""
    single_attempt_store: Any
    """Does not retry. Redrive does, because obstore does not resend such requests."""


class ObstoreClient:
    """Calls of obstore. Threads may share it.

    A deadline or an interrupt cancels the request. After a fork, the child gets `ForkedProcess`.

    `create_store` takes the arguments of obstore's store for retries, and returns the store.
    """

    def __init__(
        self, create_store: Callable[[Mapping[str, Any]], Any], retry: RetryPolicy | None
    ) -> None:
        self._create_store = create_store
        self._retry = retry
        self._sessions: PerProcess[_Session] = PerProcess()

    def call(self, function: str, /, *arguments: Any, once: bool = False, **options: Any) -> Any:
        """Call a function of obstore by its name, without the suffix `_async`."""
        session = self._session()
        store = session.single_attempt_store if once else session.store
        method = getattr(import_obstore(), f"{function}_async")
        return run_until_deadline(session.loop, lambda: method(store, *arguments, **options))

    def open_stream(self, path: str, /, **options: Any) -> ObjectStream:
        """Open an object for reading from a byte on. obstore does not retry this."""
        return ObjectStream(self._session(), path, options)

    def read_range(self, path: str, /, **options: Any) -> Any:
        """Return the bytes of a range of an object. obstore does not retry this."""
        session = self._session()
        store = session.single_attempt_store
        return run_until_deadline(session.loop, lambda: _read_range(store, path, options))

    def list_pages(self, folder: str, /, size: int) -> Iterator[list[Any]]:
        """Yield the objects below a folder, by pages."""
        session = self._session()
        pages = import_obstore().list(session.store, folder or None, chunk_size=size)
        while True:
            page = run_until_deadline(session.loop, lambda: anext(pages, None))
            if page is None:
                return
            yield page

    def start_upload(self, path: str, /, **options: Any) -> MultipartUpload:
        """Start an upload in parts."""
        session = self._session()
        return MultipartUpload(session, path, options)

    def close(self) -> None:
        """Close the connections. The next call opens them again."""
        session = self._sessions.pop()
        if session is not None:
            session.loop.close(cancel_seconds=CLOSE_SECONDS)

    def _session(self) -> _Session:
        return self._sessions.get(self._connect)

    def _connect(self) -> _Session:
        import_obstore()
        RUNTIME_OWNER.check()
        loop = EventLoopThread("redrive-obstore")
        if self._retry is None:
            store = self._create_store({})
            return _Session(loop, store, store)
        retrying = self._create_store({"retry_config": obstore_retries(self._retry).value})
        single = obstore_retries(RetryPolicy.disabled()).value
        return _Session(loop, retrying, self._create_store({"retry_config": single}))


class ObjectStream:
    """The body of one response. Do not share it between threads.

    The constructor sends the request and reads the first chunk. From the second chunk on, the next
    one is requested while the caller uses the current one.
    """

    def __init__(self, session: _Session, path: str, options: Mapping[str, Any]) -> None:
        self._loop = session.loop
        self._ahead: Future[bytes | None] | None = None
        store = session.single_attempt_store
        opened = run_until_deadline(self._loop, lambda: _open(store, path, options))
        self.meta, self._chunks, first = opened
        """Size and etag of the object."""
        self._buffered = memoryview(first)

    def read(self, size: int, /) -> Any:
        """Return up to this number of bytes. Empty at the end."""
        if not self._buffered:
            self._buffered = EMPTY
            ahead = self._ahead or self._loop.submit(self._next_chunk)
            self._ahead = None
            chunk = run_until_deadline(self._loop, lambda: asyncio.wrap_future(ahead))
            if chunk:
                self._buffered = memoryview(chunk)
                self._ahead = self._loop.submit(self._next_chunk)
        piece, self._buffered = self._buffered[:size], self._buffered[size:]
        return piece

    def close(self) -> None:
        """Close the response."""
        if self._ahead is not None:
            self._ahead.cancel()
        self._chunks = None
        self._buffered = EMPTY

    async def _next_chunk(self) -> bytes | None:
        return await anext(self._chunks, None)


class MultipartUpload:
    """An upload that the calling thread feeds with pieces. For one write. Do not share it.

    obstore sends several parts at a time, and aborts the upload if a part fails.
    """

    _upload: asyncio.Future[Any]

    def __init__(self, session: _Session, path: str, options: Mapping[str, Any]) -> None:
        self._loop = session.loop
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._is_aborted = False
        self._put = partial(
            import_obstore().put_async, session.store, path, use_multipart=True, **options
        )
        run_until_deadline(self._loop, self._start)

    def send(self, piece: bytes | None, /) -> None:
        """Hand over a piece. None ends the upload. Raises the error of an earlier part."""
        run_until_deadline(self._loop, lambda: self._hand_over(piece))

    def finish(self) -> None:
        """Complete the upload, and wait for it."""
        self.send(None)
        run_until_deadline(self._loop, self._wait)

    def abort(self) -> None:
        """Abort the upload after an error. A rule of the bucket removes parts that remain."""
        remaining = current().remaining
        seconds = ABORT_SECONDS
        if remaining is not None:
            seconds = min(ABORT_SECONDS, max(remaining, LATE_ABORT_SECONDS))
        self._is_aborted = True
        try:
            self._loop.run(self._abort, seconds)
        except Exception:
            pass  # The first error is raised.

    async def _start(self) -> None:
        self._upload = asyncio.ensure_future(self._put(self._iterate()))

    async def _iterate(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            self._pieces.task_done()
            yield piece
        if self._is_aborted:
            raise InterruptedError("the source of this upload failed")

    async def _hand_over(self, piece: bytes | None) -> None:
        self._pieces.put_nowait(piece)
        # Wait until obstore has taken it: one piece less in memory.
        handed_over = asyncio.ensure_future(self._pieces.join())
        try:
            await asyncio.wait((handed_over, self._upload), return_when=asyncio.FIRST_COMPLETED)
        finally:
            handed_over.cancel()
        if self._upload.done():
            self._upload.result()

    async def _wait(self) -> None:
        # Not `await`: a deadline would cancel the upload before it can be aborted.
        await asyncio.wait((self._upload,))
        self._upload.result()

    async def _abort(self) -> None:
        try:
            await self._hand_over(None)
            await self._wait()
        finally:
            self._upload.cancel()


def import_obstore() -> Any:
    """Import obstore, or raise an ImportError with the command that installs it."""
    obstore = import_client("obstore", "obstore")
    version = tuple(int(part) for part in obstore.__version__.split(".")[:2])
    if version < MIN_VERSION:
        install = 'pip install --upgrade "redrive[obstore]"'
        raise ImportError(f"obstore {obstore.__version__} is too old: {install}", name="obstore")
    return obstore


def run_until_deadline(loop: EventLoopThread, work: Callable[[], Awaitable[T]], /) -> T:
    """Run an operation. Cancel it and raise DeadlinePassed at the deadline around the call.

    Raise ForkedProcess in a forked child, also for a file that its parent opened.
    """
    RUNTIME_OWNER.check()
    remaining = time_left()
    try:
        return loop.run(work, remaining)
    except TimeoutError:
        raise DeadlinePassed from None


async def _open(store: Any, path: str, options: Mapping[str, Any]) -> tuple[Any, Any, bytes]:
    result = await import_obstore().get_async(store, path, options=options)
    chunks = result.stream(min_chunk_size=CHUNK_BYTES)
    return result.meta, chunks, await anext(chunks, b"")


async def _read_range(store: Any, path: str, options: Mapping[str, Any]) -> Any:
    result = await import_obstore().get_async(store, path, options=options)
    return await result.bytes_async()


def is_conflict(error: BaseException, /) -> bool:
    """Return whether a conditional write found an existing object."""
    return type(error).__name__ == "AlreadyExistsError" or _code_of(str(error)) in EXISTS_CODES


def from_obstore(
    error: Exception, /, *, path: str, backend: str, container: str, kind: str
) -> StorageError:
    """Return the storage error for an error of obstore. Raise it `from` the original error.

    kind: The service's word for a container, such as `bucket`.
    """
    text = str(error)
    code = _code_of(text)
    status = _STATUS.search(text)
    reason = _reason(text, code, status[1].strip() if status else None)
    where = {"path": path, "backend": backend}
    subject = repr(path) if path else f"the {kind} {container!r}"
    mapped = ERROR_BY_CLASS_NAME.get(type(error).__name__)
    if mapped is None and status is not None:
        mapped = ERROR_BY_STATUS.get(status[2])
    if isinstance(error, (DeadlinePassed, ForkedProcess)):
        mapped = Unavailable if isinstance(error, DeadlinePassed) else StorageError
        return mapped(f"{backend}: {subject}: {error}", **where)
    if _CREDENTIALS.search(text.partition("\n")[0]):
        problem = f"no credentials found: {reason}; set them in the options of the backend"
        return Denied(f"{backend}: {subject} is not allowed: {problem}", **where)
    if code in NO_CONTAINER_CODES or (mapped is NotFound and path == ""):
        return NotFound(f"{backend}: the {kind} {container!r} is missing", **where)
    if mapped is NotFound:
        return file_not_found(path, backend)
    if mapped is Denied or code.startswith("Lease"):
        return Denied(f"{backend}: {subject} is not allowed: {reason}", **where)
    if mapped is PathInvalid or code in INVALID_PATH_CODES:
        return PathInvalid(f"{backend}: invalid path {path!r}: {reason}", **where)
    if is_conflict(error) and code in ("", *EXISTS_CODES):
        return file_exists(path, backend)
    if classify(error).retryable:
        return Unavailable(f"{backend}: {subject} cannot be reached: {reason}", **where)
    return StorageError(f"{backend}: {subject}: {reason}", **where)


def _code_of(text: str) -> str:
    code = _CODE.search(text)
    return code[1] if code else ""


def _reason(text: str, code: str, status: str | None) -> str:
    """Return the code and message of the service, or the error of the connection."""
    message = _MESSAGE.search(text)
    if code:
        return f"{code}: {message[1].partition(chr(10))[0]}" if message else code
    if status:
        return status
    first_line = text.partition("\n")[0].rpartition(" - ")[2].strip()
    details = [next(filter(None, match)) for match in _DETAIL.findall(text)]
    return f"{first_line}: {details[-1]}" if details else first_line
