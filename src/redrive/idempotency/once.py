"""`app.once`: a function that runs once for its key. Later callers get the stored result."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from ..core.callables import describe_problem, function_name
from ..core.codec import Codec, codec, from_bytes, to_bytes
from ..core.context import ActiveScope
from ..core.fault import Rules
from ..core.key import KeyLike, KeyOf, Template
from ..core.seconds import Seconds, dated_duration, seconds
from .fingerprint import ArgumentFingerprint, fingerprint
from .lease import (
    BusyWait,
    FreesKey,
    KeyLease,
    acquire,
    acquire_async,
    require_usable,
    rule_for_freeing,
    scope_with_key,
    settle_in_thread,
    store_failure,
)
from .record import KeyId

if TYPE_CHECKING:
    import sqlalchemy

    from .keys import Keys
    from .record import BeginResult

P = ParamSpec("P")
R = TypeVar("R")
KEY_REQUIRED = 'once needs a key: @app.once("billing:{order.user}:{order.id}:charge:v1")'


class TransactionalOnce(Protocol):
    """The type of `@app.once(..., in_transaction=True)`: it removes the connection parameter."""

    def __call__(
        self, fn: Callable[Concatenate[sqlalchemy.Connection, P], R], /
    ) -> Callable[P, R]: ...


class OnceOptions(NamedTuple):
    """The options of `once`, as `App.once` documents them. Immutable."""

    in_transaction: bool
    wait: Seconds | None
    keep: Seconds
    request: Callable[..., object] | None
    free_on: Rules | None


class OnceSpec:
    """The options of `once` for one function, validated. Immutable: anything may share it."""

    __slots__ = ("_arguments", "_codec", "_key", "_request", "frees_key", "keep", "keys", "wait")

    def __init__(
        self,
        keys: Callable[[], Keys],
        key: KeyOf,
        fn: Callable[..., Any],
        options: OnceOptions,
    ) -> None:
        name = function_name(fn)
        in_transaction, wait, keep, request, free_on = options
        signature = inspect.signature(fn)
        parameters = list(signature.parameters.values())
        skipped = 1 if in_transaction else 0  # the connection
        has_connection = len(parameters) >= skipped and all(
            parameter.kind <= parameter.POSITIONAL_OR_KEYWORD for parameter in parameters[:skipped]
        )
        if not has_connection:
            raise TypeError(
                f"{name}: with in_transaction=True its first parameter is the connection; it has "
                "no parameters"
            )
        hints = _type_hints(fn, name)
        self.keys = keys
        self.wait = None if wait is None else seconds("wait", wait)
        self.keep = dated_duration("keep", keep)
        self.frees_key: FreesKey = rule_for_freeing(free_on)
        if isinstance(key, str):
            self._key: Template | Callable[..., KeyLike] = Template.over(key, fn, skip=skipped)
        elif callable(key):
            self._key = key
        else:
            raise TypeError(
                "once takes a key template, or a function of the arguments that returns a key, "
                f"not {key!r}"
            )
        self._arguments = ArgumentFingerprint(signature.replace(parameters=parameters[skipped:]))
        self._request = request
        if request is None:
            self._arguments.prepare(name, hints)
        elif not callable(request):
            raise TypeError(
                "request= must be a function of the arguments that returns the values to "
                f"compare, not {request!r}"
            )
        try:
            self._codec: Codec = codec(hints.get("return", Any))
        except TypeError as error:
            raise TypeError(f"{name}: its result cannot be stored: {error}") from None

    def identify(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /
    ) -> tuple[KeyId, bytes | None]:
        """Return the key of a call and the fingerprint of its request."""
        arguments = self._arguments.bind(args, kwargs)
        if isinstance(self._key, Template):
            key = KeyId.from_template(self._key.key_text(arguments))
        else:
            key = KeyId.of(self._key(*args, **kwargs))
        if self._request is None:
            return key, self._arguments.digest(arguments)
        return key, fingerprint(self._request(*args, **kwargs))

    def dump(self, result: Any, /) -> bytes:
        """Return the stored form of a result. TypeError if it does not have the annotated type."""
        return to_bytes(self._codec.dump(result))

    def load(self, response: bytes | None, /) -> Any:
        """Return a stored result as the annotated type."""
        return None if response is None else self._codec.load(from_bytes(response.decode()))


def _type_hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except NameError as missing:
        raise TypeError(
            f"{name}: its annotations cannot be read: {missing}; import that name in the module "
            "of the function"
        ) from None
    except TypeError as problem:
        message = describe_problem(problem, fn)
        raise TypeError(f"{name}: its annotations cannot be read: {message}") from None


def once_decorator(
    keys: Callable[[], Keys], key: KeyOf, options: OnceOptions, /, *, caller: FrameType
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator `@app.once(key, ...)`.

    Args:
        keys: Returns the keys of the ledger.
        key: Template of the key, or a function of the arguments.
        options: The other options.
        caller: Frame of the code that calls `once`.

    Raises:
        TypeError: `once` is used without a key.
    """
    if _is_decorated_function(key, caller):
        name = function_name(key)
        raise TypeError(f"{KEY_REQUIRED}, not a bare @app.once on {name}")

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(fn):
            raise TypeError(f"{KEY_REQUIRED}; this decorates {type(fn).__name__}, not a function")
        return _wrap(fn, OnceSpec(keys, key, fn, options), in_transaction=options.in_transaction)

    return decorate


