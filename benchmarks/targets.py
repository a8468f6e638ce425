"""Targets for the overhead of a call."""

from collections.abc import Callable
from typing import Literal

from benchmarks.interval import Interval, number
from benchmarks.results import REFERENCE, Results
from benchmarks.rounds import Cost
from benchmarks.subject import DEADLINE, ENFORCED, GUARD
from benchmarks.target import MeasuredTarget

OURS = "redrive"
IMPORT = "import redrive"
FROM_IMPORT = "from redrive import retry, RetryPolicy"


def _ratio(cost: Cost | None) -> Interval | None:
    return cost.ratio if cost else None


def _success(kind: Literal["sync", "async"], form: str) -> Callable[[Results], Interval | None]:
    return lambda results: _ratio(results.success_cost(kind, OURS, form))


def _retry(kind: Literal["sync", "async"]) -> Callable[[Results], Interval | None]:
    return lambda results: _ratio(results.retry_cost(kind, OURS, GUARD))


def _list_peers(read: Callable[[Results, str, str], Cost | None], *forms: tuple[str, str]) -> Callable[[Results], str]:
    """Describe the figures of other libraries on the same path."""

    def text(results: Results) -> str:
        costs = [(library, form, read(results, library, form)) for library, form in forms]
        return ", ".join(f"{library} {form} {number(c.ratio.median)}×" for library, form, c in costs if c)

    return text


def _worst(figure: Callable[[Results], list[float]]) -> Callable[[Results], Interval | None]:
    def read(results: Results) -> Interval | None:
        figures = figure(results)
        return Interval.exactly(max(figures)) if figures else None

    return read


def _list_worst(attribute: str) -> Callable[[Results], str]:
    """Describe the worse figure of sync and async, for well-known libraries."""

    def text(results: Results) -> str:
        parts = []
        for library in ("nopanic", "stamina", "tenacity", "redress"):
            figures = [getattr(failure, attribute) for failure in results.first_failures_of(library)]
            if figures:
                parts.append(f"{library} {number(max(figures))}")
        return ", ".join(parts)

    return text


def _import_ratio(statement: str) -> Callable[[Results], Interval | None]:
    return lambda results: results.imports[statement].ratio if statement in results.imports else None


def _imports(results: Results) -> str:
    ours = [s for s in (IMPORT, FROM_IMPORT) if s in results.imports]
    statements = [*ours, *(s for s in (REFERENCE, "import nopanic") if s in results.imports)]
    return ", ".join(f"{s} {number(results.imports[s].milliseconds.median)} ms" for s in statements)


def _sync_success(results: Results, library: str, form: str) -> Cost | None:
    return results.success_cost("sync", library, form)


def _async_success(results: Results, library: str, form: str) -> Cost | None:
    return results.success_cost("async", library, form)


def _async_retry(results: Results, library: str, form: str) -> Cost | None:
    return results.retry_cost("async", library, form)


def _sync_retry(results: Results, library: str, form: str) -> Cost | None:
    return results.retry_cost("sync", library, form)


_bare, _budget, _limit = ("nopanic", "@retry"), ("nopanic", "@retry + budget"), ("nopanic", "@retry + timeout")

TARGETS = (
    MeasuredTarget(
        "success, sync, nested guard + shared budget",
        "≤",
        5.5,
        "×",
        _success("sync", GUARD),
        _list_peers(_sync_success, _bare, _budget, ("stamina", "@retry"), ("tenacity", "@retry")),
    ),
    MeasuredTarget(
        "success, sync, deadline published to inner layers",
        "≤",
        13,
        "×",
        _success("sync", DEADLINE),
        _list_peers(_sync_success, ("floor", "loop + deadline in a ContextVar"), ("nopanic", "@retry + timeout (thread)")),
    ),
    MeasuredTarget(
        "success, async, nested guard + shared budget",
        "≤",
        4.4,
        "×",
        _success("async", GUARD),
        _list_peers(_async_success, _bare, _budget, ("stamina", "@retry"), ("tenacity", "@retry")),
    ),
    MeasuredTarget(
        "success, async, attempt timeout",
        "≤",
        40,
        "×",
        _success("async", ENFORCED),
        _list_peers(_async_success, _limit, ("redress", "@retry + attempt timeout"), ("floor", "asyncio.timeout")),
    ),
    MeasuredTarget(
        "overhead of one retry, sync, no sleep",
        "≤",
        3,
        "× try/except",
        _retry("sync"),
        _list_peers(_sync_retry, _bare, _budget, ("stamina", "@retry"), ("tenacity", "@retry")),
    ),
    MeasuredTarget(
        "overhead of one retry, async, no sleep",
        "≤",
        4.5,  # on CPython 3.11, whose `current_task` costs a system call; 3.5 from 3.12 on
        "× try/except",
        _retry("async"),
        _list_peers(_async_retry, _bare, _budget, ("stamina", "@retry"), ("tenacity", "@retry")),
    ),
    MeasuredTarget(IMPORT, "≤", 1, "× tenacity", _import_ratio(IMPORT), _imports),
    MeasuredTarget(FROM_IMPORT, "≤", 1, "× tenacity", _import_ratio(FROM_IMPORT), _imports),
    MeasuredTarget(
        "objects left in reference cycles after a failed call",
        "≤",
        0,
        "",
        _worst(lambda results: [failure.cycles for failure in results.failures_of(OURS)]),
        _list_worst("cycles"),
    ),
    MeasuredTarget(
        "frames added to a traceback",
        "≤",
        4,
        "",
        _worst(lambda results: [failure.added for failure in results.failures_of(OURS)]),
        _list_worst("added"),
    ),
    MeasuredTarget(
        "calls with three nested layers × 3 attempts",
        "≤",
        3,
        "",
        _worst(lambda results: [failure.nested for failure in results.failures_of(OURS)]),
        _list_worst("nested"),
    ),
)
