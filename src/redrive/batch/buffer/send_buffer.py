"""SendBuffer: collects items of many callers into few batches and sends them in its own tasks."""

from __future__ import annotations

import asyncio
import math
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypedDict, TypeVar, Unpack

from ...analysis.grpc import Behind
from ...core.policy import parse_number
from ...core.seconds import Seconds, number, positive, seconds, whole_number
from ...engine.retry import RetryLike
from ...errors import BufferClosed
from ..background import ATTEMPT_SECONDS, default_send_retry, neutral_context, send_retry
from .delivery import Delivery, SendResponse, SpillTarget, check_spill_target, with_retries
from .flusher import BufferStats, Flusher, Waiter
from .queue import QueueLimits, SendQueue

Item = TypeVar("Item")
EnvItem = TypeVar("EnvItem")
"""An item in `from_env`, a static method, which has no type parameter of its class."""
HURRIED_DRAIN_SECONDS = 5.0
"""Maximum time to close after a cancellation or Ctrl+C."""


class SendBufferOptions(TypedDict, Generic[Item], total=False):
    """The options of `SendBuffer` that `from_env` takes."""

    max_waiting: int
    in_flight: int
    size: Callable[[Item], int] | None
    max_batch_bytes: int | None
    max_waiting_bytes: int | None
    behind: Behind
    codes: Sequence[str] | None
    spill: SpillTarget[Item] | None
    drain: Seconds | None


