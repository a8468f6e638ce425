"""once: a function that runs once for its key; everybody else gets the stored answer, as the annotated type."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from time import sleep
from typing import TYPE_CHECKING, Any

from ..core.codec import Codec, codec, from_bytes, to_bytes
from ..core.context import Entered
from ..core.fault import Rules
from ..core.key import KeyLike, KeyOf, Template
from ..core.seconds import Seconds, lasting, seconds
from .failure import Frees, freeing
from .fingerprint import Arguments, fingerprint
from .hold import Hold, Patience, aacquire, acquire, checked, scope_of, settled, store_failure
from .record import Ident

if TYPE_CHECKING:
    from .keys import Keys
    from .record import Begun


class Terms:
    """What `once` was told of one function, checked when it is decorated. Immutable: anything may share it."""

    __slots__ = ("_arguments", "_key", "_request", "answer", "frees", "keep", "keys", "wait")

    def __init__(
        self, keys: Callable[[], Keys], key: KeyOf, fn: Callable[..., Any], *, skip: int, wait: Seconds | None, keep: Seconds,
        request: Callable[..., object] | None, free_on: Rules | None,
    ) -> None:  # fmt: skip
        name = getattr(fn, "__qualname__", repr(fn))
        if not callable(fn):
            raise TypeError(
                f'once takes its key first; write @app.once("billing:{{user}}:{{id}}:charge:v1"), since {name} is not a function'
            )
        signature = inspect.signature(fn)
        parameters = list(signature.parameters.values())
        if len(parameters) < skip or any(each.kind > each.POSITIONAL_OR_KEYWORD for each in parameters[:skip]):
            raise TypeError(f"{name}: with in_transaction=True its first parameter is the connection; it has no parameters")
        hints = _hints(fn, name)
        self.keys = keys
        self.wait = None if wait is None else seconds("wait", wait)
        self.keep = lasting("keep", keep)
        self.frees: Frees = freeing(free_on)
        if isinstance(key, str):
            self._key: Template | Callable[..., KeyLike] = Template.over(key, fn, skip=skip)
        elif callable(key):
            self._key = key
        else:
            raise TypeError(f"once takes a key template, or a function of the arguments that returns a key, not {key!r}")
        self._arguments = Arguments(signature.replace(parameters=parameters[skip:]))
        self._request = request
        if request is None:
            self._arguments.compare(name, hints)
        elif not callable(request):
            raise TypeError(f"request= must be a function of the arguments that returns the values to compare, not {request!r}")
        try:
            self.answer: Codec = codec(hints.get("return", Any))
        except TypeError as refusal:
            raise TypeError(f"{name}: its result cannot be stored: {refusal}") from None

    def asked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> tuple[Ident, bytes | None]:
        """The key of a call, and the fingerprint of its request."""
        arguments = self._arguments.bound(args, kwargs)
        if isinstance(self._key, Template):
            ident = Ident.read(self._key.filled(arguments))
        else:
            ident = Ident.of(self._key(*args, **kwargs))
        request = self._request
        return ident, self._arguments.digest(arguments) if request is None else fingerprint(request(*args, **kwargs))

    def stored(self, result: Any, /) -> bytes:
        """The answer as it is stored. TypeError where it is not what the function's annotation says."""
        return to_bytes(self.answer.dump(result))

    def loaded(self, response: bytes | None, /) -> Any:
        """The answer again, as the annotated type."""
        return None if response is None else self.answer.load(from_bytes(response.decode()))


def _hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except NameError as missing:
        raise TypeError(
            f"{name}: its annotations cannot be read: {missing}; import that name in the module of the function"
        ) from None


def once(fn: Callable[..., Any], terms: Terms, /, *, in_transaction: bool) -> Callable[..., Any]:
    """The wrapper of a function, of its colour."""
    name = getattr(fn, "__qualname__", repr(fn))
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{name} is a generator, which has no single result to store; use a function")
    if inspect.iscoroutinefunction(fn):
        if in_transaction:
            raise TypeError(
                f"{name} is async, and its transaction would stay open while other tasks run; "
                "in_transaction=True is for sync functions"
            )
        return _coroutine(fn, terms)
    return _transactional(fn, terms) if in_transaction else _plain(fn, terms)


def _plain(fn: Callable[..., Any], terms: Terms) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        keys = terms.keys()
        key, digest = terms.asked(args, kwargs)
        begun = acquire(keys, key, digest, terms.keep, terms.wait)
        if begun.outcome == "completed":
            return terms.loaded(begun.response)
        hold = Hold(keys, key, begun, terms.keep, terms.frees)
        entered = Entered(scope_of(key))
        try:
            result = fn(*args, **kwargs)
        except BaseException as error:
            hold.failed(error)
            raise
        finally:
            entered.leave()
        hold.answer(result, terms.stored)
        return result

    return wrapper


def _coroutine(fn: Callable[..., Any], terms: Terms) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        keys = terms.keys()
        key, digest = terms.asked(args, kwargs)
        begun = await aacquire(keys, key, digest, terms.keep, terms.wait)
        if begun.outcome == "completed":
            return terms.loaded(begun.response)
        hold = Hold(keys, key, begun, terms.keep, terms.frees)
        entered = Entered(scope_of(key))
        try:
            result = await fn(*args, **kwargs)
        except BaseException as error:
            await settled(keys, hold.failed, error)
            raise
        finally:
            entered.leave()
        await settled(keys, hold.answer, result, terms.stored)
        return result

    return wrapper


def _transactional(fn: Callable[..., Any], terms: Terms) -> Callable[..., Any]:
    signature = inspect.signature(fn)

    def begun_and_done(keys: Keys, key: Ident, digest: bytes | None, args: Any, kwargs: Any) -> tuple[Begun, Any]:
        failure: Exception | None = None
        try:
            with keys.transaction() as (connection, run):
                begun = keys.begin(key, digest, keep=terms.keep, run=run)
                if begun.outcome != "fresh":
                    return begun, None
                entered = Entered(scope_of(key))
                try:
                    result = fn(connection, *args, **kwargs)
                except Exception as error:
                    failure = error
                    raise
                finally:
                    entered.leave()
                keys.still_open(key, run)
                Hold(keys, key, begun, terms.keep, terms.frees, run).answer(result, terms.stored)
        except Exception as error:
            # Rolled back, and the key with it: it is free already. A failure for good is written by itself.
            if error is failure and not terms.frees(error):
                store_failure(keys, key, digest, terms.keep, error)
            raise
        return begun, result

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        keys = terms.keys()
        key, digest = terms.asked(args, kwargs)
        patience = Patience(terms.wait)
        while True:
            result = None
            begun = None if keys.likely_new(key) else keys.look(key, digest)
            if begun is None:
                begun, result = begun_and_done(keys, key, digest, args, kwargs)
            if begun.outcome == "fresh":
                return result
            # Outside of the transaction: on SQLite nobody else could finish as long as it is open.
            if begun.outcome != "busy" or not (pause := patience.pause()):
                return terms.loaded(checked(begun, key).response)
            sleep(pause)

    wrapper.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    return wrapper
