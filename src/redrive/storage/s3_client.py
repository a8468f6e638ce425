"""S3Client: s3fs with exactly one layer that retries."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.policy import RetryPolicy
from ..native.aws import BOTOCORE, retries
from .deadline import DeadlinePassed, time_left
from .extra import client

if TYPE_CHECKING:
    from s3fs import S3FileSystem

LOG = logging.getLogger("redrive.storage")
T = TypeVar("T")


class S3Client:
    """The calls of S3, through s3fs. Threads may share it; a forked child connects anew.

    With a policy, botocore makes its attempts and nobody else does: s3fs's own loop around each call is off, and so is
    aiohttp's, which sends an idempotent request a second time after a reset. Without one, all three are as they come.
    """

    def __init__(self, options: Mapping[str, Any], retry: RetryPolicy | None) -> None:
        self._options = told(options, retry)
        self._one_layer = retry is not None
        self._lock = threading.Lock()
        self._made: tuple[int, S3FileSystem] | None = None

    @property
    def files(self) -> S3FileSystem:
        """s3fs itself, connected in this process."""
        made = self._made
        if made is None or made[0] != os.getpid():
            with self._lock:
                made = self._made
                if made is None or made[0] != os.getpid():
                    made = self._made = os.getpid(), self._connected()
        return made[1]

    def call(self, method: str, /, **arguments: Any) -> Any:
        """One call of S3's own API, by botocore's names; errors are those of botocore."""
        return within_deadline(lambda: self.start(method, **arguments))

    def start(self, method: str, /, **arguments: Any) -> Future[Any]:
        """The same, begun and not waited for. Cancelled, it ends at once."""
        files = self.files
        return asyncio.run_coroutine_threadsafe(_called(files, method, arguments), files.loop)

    def read(self, body: Any, size: int) -> bytes:
        """So many bytes of an answer's body, fewer only at the end."""
        return within_deadline(lambda: asyncio.run_coroutine_threadsafe(_read(body, size), self.files.loop))

    def close(self) -> None:
        """Let go of connections; the next call opens them again."""
        from fsspec.asyn import sync  # noqa: PLC0415

        with self._lock:
            made, self._made = self._made, None
        if made is not None and made[0] == os.getpid():
            sync(made[1].loop, made[1].s3.close)

    def _connected(self) -> S3FileSystem:
        s3fs = client("s3fs", "s3")  # importing it takes a second
        from .s3_session import SendsOnce, session  # noqa: PLC0415

        options = dict(self._options)
        if self._one_layer and "http_session_cls" not in options["config_kwargs"]:
            options["config_kwargs"] = options["config_kwargs"] | {"http_session_cls": SendsOnce}
        files: S3FileSystem = s3fs.S3FileSystem(
            **options, session=session(ends=self._one_layer), skip_instance_cache=True, use_listings_cache=False
        )
        if self._one_layer:
            files.retries = 1  # on the object: the class is everybody's
        files.close_session = _let_go
        return files


def _let_go(loop: asyncio.AbstractEventLoop | None, made: Any) -> None:
    """Close connections that nobody has any more, on their own loop: s3fs would do so on whichever runs where they are forgotten,
    and leave a task there that is nobody's."""
    if loop is not None and loop.is_running():
        loop.call_soon_threadsafe(lambda: loop.create_task(made.__aexit__(None, None, None)))
    else:
        client("s3fs", "s3").S3FileSystem.close_session(None, made)


def told(options: Mapping[str, Any], retry: RetryPolicy | None) -> dict[str, Any]:
    """The options for s3fs, with the policy merged into what the user has said there."""
    config = dict(options.get("config_kwargs") or {})
    if "config" in (options.get("client_kwargs") or {}):
        raise TypeError("client_kwargs cannot hold a botocore Config: s3fs makes it; give its arguments as config_kwargs")
    if retry is not None:
        BOTOCORE.check(retry)
        if config.get("retries"):
            LOG.debug("config_kwargs['retries'] = %r gives way to %r", config["retries"], retry)
        config["retries"] = {**(config.get("retries") or {}), **retries(retry)}
        config["retries"].pop("max_attempts", None)  # says the same in another count, and botocore takes one of them
        BOTOCORE.mapped(retry, config)  # for its word on what is dropped
    return {**options, "config_kwargs": config}


def awaited(future: Future[T], /, timeout: float | None = None) -> T:
    """What it gives. Ctrl+C leaves at once, and so does what it interrupts."""
    try:
        return future.result(timeout)
    except BaseException:
        future.cancel()
        raise


def within_deadline(start: Callable[[], Future[T]], /) -> T:
    """Start it, and wait until the deadline around at most. DeadlinePassed: it was cancelled, or never started."""
    time_left()
    return ended(start())


def ended(future: Future[T], /) -> T:
    """What it gives. DeadlinePassed: it was cancelled."""
    try:
        return awaited(future, time_left())
    except TimeoutError:
        if future.cancelled() or not future.done():
            raise DeadlinePassed from None
        raise


async def _called(filesystem: S3FileSystem, method: str, arguments: Mapping[str, Any]) -> Any:
    try:
        return await filesystem._call_s3(method, **arguments)
    except OSError as error:
        # s3fs turns botocore's errors into those of files, which say less.
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise


async def _read(body: Any, size: int) -> bytes:
    pieces: list[bytes] = []
    have = 0
    while have < size:
        piece = await body.read(size - have)
        if not piece:
            break
        pieces.append(piece)
        have += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
