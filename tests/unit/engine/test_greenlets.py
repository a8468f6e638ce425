"""Sync code that is switched during an attempt, as greenlets are. SQLAlchemy runs sync code in async programs this way.

Shown with threads that share an identity and have copies of one context, so no greenlet library is needed.
"""

from __future__ import annotations

import contextvars
import itertools
import threading
from collections.abc import Iterator

import pytest

from redrive import RetryPolicy, journal, retry
from redrive.backoff import Backoff
from redrive.core import context
from redrive.engine import fastpath, loop

pytestmark = pytest.mark.req("C-8")


class Switched:
    """A call that stays in its attempt until it is released."""

    def __init__(self, limit: float, *, failures: int = 0, backoff: Backoff | None = None) -> None:
        self._go = threading.Event()
        self.calls = 0
        there = threading.Event()

        def work() -> None:
            self.calls += 1
            there.set()
            self._go.wait(30)
            if self.calls <= failures:
                raise ConnectionError

        layer = retry(RetryPolicy(max_attempts=2, backoff_base=0, jitter=0), backoff=backoff, attempt_timeout=limit)
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(layer.call, work))
        self._thread.start()
        assert there.wait(30)

    def end(self) -> None:
        self._go.set()
        self._thread.join(30)


@pytest.fixture(params=["no sink", "sink"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both loops. A sink for successes selects the reference loop."""
    me = threading.get_ident()
    for module in (context, loop, fastpath):
        monkeypatch.setattr(module, "get_ident", lambda: me)
    unsubscribe = journal.subscribe(lambda record: None, every=True) if request.param == "sink" else None
    retry(attempt_timeout=5).call(lambda: None)  # the slot that all of them share
    yield
    if unsubscribe is not None:
        unsubscribe()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.usefixtures("path")
def test_greenlets_leave_no_scope_in_any_order(order: tuple[int, ...]) -> None:
    assert context.scope_around() is None
    calls = [Switched(5.0 + number) for number in range(3)]
    for number in order:
        calls[number].end()
    assert context.scope_around() is None


@pytest.mark.usefixtures("path")
def test_a_retry_after_the_scope_around_has_ended_leaves_no_scope() -> None:
    outer, inner = Switched(5.0), Switched(6.0, failures=1)
    outer.end()
    inner.end()
    assert inner.calls == 2
    assert context.scope_around() is None


@pytest.mark.usefixtures("path")
def test_a_scope_that_ends_during_a_backoff_is_not_restored() -> None:
    outer = Switched(5.0)

    def end_outer(_attempt: int, _draw: float) -> float:
        outer.end()
        return 0.0

    inner = Switched(6.0, failures=1, backoff=end_outer)
    inner.end()
    assert inner.calls == 2
    assert context.scope_around() is None
