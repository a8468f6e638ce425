"""Sender: any object whose one method sends what is pending; and a drop-in for it that sends rejected items again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial, wraps
from typing import Any, TypeVar

from ..core.amount import amount
from ..core.seconds import whole
from ..engine.retry import RetryLike
from ..journal.bus import emit, wanted
from ..journal.log import INFO
from .call import Work
from .drop_in import drop_in, retries
from .items import Items, SparingItems
from .left import Leaves
from .loop import coroutine, plain
from .report import Report
from .settings import DEFAULT, Settings, Terms

S = TypeVar("S")


def retrying(
    sender: S, /, *, items: Items, retry: RetryLike | None = None, item_attempts: int | None = None,
    settings: Settings | None = None, method: str = "send_pending", ids: Callable[..., Iterable[str]] | None = None,
    spill: Leaves | None = None, enabled: bool = True, operation: str | None = None,
    to_report: Callable[[Any], Report] | None = None, from_report: Callable[[Report, Any], Any] | None = None,
    split: str | None = None,
) -> S:  # fmt: skip
    """Wrap a sender so that rejected items are sent again.

    The result is a drop-in for `sender`. All methods except `method` are those of the sender.

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
            pending.
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
    told = DEFAULT if settings is None else settings
    if not isinstance(told, Settings):
        raise TypeError(f"settings= is a batch.Settings, not {type(told).__name__}: {told!r}")
    attempts = told.max_per_item_attempts if item_attempts is None else whole("item_attempts", item_attempts)
    terms = Terms.of(told, retry, attempts)
    send = _method(sender, method)
    _check(items, ids, spill)
    _check_mapping(to_report, from_report)
    if split is not None:
        _check_split(split, send, items, terms)
    name = f"{type(sender).__name__}.{method}" if operation is None else operation
    if not (enabled and told.enabled):
        if wanted(INFO):
            emit("batch_disabled", {"operation": name})
        return sender
    work = Work(name, terms, items, _shown(terms), to_report, from_report, split)
    return drop_in(sender, method, _body(work, ids, spill, send, method))  # type: ignore[no-any-return]  # as good as one


def _body(
    work: Work, ids: Callable[..., Iterable[str]] | None, spill: Leaves | None, send: Callable[..., Any], method: str
) -> Callable[..., Any]:
    """What the method is instead. The sender's own is looked up at each call, as ever."""
    if _is_async(send):

        async def asend(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return await coroutine(work, ids, spill, getattr(self._redrive_sender, method), *args, **kwargs)

        return _named(asend, send)

    def psend(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return plain(work, ids, spill, getattr(self._redrive_sender, method), *args, **kwargs)

    return _named(psend, send)


def _named(body: Callable[..., Any], send: Callable[..., Any]) -> Callable[..., Any]:
    named = wraps(send)(body)
    named.__wrapped__ = getattr(send, "__func__", send)  # the function has `self`, as ours does
    return named


def _method(sender: object, method: str) -> Callable[..., Any]:
    if isinstance(sender, type):
        raise TypeError(f"retrying takes a sender, not a class: {sender.__name__}(...) first")
    if retries(sender, method):
        raise TypeError(f"{sender!r} retries {method} already: two layers around one sender would multiply")
    found = getattr(sender, method, None)
    if callable(found):
        return found  # type: ignore[no-any-return]  # whatever it is, it can be called
    known = [name for name in dir(sender) if not name.startswith("_") and callable(getattr(sender, name, None))]
    near = get_close_matches(method, known, 1) or known[:5]
    hint = f" (it has {', '.join(near)})" if near else ""
    fix = 'method="__call__" for a function' if inspect.isroutine(sender) else "method= with the name of the method that sends"
    raise TypeError(f"{type(sender).__name__} has no method {method!r}{hint}; pass {fix}")


def _check(items: object, ids: object, spill: object) -> None:
    if not isinstance(items, Items) or isinstance(items, type):
        missing = [name for name in ("increment", "give_up", "pending") if not hasattr(items, name)]
        why = f"it has no {', '.join(missing)}" if missing else "that is a class"
        raise TypeError(
            f"items= counts rejections: app.items(name), TableItems(...), or a class of your own; not {items!r}: {why}"
        )
    if ids is not None and not callable(ids):
        raise TypeError(f"ids= is a function of the call's arguments that gives item ids, not {ids!r}")
    if spill is not None and not (hasattr(spill, "using") and hasattr(spill, "submit")):
        raise TypeError(f"spill= is a durable command, as @app.command makes one, not {spill!r}")


def _check_mapping(to_report: object, from_report: object) -> None:
    if to_report is not None and not callable(to_report):
        raise TypeError(f"to_report= is a function from a result of the sender to a Report, not {to_report!r}")
    if from_report is not None and (to_report is None or not callable(from_report)):
        raise TypeError(
            f"from_report= is a function of a Report and the sender's last result; it needs to_report=: {from_report!r}"
        )
    _check_takes("to_report", to_report, "the sender's result")
    _check_takes("from_report", from_report, "the Report", "the sender's last result")


def _check_takes(name: str, function: Any, *arguments: str) -> None:
    """Check the number of arguments here: at its first use, items have been sent already."""
    if function is None:
        return
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # a builtin without a signature
    try:
        signature.bind(*arguments)
    except TypeError:
        takes = amount(len(arguments), "argument")
        raise TypeError(f"{name}= must take {takes} ({', '.join(arguments)}), not {signature}: {function!r}") from None


def _check_split(split: object, send: Callable[..., Any], items: Items, terms: Terms) -> None:
    if not isinstance(split, str):
        raise TypeError(f"split= is the name of a keyword argument that takes the ids to send, such as 'only', not {split!r}")
    known = inspect.signature(send).parameters.values()
    by_name = [each.name for each in known if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    if split not in by_name and not any(each.kind is each.VAR_KEYWORD for each in known):
        raise TypeError(f"split={split!r}: the method has no such keyword argument (it has {', '.join(by_name) or 'none'})")
    if not isinstance(items, SparingItems) or not getattr(items, "counts_uncharged", True) or not terms.uncharged:
        raise TypeError(
            "split= needs TableItems(uncharged=...) or a store with spare_many, and max_uncharged_passes above 0; "
            "otherwise good items lose attempts for the bad ones"
        )


def _is_async(send: Callable[..., Any]) -> bool:
    while isinstance(send, partial):
        send = send.func
    return inspect.iscoroutinefunction(send) or inspect.iscoroutinefunction(getattr(type(send), "__call__", None))  # noqa: B004  # what it is


def _shown(terms: Terms) -> dict[str, Any]:
    waits = {"backoff_base": terms.base, "cap": terms.cap}
    return {"max_retries": terms.retries, "item_attempts": terms.item_attempts, **waits, "uncharged": terms.uncharged}