def _is_decorated_function(key: object, caller: FrameType) -> bool:
    """Return whether a key is the function below a bare `@app.once`, and not a key function.

    A decorator is called on a line of the function that it decorates. A key function was defined
    before.
    """
    code = getattr(key, "__code__", None)
    if code is None or code.co_name == "<lambda>" or code.co_filename != caller.f_code.co_filename:
        return False
    last = max(line for _, _, line in code.co_lines() if line is not None)
    return bool(code.co_firstlineno <= caller.f_lineno <= last)


def _wrap(fn: Callable[..., Any], spec: OnceSpec, *, in_transaction: bool) -> Callable[..., Any]:
    name = function_name(fn)
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(
            f"{name} is a generator, which has no single result to store; use a function"
        )
    if inspect.iscoroutinefunction(fn):
        if in_transaction:
            raise TypeError(
                f"{name} is async, and its transaction would stay open while other tasks run; "
                "in_transaction=True is for sync functions"
            )
        return _wrap_async(fn, spec)
    return _wrap_transactional(fn, spec) if in_transaction else _wrap_sync(fn, spec)


def _wrap_sync(fn: Callable[..., Any], spec: OnceSpec) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        keys = spec.keys()
        key, request_hash = spec.identify(args, kwargs)
        begun = acquire(keys, key, request_hash, spec.keep, spec.wait)
        if begun.outcome == "completed":
            return spec.load(begun.response)
        lease = KeyLease(keys, key, begun, spec.keep, spec.frees_key)
        entered = ActiveScope(scope_with_key(key))
        try:
            result = fn(*args, **kwargs)
        except BaseException as error:
            lease.fail(error)
            raise
        finally:
            entered.leave()
        lease.complete(result, spec.dump)
        return result

    return wrapper


def _wrap_async(fn: Callable[..., Any], spec: OnceSpec) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        keys = spec.keys()
        key, request_hash = spec.identify(args, kwargs)
        begun = await acquire_async(keys, key, request_hash, spec.keep, spec.wait)
        if begun.outcome == "completed":
            return spec.load(begun.response)
        lease = KeyLease(keys, key, begun, spec.keep, spec.frees_key)
        entered = ActiveScope(scope_with_key(key))
        try:
            result = await fn(*args, **kwargs)
        except BaseException as error:
            await settle_in_thread(keys, lease.fail, error)
            raise
        finally:
            entered.leave()
        await settle_in_thread(keys, lease.complete, result, spec.dump)
        return result

    return wrapper


def _wrap_transactional(fn: Callable[..., Any], spec: OnceSpec) -> Callable[..., Any]:
    signature = inspect.signature(fn)

    def begin_and_run(
        keys: Keys, key: KeyId, request_hash: bytes | None, args: Any, kwargs: Any
    ) -> tuple[BeginResult, Any]:
        failure: Exception | None = None
        try:
            with keys.transaction() as (connection, run):
                begun = keys.begin(key, request_hash, keep=spec.keep, run=run)
                if begun.outcome != "fresh":
                    return begun, None
                entered = ActiveScope(scope_with_key(key))
                try:
                    result = fn(connection, *args, **kwargs)
                except Exception as error:
                    failure = error
                    raise
                finally:
                    entered.leave()
                keys.check_transaction_open(key, run)
                lease = KeyLease(keys, key, begun, spec.keep, spec.frees_key, run)
                lease.complete(result, spec.dump)
        except Exception as error:
            # The rollback has freed the key. A permanent failure is stored in its own transaction.
            if error is failure and not spec.frees_key(error):
                store_failure(keys, key, request_hash, spec.keep, error)
            raise
        return begun, result

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        keys = spec.keys()
        key, request_hash = spec.identify(args, kwargs)
        busy_wait = BusyWait(spec.wait)
        while True:
            result = None
            begun = None if keys.is_likely_new(key) else keys.peek(key, request_hash)
            if begun is None:
                begun, result = begin_and_run(keys, key, request_hash, args, kwargs)
            if begun.outcome == "fresh":
                return result
            # The wait is outside of the transaction: on SQLite, an open one blocks the holder.
            if begun.outcome != "busy" or not (pause := busy_wait.pause()):
                return spec.load(require_usable(begun, key).response)
            sleep(pause)

    parameters = list(signature.parameters.values())[1:]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return wrapper
