"""Redrive's exceptions: one tree, and their attributes."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timezone
from multiprocessing import get_context

import pytest

from redrive import errors

AT = datetime(2026, 1, 2, tzinfo=timezone.utc)
EVERY: list[Exception] = [
    errors.RedriveError("x"),
    errors.AttemptTimeout("late"),
    errors.MemoryLimitExceeded("too much"),
    errors.Rejected(),
    errors.Rejected("too small", result={"rows": 0}),
    errors.BreakerOpen("open", retry_at=AT),
    errors.KeyRefused("no", key="a:b:c:d:v1"),
    errors.KeyBusy("busy", key="a:b:c:d:v1", retry_at=AT),
    errors.KeyConflict("other", key="a:b:c:d:v1"),
    errors.KeyFailed("failed", key="a:b:c:d:v1", error={"class": "ValueError"}),
    errors.BadReport("no report", report=[1, 2]),
    errors.Dead("dead", dead_id="d-1", reason="attempts"),
    errors.Cancelled("cancelled", job_id="7"),
    errors.Refused("no"),
    errors.BufferClosed("closed", sent=True),
    errors.PollerClosed("closed"),
    errors.NotReady("starting", unavailable=True),
    errors.Incomplete("two days", gaps=[1, 2]),
    errors.LeaseLost("gone"),
    errors.NotAllowed("no"),
    errors.MissingRight("no right"),
    errors.Drift("moved"),
    errors.LedgerUnavailable("away"),
    errors.LedgerRemoved("gone"),
    errors.LedgerError("no"),
    errors.SchemaMismatch("newer"),
    errors.EngineError("no namespace"),
    errors.EngineUnavailable("away"),
    errors.StorageError("no", path="a/b", backend="lake"),
    errors.NotFound("not there", path="a/b", backend="lake"),
    errors.AlreadyExists("there", path="a/b", backend="lake"),
    errors.Denied("no", path="a/b", backend="lake"),
    errors.Unavailable("away", path="a/b", backend="lake"),
    errors.Damaged("changed", path="a/b", backend="lake"),
    errors.PathInvalid("no path", path="a//b", backend="lake"),
    errors.Again("soon", after=5, free=True),
    errors.Again(),
    errors.Stop("enough"),
    errors.SignalTimeout("no answer"),
    errors.Blocked("waits", until=AT),
]


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_its_attributes(error: Exception) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        arrived = pickle.loads(pickle.dumps(error, protocol))
        assert type(arrived) is type(error)
        assert (str(arrived), arrived.args, vars(arrived)) == (str(error), error.args, vars(error)), protocol


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_error_can_be_copied_and_keeps_its_notes(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "dispatch_table", {})  # tblib, which Dask installs, adds copies that share their attributes
    noted = copy.copy(error)
    noted.add_note("seen")
    again = copy.deepcopy(noted)
    assert again.__notes__ == ["seen"]
    assert not hasattr(error, "__notes__")


def test_an_error_survives_another_process() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(errors.BreakerOpen) as caught:
        pool.submit(_raise, errors.BreakerOpen("open", retry_at=AT)).result(60)
    assert caught.value.retry_at == AT


def test_errors_have_their_attributes() -> None:
    assert errors.Rejected().args == ("the result was rejected",)
    assert errors.Rejected("no", result=5).result == 5
    assert errors.Rejected().result is None
    assert errors.KeyFailed("m", key="k", error={"a": 1}).error == {"a": 1}
    assert (errors.KeyBusy("m", key="k", retry_at=AT).key, errors.KeyBusy("m", key="k", retry_at=AT).retry_at) == ("k", AT)
    assert (errors.Dead("m", dead_id="1", reason="r").dead_id, errors.Dead("m", dead_id="1", reason="r").reason) == ("1", "r")
    assert (errors.Again().after, errors.Again().free, str(errors.Again())) == (None, False, "")
    assert (errors.Blocked("b").until, str(errors.Blocked("b")), str(errors.Stop("s"))) == (None, "b", "s")


def test_control_exceptions_are_not_redrive_errors() -> None:
    for word in (errors.Again, errors.Stop, errors.Blocked):
        assert not issubclass(word, errors.RedriveError)
        assert issubclass(word, errors.Final)
    assert issubclass(errors.BreakerOpen, errors.Final)


def test_an_attempt_timeout_is_a_timeout_error() -> None:
    assert issubclass(errors.AttemptTimeout, TimeoutError)


def test_the_documented_tree_matches_the_classes() -> None:
    """Every class of the drawing has the parent of its indentation, and none is missing."""
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"(?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+)(?= |$)", line):
            depth = len(found["indent"]) // 4
            if found["indent"] or found["name"] == "RedriveError":
                above[depth:] = [found["name"]]
                drawn[found["name"]] = above[depth - 1] if depth else "Exception"
    ours = {name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.RedriveError)}
    assert set(drawn) == set(ours)
    for name, parent in drawn.items():
        assert parent in {base.__name__ for base in ours[name].__bases__}


def test_every_error_is_tested() -> None:
    ours = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)}
    ours -= {errors.RedriveWarning, errors.DirectCall, errors.BlockingCall}
    assert ours == {type(error) for error in EVERY} | {errors.Final}
