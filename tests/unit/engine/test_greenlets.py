"""Sync code that is switched during an attempt, as greenlets are. SQLAlchemy runs sync code in async programs this way.

Shown with threads that share an identity and have copies of one context, so no greenlet library is needed.
"""

from __future__ import annotations

import contextvars
import itertools
import threading

import pytest

from redrive import RetryPolicy, retry
from redrive.core import context
from redrive.engine import fastpath, loop

pytestmark = pytest.mark.req("C-8")


class Switched:
    """A call that stays in its attempt until it is released."""

    def __init__(self, limit: float) -> None:
        self._go = threading.Event()
        there = threading.Event()

        def work() -> None:
            there.set()
            self._go.wait(30)

        layer = retry(RetryPolicy(max_attempts=2), attempt_timeout=limit)
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(layer.call, work))
        self._thread.start()
        assert there.wait(30)

    def end(self) -> None:
        self._go.set()
        self._thread.join(30)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_greenlets_leave_no_scope_in_any_order(order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    me = threading.get_ident()
    for module in (context, loop, fastpath):
        monkeypatch.setattr(module, "get_ident", lambda: me)
    retry(attempt_timeout=5).call(lambda: None)  # the slot that all of them share
    assert context.scope_around() is None
    calls = [Switched(5.0 + number) for number in range(3)]
    for number in order:
        calls[number].end()
    assert context.scope_around() is None
