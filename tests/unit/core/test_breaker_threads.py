"""A breaker that threads share."""

from __future__ import annotations

import sys
import threading

import pytest

from redrive import Breaker
from redrive.core import breaker as module


def open_breaker(now: float = 100.0, open_for: float = 10) -> Breaker:
    breaker = Breaker(min_calls=1, open_for=open_for)
    assert breaker.record(True, now)
    return breaker


@pytest.mark.req("C-12")
def test_only_one_of_many_threads_makes_the_probe() -> None:
    breaker = open_breaker(100.0)
    through: list[float] = []
    at_once = threading.Barrier(8)

    def knock() -> None:
        at_once.wait()
        through.append(breaker.allow(200.0))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=knock) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert sorted(through) == [0.0] + [10.0] * 7


@pytest.mark.req("C-12")
def test_a_thread_that_waited_for_the_lock_passes_a_closed_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = open_breaker(100.0)

    class Meanwhile:
        """A lock that another thread has just released."""

        def __enter__(self) -> None:
            breaker._opened_at = None

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(module, "LOCK", Meanwhile())
    assert breaker.allow(200.0) == 0.0
    assert breaker._probed_at is None


@pytest.mark.req("C-12")
def test_threads_lose_no_count() -> None:
    breaker = Breaker(min_calls=4001, window=1e6)
    news: list[bool] = []

    def fail() -> None:
        news.extend(breaker.record(True, 1.0) for _ in range(1000))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=fail) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not any(news)
    assert breaker.record(True, 1.0)
