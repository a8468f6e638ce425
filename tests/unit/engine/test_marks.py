"""Marks on exceptions: any exception can be marked, and the mark survives pickling."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pytest

from redrive import Outcome, Retry, deadline, errors, outcome, retry
from redrive.engine.nesting import add_note, spent_inside
from redrive.engine.settings import RetrySettings
from tests.unit.engine.leaf import TIMED, ZERO, Leaf, every_layer

pytestmark = [pytest.mark.req("C-7"), pytest.mark.usefixtures("both_ways")]


class Hostile(Exception):
    """Cannot be read, printed or written to."""

    def __setattr__(self, name: str, value: object) -> None:
        raise RuntimeError("hands off")

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "__traceback__", "__context__", "__cause__"):
            return super().__getattribute__(name)
        raise RuntimeError("eyes off")

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Slotted(Exception):
    __slots__ = ("code",)


class Disguised(Exception):
    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise RuntimeError("not here")


@pytest.mark.req("C-4")
@pytest.mark.parametrize(
    "make", [Hostile, lambda: Frozen(7), Slotted, Disguised], ids=["hostile", "frozen", "slotted", "disguised"]
)
@every_layer
def test_any_exception_can_be_marked(layer: Retry, make: Callable[[], Exception]) -> None:
    leaf = Leaf(make)
    caught: list[Exception] = []
    try:
        layer.using(on=lambda _: True).call(leaf)
    except Exception as error:
        caught.append(error)
    assert leaf.calls == 3
    assert type(caught[0]) is type(make())
    ended = outcome(caught[0])
    assert ended is not None
    assert (ended.attempts, ended.reason) == (3, "attempts")


@pytest.mark.req("C-4")
def test_existing_notes_are_kept_and_invalid_ones_ignored() -> None:
    error = OSError("x")
    error.add_note("mine")
    add_note(error, "ours")
    assert error.__notes__ == ["mine", "ours"]
    strange = OSError("x")
    strange.__dict__["__notes__"] = "a text"
    add_note(strange, "ours")
    assert strange.__dict__["__notes__"] == "a text"


@pytest.mark.req("C-4")
def test_a_foreign_mark_is_ignored() -> None:
    error = OSError("x")
    error.__dict__["__redrive__"] = "not ours"
    assert outcome(error) is None
    assert spent_inside(error, -1, RetrySettings()) is None


@pytest.mark.req("C-4")
def test_a_marked_exception_survives_pickling_and_copying() -> None:
    leaf = Leaf()
    with pytest.raises(OSError, match="down") as caught:
        TIMED.call(leaf)
    for twin in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value), copy.deepcopy(caught.value)):
        assert outcome(twin) == outcome(caught.value)
        assert twin.__notes__ == caught.value.__notes__


def test_an_outcome_from_another_process_is_final() -> None:
    with pytest.raises(OSError, match="down") as caught:
        TIMED.call(Leaf())
    parcel = pickle.dumps(caught.value)
    leaf = Leaf(lambda: pickle.loads(parcel))
    with pytest.raises(OSError, match="down"):
        TIMED.call(leaf)
    assert leaf.calls == 1


@pytest.mark.req("C-4")
def test_an_outcome_is_compared_and_printed_without_its_serial() -> None:
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    one = Outcome(3, 1.5, "budget", moment, "crm", serial=4)
    assert one == Outcome(3, 1.5, "budget", moment, "crm", serial=9)
    assert "serial" not in repr(one)
    assert one.spent
    assert not Outcome(1, 0.0, "not_retryable").spent
    with pytest.raises(AttributeError):
        one.attempts = 4  # type: ignore[misc]


def test_refused_starts_are_final_for_surrounding_layers() -> None:
    calls = 0

    def outer() -> None:
        nonlocal calls
        calls += 1
        with deadline(0):
            TIMED.call(lambda: None)

    with pytest.raises(errors.AttemptTimeout):
        retry(ZERO, on=errors.AttemptTimeout).call(outer)
    assert calls == 1
