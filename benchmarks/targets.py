"""What Redrive promises, and whether a run bears it out."""

from collections.abc import Callable
from typing import Literal

from benchmarks.interval import Interval, number
from benchmarks.results import YARDSTICK, Results
from benchmarks.rounds import Cost
from benchmarks.subject import DEADLINE, ENFORCED, GUARD
from benchmarks.target import MeasuredTarget

OURS = "redrive"
IMPORT = "import redrive"
FROM_IMPORT = "from redrive import retry, RetryPolicy"


def _ratio(cost: Cost | None) -> Interval | None:
    return cost.ratio if cost else None


def _success(kind: Literal["sync", "async"], form: str) -> Callable[[Results], Interval | None]:
    return lambda results: _ratio(results.succeeded(kind, OURS, form))


def _retry(kind: Literal["sync", "async"]) -> Callable[[Results], Interval | None]:
    return lambda results: _ratio(results.retried(kind, OURS, GUARD))


def _beside(read: Callable[[Results, str, str], Cost | None], *forms: tuple[str, str]) -> Callable[[Results], str]:
    """Some peers' figures on the same path."""

    def text(results: Results) -> str:
        found = [(library, form, read(results, library, form)) for library, form in forms]
        return ", ".join(f"{library} {form} {number(c.ratio.median)}×" for library, form, c in found if c)

    return text


def _worst(figure: Callable[[Results], list[float]]) -> Callable[[Results], Interval | None]:
    def read(results: Results) -> Interval | None:
        figures = figure(results)
        return Interval.exactly(max(figures)) if figures else None

    return read


def _each(attribute: str) -> Callable[[Results], str]:
    """The figure of each well-known peer's first form, of sync and async the worse."""

    def text(results: Results) -> str:
        found = []
        for library in ("nopanic", "stamina", "tenacity", "redress"):
            figures = [getattr(remains, attribute) for remains in results.first_left(library)]
            if figures:
                found.append(f"{library} {number(max(figures))}")
        return ", ".join(found)

    return text


def _imported(statement: str) -> Callable[[Results], Interval | None]:
    return lambda results: results.imports[statement].ratio if statement in results.imports else None


def _imports(results: Results) -> str:
    ours = [s for s in (IMPORT, FROM_IMPORT) if s in results.imports]
    shown = [*ours, *(s for s in (YARDSTICK, "import nopanic") if s in results.imports)]
    return ", ".join(f"{s} {number(results.imports[s].milliseconds.median)} ms" for s in shown)


def _sync_success(results: Results, library: str, form: str) -> Cost | None:
    return results.succeeded("sync", library, form)


def _async_success(results: Results, library: str, form: str) -> Cost | None:
    return results.succeeded("async", library, form)


def _sync_retry(results: Results, library: str, form: str) -> Cost | None:
    return results.retried("sync", library, form)


_bare, _budget, _limit = ("nopanic", "@retry"), ("nopanic", "@retry + budget"), ("nopanic", "@retry + timeout")

TARGETS = (
    MeasuredTarget(
        "success, sync, nested guard + shared budget",
        "≤",
        5.5,
        "×",
        _success("sync", GUARD),
        _beside(_sync_success, _bare, _budget, ("stamina", "@retry"), ("tenacity", "@retry")),
    ),
    MeasuredTarget(
        "success, sync, deadline published to inner layers",
        "≤",
        13,
        "×",
        _success("sync", DEADLINE),
        _beside(_sync_success, ("floor", "loop + deadline in a ContextVar"), ("nopanic", "@retry + timeout (thread)")),
    ),
    MeasuredTarget(
        "success, async, nested guard + shared budget",
        "≤",
        4.4,
        "×",
        _success("async", GUARD),
        _beside(_async_success, _bare, _budget, ("stamina", "@retry"), ("tenacity", "@retry")),
    ),
    MeasuredTarget(
        "success, async, attempt time-out",
        "≤",
        40,
        "×",
        _success("async", ENFORCED),
        _beside(_async_success, _limit, ("redress", "@retry + attempt timeout"), ("floor", "asyncio.timeout")),
    ),
    MeasuredTarget(
        "machinery of one retry, sync, no sleep",
        "≤",
        3.5,
        "× by hand",
        _retry("sync"),
        _beside(_sync_retry, _bare, _budget, ("stamina", "@retry"), ("tenacity", "@retry")),
    ),
    MeasuredTarget(IMPORT, "≤", 1, "× tenacity", _imported(IMPORT), _imports),
    MeasuredTarget(FROM_IMPORT, "≤", 1, "× tenacity", _imported(FROM_IMPORT), _imports),
    MeasuredTarget(
        "objects left in reference cycles after a failed call",
        "≤",
        0,
        "",
        _worst(lambda results: [remains.cycles for remains in results.left(OURS)]),
        _each("cycles"),
    ),
    MeasuredTarget(
        "frames added to a traceback",
        "≤",
        4,
        "",
        _worst(lambda results: [remains.added for remains in results.left(OURS)]),
        _each("added"),
    ),
    MeasuredTarget(
        "calls with three nested layers × 3 attempts",
        "≤",
        3,
        "",
        _worst(lambda results: [remains.nested for remains in results.left(OURS)]),
        _each("nested"),
    ),
)
