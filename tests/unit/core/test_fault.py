"""Fault: the meaning of an error."""

from __future__ import annotations

import math
import pickle
import re
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from redrive import Fault
from redrive.core.fault import KINDS, PERMANENT, TRANSIENT, UNKNOWN, Kind


@pytest.mark.parametrize(
    ("kind", "retryable"), [("transient", True), ("throttled", True), ("timeout", True), ("permanent", False), ("unknown", False)]
)
def test_the_kind_of_a_fault_decides_whether_it_is_retryable(kind: Kind, retryable: bool) -> None:
    assert Fault(kind).retryable is retryable
    assert kind in KINDS


def test_a_fault_is_sent_and_unspent_by_default() -> None:
    fault = Fault("timeout")
    assert (fault.after, fault.sent, fault.spent, fault.status) == (None, True, None, None)
    assert (TRANSIENT.kind, PERMANENT.kind, UNKNOWN.kind) == ("transient", "permanent", "unknown")


@pytest.mark.parametrize("kind", ["", "Transient", "retry", None, 5, ["transient"]])
def test_an_unknown_kind_is_rejected_with_the_known_ones(kind: Any) -> None:
    said = f"a fault must be one of transient, throttled, timeout, permanent, unknown, not {kind!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        Fault(kind)


@pytest.mark.req("R-6")
def test_after_is_stored_as_seconds_from_now() -> None:
    assert Fault("throttled", after=5).after == 5.0
    assert type(Fault("throttled", after=5).after) is float
    assert Fault("throttled", after=1e300).after == 1e300
    assert Fault("throttled", after=-3).after == 0.0  # a time in the past
    assert Fault("throttled", after=0).after == 0.0


@pytest.mark.parametrize("after", ["5", True, b"5", [5]])
def test_after_must_be_a_number(after: Any) -> None:
    with pytest.raises(TypeError, match="^after must be a number, not"):
        Fault("throttled", after=after)


@pytest.mark.parametrize("after", [math.nan, math.inf, -math.inf, 10**400])
def test_after_must_be_finite(after: float) -> None:
    with pytest.raises(ValueError, match="^after (must be a finite number|is too large a number)"):
        Fault("throttled", after=after)


def test_a_fault_is_an_immutable_value() -> None:
    fault = Fault("throttled", 5.0, False, "urllib3", 429)
    assert fault == Fault("throttled", after=5, sent=False, spent="urllib3", status=429)
    assert {fault: 1}[Fault("throttled", 5.0, False, "urllib3", 429)] == 1
    assert fault != replace(fault, sent=True)
    assert pickle.loads(pickle.dumps(fault)) == fault
    assert pickle.loads(pickle.dumps(fault)).retryable
    assert replace(fault, kind="permanent").retryable is False
    assert repr(fault) == "Fault(kind='throttled', after=5.0, sent=False, spent='urllib3', status=429)"
    with pytest.raises(FrozenInstanceError):
        fault.kind = "unknown"  # type: ignore[misc]
    assert not hasattr(fault, "__dict__")
    with pytest.raises(TypeError, match="retryable"):
        Fault("unknown", retryable=True)  # type: ignore[call-arg]
