"""That something was submitted is looked into at once; now and then only while sources bring more than enough."""

from __future__ import annotations

import math

import pytest

from redrive.worker.heard import NOW_AND_THEN, Heard


def test_looks_are_rare_only_while_there_is_enough_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.worker.heard.monotonic", lambda: 100.0)
    heard = Heard(own=True)
    assert heard.next(busy=True) == -math.inf, "at the beginning nobody has looked"
    heard.looked()
    assert heard.next(busy=False) == math.inf
    heard.tell()
    assert (heard.next(busy=False), heard.next(busy=True)) == (-math.inf, 100.0 + NOW_AND_THEN)
    told = Heard(own=False)
    told.looked()
    told.tell()
    assert told.next(busy=True) == -math.inf, "a notification is of others' work"
