"""retry: the public entry. One `Retry` decorates functions, calls them, and retries blocks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial, update_wrapper, wraps
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, Unpack, overload

from ..core.breaker import Breaker
from ..core.budget import Budget
from ..core.fault import Rules
from ..core.lazy import deferred
from ..core.policy import RetryPolicy
from ..core.seconds import Seconds
from .fastpath import wrap_async, wrap_sync
from .run import is_awaitable
from .settings import RetrySettings

if TYPE_CHECKING:
    from ..backoff import Backoff
    from ..core.key import Key, KeyOf
    from . import block as blocks
    from .block import Attempts
    from .settings import Options
    from .spill import Spill
else:
    (blocks,) = deferred(__package__, "block")  # imports asyncio

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Retry:
    """A retry policy with its options, made by `retry(...)`.

    The options are the errors to retry, budget, breaker and timeouts. Use it as a decorator, or
    call a function with `call` and `acall`.

    Immutable: threads, event loops and forked children may share one.
    """

    __slots__ = ("settings",)

    def __init__(self, settings: RetrySettings) -> None:
        self.settings = settings

    @property
    def policy(self) -> RetryPolicy:
        """The policy: attempts, backoff and total time."""
        return self.settings.policy

    @property
    def operation(self) -> str | None:
        """Name in log records, budgets and tests. None: the name of the function."""
        return self.settings.operation

    def __call__(self, fn: F, /) -> F:
        """Decorate a function: sync, async, a method, or a generator (only its opening is retried).

        Args:
            fn: The function.

        Returns:
            A function of the same type.
        """
        if isinstance(fn, (classmethod, staticmethod)):
            return type(fn)(self(fn.__func__))
        if isinstance(fn, type):
            hint = "decorate the method that may fail"
            if issubclass(fn, BaseException):
                hint = f"pass errors as retry(on={fn.__name__})"
            raise TypeError(f"retry decorates functions, but {fn.__name__} is a class; {hint}")
        if getattr(fn, "__code__", None) in _CONTEXT_MANAGERS:
            raise TypeError(
                f"{_name(fn)} fails when it is entered, not when it is called; "
                "write @contextmanager above @retry"
            )
        settings = self._settings_for(fn)
        target = _replayable(fn, settings)
        wrapper = _with_spill(settings, fn, _wrap_for(target)(settings, target))
        update_wrapper(wrapper, fn)
        wrapper.__redrive__ = Retry(settings)  # type: ignore[attr-defined]  # for `redrive layers` and tests
        return wrapper  # type: ignore[return-value]  # it has the type of `fn`

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a sync function with retries.

        Args:
            fn: The function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Returns:
            The result of the function.

        Raises:
            TypeError: The function is async or a generator.
        """
        kind = _kind_of(fn)
        if kind == "async":
            raise TypeError(
                f"call is for sync functions, but {_name(fn)} is async; "
                "use `await retry.acall(...)`"
            )
        if kind != "sync":
            raise TypeError(
                f"call is for sync functions, but {_name(fn)} is a generator; decorate it"
            )
        settings = self._settings_for(fn)
        target = _replayable(fn, settings)
        if target is not fn and _kind_of(target) == "async":
            raise TypeError(
                f"call is for sync functions, but {settings.operation} is async; "
                "use `await retry.acall(...)`"
            )
        result: T = _with_spill(settings, fn, wrap_sync(settings, target))(*args, **kwargs)
        return result

    async def acall(self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call and await an async function with retries.

        Args:
            fn: The async function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Returns:
            The result of the function.

        Raises:
            TypeError: The function is sync or a generator.
        """
        if _kind_of(fn) in ("generator", "async generator"):
            raise TypeError(
                f"acall is for async functions, but {_name(fn)} is a generator; decorate it"
            )
        settings = self._settings_for(fn)
        target = _replayable(fn, settings)
        if _kind_of(target) != "async":
            target = _check_awaitable(target)
        result: T = await _with_spill(settings, fn, wrap_async(settings, target))(*args, **kwargs)
        return result

    def attempts(self) -> Attempts:
        """Return the attempts for a block of code.

        Write `for attempt in crm.attempts(): with attempt: ...`.

        Returns:
            An iterable for `for` and `async for`.
        """
        return blocks.Attempts(self.settings.named(self.operation or _calling_function(), self))

    def using(self, policy: RetryPolicy | None = None, /, **options: Unpack[Options]) -> Retry:
        """Return a copy with other options. It shares the budget and the breaker.

        Args:
            policy: Another policy. Default: the same.
            options: Options as of `retry(...)`.

        Returns:
            The copy.
        """
        settings = self.settings.using(policy, options)
        return Retry(settings.named(settings.operation, self))

    def _settings_for(self, fn: Callable[..., Any]) -> RetrySettings:
        _check_function(fn)
        return self.settings.named(self.settings.operation or _name(fn), self)

    def __repr__(self) -> str:
        name = f"{self.operation}: " if self.operation else ""
        return f"Retry({name}{self.policy})"


RetryLike: TypeAlias = RetryPolicy | Retry
"""The type of every `retry=` option. None is its default, and `RetryPolicy.disabled()` is off."""


@overload
def retry(fn: F, /) -> F: ...
@overload
def retry(
    policy: RetryPolicy | None,
    /,
    *,
    on: Rules | None = None,
    reject: Callable[[Any], bool] | None = None,
    backoff: Backoff | None = None,
    budget: Budget | str | None = None,
    breaker: Breaker | str | None = None,
    attempt_timeout: Seconds | None = 10.0,
    idempotent: bool = True,
    nested: Literal["final", "allow"] = "final",
    key: Key | KeyOf | None = None,
    fields: Mapping[str, Any] | None = None,
    spill: Spill | None = None,
    hedge: Seconds | None = None,
    operation: str | None = None,
) -> Retry: ...
@overload
def retry(
    *,
    max_attempts: int = 3,
    backoff_base: float = 0.25,
    backoff_max: float = 5.0,
    jitter: float = 0.25,
    timeout: float | None = None,
    on: Rules | None = None,
    reject: Callable[[Any], bool] | None = None,
    backoff: Backoff | None = None,
    budget: Budget | str | None = None,
    breaker: Breaker | str | None = None,
    attempt_timeout: Seconds | None = 10.0,
    idempotent: bool = True,
    nested: Literal["final", "allow"] = "final",
    key: Key | KeyOf | None = None,
    fields: Mapping[str, Any] | None = None,
    spill: Spill | None = None,
    hedge: Seconds | None = None,
    operation: str | None = None,
) -> Retry: ...
def retry(given: Any = None, /, **options: Any) -> Any:
    """Retry a function on transient errors, as a decorator or as an object.

    Pass a `RetryPolicy`, or its five fields by name, but not both. The default is 3 attempts with a
    backoff of 0.25 s to 5 s and 10 s for each attempt. Commands, handlers and datasets use their
    own defaults for options that you do not pass.

    Args:
        given: The function to decorate, or a `RetryPolicy`.
        options: The options below, by name.
        max_attempts (int): Maximum number of attempts, including the first one.
        backoff_base (float): Seconds to wait after the first failed attempt. The wait doubles with
            each further one.
        backoff_max (float): Maximum number of seconds that doubling reaches.
        jitter (float): Maximum number of seconds that are added to each wait at random.
        timeout (float | None): Seconds for all attempts and waits together.
        on (Rules | None): Errors to retry: a type, a function of the error, or a tuple of both.
            Default: the standard rule `classify`. Unknown errors are not retried.
        reject (Callable | None): Function of the result. If it returns True, the result counts as a
            failure. `errors.Rejected` is raised with the last result when the attempts are used up.
        backoff (Backoff | None): Other waits than the policy's. See `redrive.backoff`.
        budget (Budget | str | None): A shared limit on retries, or its name.
        breaker (Breaker | str | None): A shared circuit breaker, or its name.
        attempt_timeout (Seconds | None): Seconds for one attempt. Async attempts are cancelled.
            Sync functions read it from `current().remaining`.
        idempotent (bool): If False, only requests that were never sent are retried.
        nested (str): `"final"`: an error on which an inner layer has used up its retries is not
            retried here. `"allow"`: it is.
        key (Key | KeyOf | None): Idempotency key of the work: a `Key`, a template over the
            parameters, or a function of them. Read it from `current().key`.
        fields (Mapping | None): Fields that are copied into every log record.
        spill (Spill | None): Function that takes over a call that gave up, such as
            `app.spill(...)`. The caller still gets the error, and `outcome(error).job_id` names the
            job.
        hedge (Seconds | None): Seconds after which a second call is started beside a slow one. The
            first success wins and the other call is cancelled. Only for async functions with
            `idempotent=True`. A hedge counts as an attempt and is paid from the budget.
        operation (str | None): Name in log records, budgets and tests. Default: the qualified name
            of the function.

    Returns:
        The decorated function, or a `Retry`.

    Raises:
        TypeError: A policy is passed together with its fields, or an option is unknown.
    """
    if given is None or isinstance(given, RetryPolicy):
        return DEFAULT.using(given, **options)
    if options:
        raise TypeError(
            f"retry takes a RetryPolicy and options, or just a function, not {given!r} with "
            f"{', '.join(options)}"
        )
    return DEFAULT(given)


def call(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a sync function with the default retries: `retry().call(...)`.

    Args:
        fn: The function.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Returns:
        The result of the function.
    """
    return DEFAULT.call(fn, *args, **kwargs)


async def acall(fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call and await an async function with the default retries: `await retry().acall(...)`.

    Args:
        fn: The async function.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Returns:
        The result of the function.
    """
    return await DEFAULT.acall(fn, *args, **kwargs)


def attempts(policy: RetryPolicy | None = None, /, **options: Unpack[Options]) -> Attempts:
    """Return the attempts for a block of code: `retry(...).attempts()`.

    Args:
        policy: The policy. Default: 3 attempts, 0.25 s to 5 s.
        options: Options as of `retry(...)`.

    Returns:
        An iterable for `for` and `async for`.
    """
    return _layer(policy, options).attempts()


def _layer(policy: RetryPolicy | None, options: Mapping[str, Any]) -> Retry:
    """Return `retry(policy, **options)`, which is cached if all of these values are immutable.

    The types are part of the key, because 1 equals True.
    """
    on = options.get("on")
    values = (policy, *options.values(), *(on if type(on) is tuple else ()))
    types = tuple(map(type, values))
    if not _IMMUTABLE.issuperset(types):
        return DEFAULT.using(policy, **options)
    key = (types, policy, *options.items())
    layer = _LAYERS.get(key)
    if layer is None:
        layer = DEFAULT.using(policy, **options)
        if len(_LAYERS) >= MAX_CACHED_LAYERS:
            _LAYERS.clear()
        _LAYERS[key] = layer
    return layer


_CONTEXT_MANAGERS = (contextmanager(iter).__code__, asynccontextmanager(aiter).__code__)
"""The code objects of all functions that these two decorators make."""
DEFAULT = Retry(RetrySettings())
"""Three attempts, 0.25 s to 5 s, 10 s each, the standard rule."""
MAX_CACHED_LAYERS = 128
"""Layers of blocks that are remembered. Some programs compute their options."""
_LAYERS: dict[tuple[Any, ...], Retry] = {}
_IMMUTABLE = frozenset((int, float, bool, str, NoneType, type, tuple, RetryPolicy, Budget, Breaker))
"""Types of options by which a layer is remembered. Budgets and breakers count as themselves."""

FunctionKind: TypeAlias = Literal["sync", "async", "generator", "async generator"]


def _kind_of(fn: Callable[..., Any]) -> FunctionKind:
    while isinstance(fn, partial):
        fn = fn.func
    function = fn
    if not inspect.isroutine(fn):
        function = getattr(type(fn), "__call__", fn)  # noqa: B004  # the method that a call would run
    # Also `fn` itself: AsyncMock and functions that are marked as coroutine functions.
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(fn):
        return "async"
    if inspect.isasyncgenfunction(function):
        return "async generator"
    return "generator" if inspect.isgeneratorfunction(function) else "sync"


def _replayable(fn: Callable[..., Any], settings: RetrySettings) -> Callable[..., Any]:
    """Return the function that each attempt calls. A streaming gRPC method needs a wrapper."""
    if "grpc" not in sys.modules:
        return fn
    from .grpc_streams import replayable  # noqa: PLC0415  # rarely used

    target: Callable[..., Any] = replayable(fn, settings.max_attempts)
    return target


def _wrap_for(
    fn: Callable[..., Any],
) -> Callable[[RetrySettings, Callable[..., Any]], Callable[..., Any]]:
    kind = _kind_of(fn)
    if kind == "sync":
        return wrap_sync
    if kind == "async":
        return wrap_async
    from .generators import wrap_async_generator, wrap_generator  # noqa: PLC0415  # rarely used

    return wrap_generator if kind == "generator" else wrap_async_generator


def _with_spill(
    settings: RetrySettings, fn: Callable[..., Any], run_loop: Callable[..., Any]
) -> Callable[..., Any]:
    if settings.spill is None:
        return run_loop
    from .spill import with_spill  # noqa: PLC0415  # rarely used

    return with_spill(settings, settings.spill, fn, run_loop)


def _check_awaitable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises TypeError if its result is not awaitable."""

    @wraps(fn)
    def checked(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        if not is_awaitable(result):
            raise TypeError(
                f"acall is for async functions, but {_name(fn)} is sync; use call"
            ) from None
        return result

    return checked


def _check_function(fn: object) -> None:
    if isinstance(fn, Retry):
        raise TypeError(
            f"{fn!r} is already a retry; use it directly, or {type(fn).__name__}.using(...) for "
            "other options"
        )
    if callable(fn):
        return
    hint = "; pass the function, not its result" if hasattr(fn, "__await__") else ""
    if hasattr(fn, "__await__") and hasattr(fn, "close"):
        fn.close()  # otherwise Python warns that it was never awaited, far from here
    kind = type(fn).__name__
    raise TypeError(f"retry is for functions and RetryPolicy objects, not {kind} {fn!r}{hint}")


def _name(fn: Any) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    if type(fn).__module__.startswith("grpc.") and (method := getattr(fn, "_method", None)):
        # A method of a gRPC stub, whose class has a name that says nothing.
        return (method if isinstance(method, str) else method.decode()).strip("/")
    named = fn if isinstance(getattr(fn, "__qualname__", None), str) else type(fn)
    module = named.__module__ or "builtins"  # methods of built-in objects have no module
    return f"{module}.{named.__qualname__}"


def _calling_function() -> str:
    """Return the name of the function that contains a block: the first caller in another file."""
    frame = sys._getframe()
    while frame.f_globals is globals() and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"
