"""retrying: wraps any object with a method that sends pending items, and resends rejected ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial, wraps
from typing import Any, TypeVar

from ..core.callables import function_name, signature_text
from ..core.seconds import whole_number
from ..core.text import pluralise
from ..engine.retry import RetryLike
from ..journal.bus import emit, is_wanted
from ..journal.sinks.logging import INFO
from .call import BatchSpec, send_async, send_sync
from .proxy import is_retrying, make_proxy
from .report import Report
from .settings import DEFAULT_SETTINGS, BatchTerms, Settings
from .spill import SpillCommand
from .store.protocol import Items, SparingItems

S = TypeVar("S")
MAX_METHODS_NAMED = 5
"""Number of methods that an error suggests."""


def retrying(
    sender: S,
    /,
    *,
    items: Items,
    retry: RetryLike | None = None,
    item_attempts: int | None = None,
    settings: Settings | None = None,
    method: str = "send_pending",
    ids: Callable[..., Iterable[str]] | None = None,
    spill: SpillCommand | None = None,
    enabled: bool = True,
    operation: str | None = None,
    to_report: Callable[[Any], Report] | None = None,
    from_report: Callable[[Report, Any], Any] | None = None,
    split: str | None = None,
) -> S:
    """Wrap a sender so that rejected items are sent again.

    The result is a drop-in for `sender`. All methods except `method` are those of the sender.
    Errors of the sender are raised. In a pass after the first one, the attribute `redrive_report`
    of the error is the `Report` of the earlier passes.

    Args:
        sender: The object that sends. Sync or async.
        items: Store that counts rejections: `app.items(name)`, a `TableItems`, or your own class.
        retry: Policy of the passes of one call. Default: 4 passes, with waits of 2, 4 and 8 s and
            no jitter.
        item_attempts: Rejections after which an item is given up, counted over all calls and
            processes. Default: 5.
        settings: All of these options from configuration, instead of `retry` and `item_attempts`.
        method: Name of the method that sends and returns a `Report`.
        ids: Function of the call's arguments that returns the items that the report must contain.
            Default: any items.
        spill: Command that is enqueued with the arguments of the call while items are still
            pending, also if a pass after the first one raises.
        enabled: If False, the sender is returned unchanged.
        operation: Name in log records and progress bars. Default: class and method of the sender.
        to_report: Function that turns the result of the method into a `Report`, if the sender has
            its own report class.
        from_report: Function of the `Report` of all passes and the last result that returns the
            caller's result. Default: the `Report`. A first pass that succeeds is returned
            unchanged.
        split: Keyword argument of the method that takes the ids to send. A batch that is rejected
            as a whole is then halved until the bad items are found. Default: such a rejection
            counts for every item.

    Returns:
        The wrapped sender.

    Raises:
        TypeError: The sender has no such method, or options contradict each other.
    """
    if settings is not None and (retry is not None or item_attempts is not None):
        raise TypeError("pass settings=, or retry= and item_attempts=, not both")
    settings = DEFAULT_SETTINGS if settings is None else settings
    if not isinstance(settings, Settings):
        raise TypeError(
            f"settings= is a batch.Settings, not {type(settings).__name__}: {settings!r}"
        )
    max_attempts = settings.max_per_item_attempts if item_attempts is None else item_attempts
    terms = BatchTerms.combine(settings, retry, whole_number("item_attempts", max_attempts))
    send = _sending_method(sender, method)
    _check_options(items, ids, spill)
    _check_mapping(to_report, from_report)
    if split is not None:
        _check_split(split, send, items, terms)
    name = f"{type(sender).__name__}.{method}" if operation is None else operation
    if not (enabled and settings.enabled):
        if is_wanted(INFO):
            emit("batch_disabled", {"operation": name})
        return sender
    spec = BatchSpec(
        operation=name,
        terms=terms,
        items=items,
        log_fields=_log_fields(terms),
        ids=ids,
        spill=spill,
        to_report=to_report,
        from_report=from_report,
        split_argument=split,
    )
    proxy: S = make_proxy(sender, method, _retrying_method(spec, send, method))
    return proxy


def _retrying_method(spec: BatchSpec, send: Callable[..., Any], method: str) -> Callable[..., Any]:
    """Return the method of the proxy. It looks up the sender's own method at each call."""
    if _is_async(send):

        async def send_pending_async(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            own_method = getattr(self._redrive_sender, method)
            return await send_async(spec, own_method, *args, **kwargs)

        return _with_name_of(send, send_pending_async)

    def send_pending(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return send_sync(spec, getattr(self._redrive_sender, method), *args, **kwargs)

    return _with_name_of(send, send_pending)


def _with_name_of(send: Callable[..., Any], body: Callable[..., Any]) -> Callable[..., Any]:
    wrapped = wraps(send)(body)
    wrapped.__wrapped__ = getattr(send, "__func__", send)  # its signature has `self`, as ours has
    return wrapped


def _sending_method(sender: object, method: str) -> Callable[..., Any]:
    if isinstance(sender, type):
        raise TypeError(f"retrying takes a sender, not a class: {sender.__name__}(...) first")
    if is_retrying(sender, method):
        raise TypeError(
            f"{sender!r} retries {method} already: two layers around one sender would multiply"
        )
    send = getattr(sender, method, None)
    if callable(send):
        return send  # type: ignore[no-any-return]  # a callable of any type
    methods = [
        name
        for name in dir(sender)
        if not name.startswith("_") and callable(getattr(sender, name, None))
    ]
    similar = get_close_matches(method, methods, 1) or methods[:MAX_METHODS_NAMED]
    hint = f" (it has {', '.join(similar)})" if similar else ""
    fix = "method= with the name of the method that sends"
    if inspect.isroutine(sender):
        fix = 'method="__call__" for a function'
    raise TypeError(f"{type(sender).__name__} has no method {method!r}{hint}; pass {fix}")


def _check_options(items: object, ids: object, spill: object) -> None:
    if not isinstance(items, Items) or isinstance(items, type):
        missing = [name for name in ("increment", "give_up", "pending") if not hasattr(items, name)]
        problem = f"it has no {', '.join(missing)}" if missing else "that is a class"
        raise TypeError(
            "items= counts rejections: app.items(name), TableItems(...), or a class of your own; "
            f"not {items!r}: {problem}"
        )
    if ids is not None and not callable(ids):
        raise TypeError(
            f"ids= is a function of the call's arguments that gives item ids, not {ids!r}"
        )
    if spill is not None and not (hasattr(spill, "using") and hasattr(spill, "submit")):
        raise TypeError(f"spill= is a durable command, as @app.command makes one, not {spill!r}")


def _check_mapping(to_report: object, from_report: object) -> None:
    if to_report is not None and not callable(to_report):
        raise TypeError(
            f"to_report= is a function from a result of the sender to a Report, not {to_report!r}"
        )
    if from_report is not None and (to_report is None or not callable(from_report)):
        raise TypeError(
            "from_report= is a function of a Report and the sender's last result; it needs "
            f"to_report=: {from_report!r}"
        )
    _check_takes("to_report", to_report, "the sender's result")
    _check_takes("from_report", from_report, "the Report", "the sender's last result")


def _check_takes(name: str, function: Any, *arguments: str) -> None:
    """Check the number of arguments before anything is sent."""
    if function is None:
        return
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # A builtin has no signature.
    try:
        signature.bind(*arguments)
    except TypeError:
        takes = pluralise(len(arguments), "argument")
        raise TypeError(
            f"{name}= must take {takes} ({', '.join(arguments)}), not "
            f"{signature_text(function)}: {function_name(function)}"
        ) from None


def _check_split(split: object, send: Callable[..., Any], items: Items, terms: BatchTerms) -> None:
    if not isinstance(split, str):
        raise TypeError(
            "split= is the name of a keyword argument that takes the ids to send, such as "
            f"'only', not {split!r}"
        )
    parameters = inspect.signature(send).parameters.values()
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [parameter.name for parameter in parameters if parameter.kind in by_keyword]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    if split not in names and not takes_any:
        raise TypeError(
            f"split={split!r}: the method has no such keyword argument (it has "
            f"{', '.join(names) or 'none'})"
        )
    counts_uncharged = isinstance(items, SparingItems) and getattr(items, "counts_uncharged", True)
    if not counts_uncharged or not terms.max_uncharged:
        raise TypeError(
            "split= needs TableItems(uncharged=...) or a store with spare_many, and "
            "max_uncharged_passes above 0; "
            "otherwise good items lose attempts for the bad ones"
        )


def _is_async(send: Callable[..., Any]) -> bool:
    while isinstance(send, partial):
        send = send.func
    call = getattr(type(send), "__call__", None)  # noqa: B004  # the method itself, not whether it exists
    return inspect.iscoroutinefunction(send) or inspect.iscoroutinefunction(call)


def _log_fields(terms: BatchTerms) -> dict[str, Any]:
    return {
        "max_retries": terms.retries,
        "item_attempts": terms.item_attempts,
        "backoff_base": terms.backoff_base,
        "cap": terms.backoff_cap,
        "uncharged": terms.max_uncharged,
    }