class SendBuffer(Generic[Item]):
    """Collects items of many callers into batches and sends them.

        async with SendBuffer(send) as buffer:
            await buffer.send(signal)  # returns when the batch with this signal was accepted

    `send` returns or raises for each caller. No caller waits for ever.

    It belongs to the event loop that first uses it. The tasks of that loop may share it. Threads,
    other loops and forked children may not.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[SendResponse]],
        /,
        *,
        max_batch_size: int = 50,
        flush_interval: Seconds = 0.1,
        max_waiting: int = 10_000,
        in_flight: int = 4,
        size: Callable[[Item], int] | None = None,
        max_batch_bytes: int | None = None,
        max_waiting_bytes: int | None = None,
        retry: RetryLike | None = None,
        behind: Behind = (),
        codes: Sequence[str] | None = None,
        attempt_timeout: Seconds | None = ATTEMPT_SECONDS,
        spill: SpillTarget[Item] | None = None,
        drain: Seconds | None = 60.0,
    ) -> None:
        """Create a buffer. It sends nothing before the first item.

        Args:
            send: Async function of a list of items. It returns True or None (accepted), False
                (rejected: `errors.Refused` for all, no retry), or a list with one of these or an
                error for each item.
            max_batch_size: Maximum number of items in a batch.
            flush_interval: Seconds after its first item at which a batch is sent, even if it is not
                full.
            max_waiting: Maximum number of items without a response. Further callers wait.
            in_flight: Maximum number of batches that are sent at the same time. 1 keeps the order.
            size: Function that returns the bytes of an item. Needed for the two limits below.
            max_batch_bytes: Maximum number of bytes in a batch.
            max_waiting_bytes: Maximum number of bytes without a response.
            retry: Policy of a batch. Default: 4 attempts, 100 ms doubling, plus up to half of the
                wait. A `Retry` brings its own rule for errors.
            behind: Options of the gRPC channel, as in `redrive.grpc.retry`.
            codes: gRPC status codes to retry, as in `redrive.grpc.retry`.
            attempt_timeout: Seconds for one attempt. Inside: `current().remaining`.
            spill: Where items go when the retries are used up. Their callers then return without an
                error.
            drain: Seconds that closing may take to send the queued items. None: no limit. At most 5
                if the block was left by a cancellation or Ctrl+C.

        Raises:
            ValueError: A number is out of range.
            TypeError: An option has the wrong type.
        """
        check_spill_target(spill)
        self._limits = QueueLimits(
            whole_number("max_batch_size", max_batch_size),
            whole_number("max_waiting", max_waiting),
            _bytes_limit("max_batch_bytes", max_batch_bytes, size),
            _bytes_limit("max_waiting_bytes", max_waiting_bytes, size),
        )
        self._size = size
        self._interval = seconds("flush_interval", flush_interval)
        self._max_in_flight = whole_number("in_flight", in_flight)
        self._drain = None if drain is None else seconds("drain", drain)
        retries = send_retry(retry, behind, codes, attempt_timeout)
        self.__redrive__, send_with_retries = with_retries(retries, send)
        self._delivery = Delivery(self.__redrive__, send_with_retries, spill)
        self._context = neutral_context()
        self._flusher: Flusher[Item] | None = None
        self._is_closing = False

    @staticmethod
    def from_env(
        send: Callable[[list[EnvItem]], Awaitable[SendResponse]],
        /,
        environ: Mapping[str, str] = os.environ,
        **options: Unpack[SendBufferOptions[EnvItem]],
    ) -> SendBuffer[EnvItem]:
        """Create a buffer with numbers from the environment.

        It reads `REDRIVE_SIGNAL_SEND_RETRIES`, `REDRIVE_SIGNAL_SEND_BACKOFF_MS`,
        `REDRIVE_SIGNAL_MAX_BATCH_SIZE`, `REDRIVE_SIGNAL_FLUSH_INTERVAL` and `REDRIVE_GRPC_TIMEOUT`.
        A variable that is not set has its default.

        Args:
            send: Async function of a list of items, as of `SendBuffer(...)`.
            environ: The variables. Default: `os.environ`.
            options: Other options of `SendBuffer(...)`.

        Returns:
            The buffer.

        Raises:
            ValueError: A value is not valid. The message names the variable.
        """
        numbers = read_environment(environ)
        behind, codes = options.pop("behind", ()), options.pop("codes", None)
        attempts = numbers.retries + 1
        retry = default_send_retry(behind, codes, numbers.timeout, attempts, numbers.backoff)
        return SendBuffer(
            send,
            max_batch_size=numbers.max_batch_size,
            flush_interval=numbers.flush_interval,
            retry=retry,
            **options,
        )

    async def send(self, item: Item, /) -> None:
        """Send one item, and return when its batch was accepted.

        If the caller is cancelled, the item is withdrawn unless it is already being sent.

        Args:
            item: The item.

        Raises:
            Refused: The receiver rejected the batch or the item.
            BufferClosed: The buffer is closed.
            Exception: The error of the batch after its retries.
        """
        waiter = self._add(item)
        try:
            error = await waiter
        except BaseException:
            self._withdraw(waiter)
            raise
        if error is not None:
            try:
                raise error
            finally:
                del error, waiter  # breaks a reference cycle: the error refers to this frame

    async def send_all(self, items: Iterable[Item], /) -> None:
        """Send many items, and return when all were accepted.

        Args:
            items: The items. They are read as there is room.

        Raises:
            ExceptionGroup: The errors of items that were not accepted. All others were sent.
        """
        flusher = self._bind(asyncio.get_running_loop())
        waiters: deque[Waiter] = deque()
        errors: list[Exception] = []
        count = 0

        async def await_oldest() -> None:
            if (error := await waiters[0]) is not None:
                errors.append(error)
            del waiters[0]

        try:
            for count, item in enumerate(items, 1):
                while waiters and (waiters[0].done() or flusher.queue.is_full):
                    flusher.flush_soon(waiters[0])
                    await await_oldest()
                waiters.append(self._add(item))
                if count % self._limits.batch_items == 0:
                    await asyncio.sleep(0)  # let flushes and other tasks run
            while waiters:
                await await_oldest()
        except BaseException:
            for waiter in waiters:
                waiter.cancel()
                self._withdraw(waiter)
            raise
        if errors:
            raise ExceptionGroup(f"{len(errors)} of {count} items were not accepted", errors)

    @property
    def stats(self) -> BufferStats:
        """Counters of this buffer."""
        return BufferStats() if self._flusher is None else self._flusher.stats()

    async def aclose(self) -> None:
        """Send the queued items and close the buffer.

        Items without a response in time fail with `BufferClosed`. You may close it twice.
        """
        await self._close(self._drain)

    async def _close(self, drain: float | None) -> None:
        is_first_call, self._is_closing = not self._is_closing, True
        if self._flusher is None:
            return
        flusher = self._bind(asyncio.get_running_loop())
        flusher.queue.is_closing = True
        flusher.start_flushes()
        try:
            async with asyncio.timeout(drain if is_first_call else None):
                await flusher.idle.wait()
        except TimeoutError:
            await flusher.close_after_timeout()
        except asyncio.CancelledError:
            if is_first_call:
                flusher.close_now()
            raise

    async def __aenter__(self) -> Self:
        self._bind(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, t: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None, /
    ) -> None:
        is_interrupted = e is not None and not isinstance(e, Exception)
        hurried = min(HURRIED_DRAIN_SECONDS, self._drain or HURRIED_DRAIN_SECONDS)
        await self._close(hurried if is_interrupted else self._drain)

    def _add(self, item: Item) -> Waiter:
        loop = asyncio.get_running_loop()
        flusher = self._flusher
        if flusher is None or flusher.loop is not loop:
            flusher = self._bind(loop)
        if flusher.queue.is_closing:
            raise BufferClosed("this SendBuffer is closed: the item was not sent", sent=False)
        return flusher.add(item)

    def _withdraw(self, waiter: Waiter) -> None:
        if self._flusher is not None:
            self._flusher.withdraw(waiter)

    def _bind(self, loop: asyncio.AbstractEventLoop) -> Flusher[Item]:
        """Return the flusher, which belongs to the first event loop that uses the buffer."""
        if self._flusher is None:
            queue: SendQueue[Waiter, Item] = SendQueue(self._limits, self._size)
            queue.is_closing = self._is_closing
            self._flusher = Flusher(
                loop,
                self._delivery,
                queue,
                interval=self._interval,
                max_in_flight=self._max_in_flight,
                context=self._context,
            )
        elif loop is not self._flusher.loop:
            raise RuntimeError(
                "this SendBuffer belongs to another event loop: make one for each loop, and send "
                "from a task of it"
            )
        return self._flusher


def _bytes_limit(name: str, limit: int | None, size: object) -> float:
    if limit is None:
        return math.inf
    if size is None:
        raise TypeError(f"{name} needs size=, a function that says how many bytes an item has")
    return whole_number(name, limit)


class EnvironmentNumbers(NamedTuple):
    """The numbers that `from_env` reads, with their defaults. Durations are in seconds."""

    retries: int = 3
    """Attempts after the first one."""
    backoff: float = 0.1
    timeout: float = 30.0
    """Of one attempt."""
    max_batch_size: int = 50
    flush_interval: float = 0.1


VARIABLES = {
    "retries": "REDRIVE_SIGNAL_SEND_RETRIES",
    "backoff": "REDRIVE_SIGNAL_SEND_BACKOFF_MS",
    "timeout": "REDRIVE_GRPC_TIMEOUT",
    "max_batch_size": "REDRIVE_SIGNAL_MAX_BATCH_SIZE",
    "flush_interval": "REDRIVE_SIGNAL_FLUSH_INTERVAL",
}


def read_environment(environ: Mapping[str, str]) -> EnvironmentNumbers:
    """Return the numbers of the variables that are set, and defaults for the others.

    Raises:
        ValueError: A value is not valid. The message names the variable.
    """
    values = {
        name: _parse_number(name, variable, environ[variable])
        for name, variable in VARIABLES.items()
        if variable in environ
    }
    return EnvironmentNumbers(**values)  # type: ignore[arg-type]  # each is parsed by its name


def _parse_number(name: str, variable: str, text: str) -> float:
    is_count = name in ("retries", "max_batch_size")
    unit = "milliseconds" if name == "backoff" else "seconds"
    value = parse_number(variable, text, is_count=is_count, unit=unit)
    if is_count:
        return whole_number(variable, value, least=0 if name == "retries" else 1)
    if name == "backoff":
        return number(variable, value) / 1000
    return positive(variable, value) if name == "timeout" else number(variable, value)
