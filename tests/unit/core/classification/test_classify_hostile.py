"""No error can make the classifier raise: attributes that raise, lie, or are of any type."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.classification.classify import classify
from redrive.core.classification.known.registry import KNOWN
from redrive.core.fault import Fault

NAMES = sorted(KNOWN)
ATTRIBUTES = (
    "args reason response status_code status code headers errno os_error orig cause last_attempt request body type "
    "error_code sqlstate pgcode pgconn retry_at after exceptions inner_exception exc_value kwargs recipients smtp_code "
    "sqlite_errorcode trailing_metadata grpc_status_code details original_error connection_invalidated raw retries "
    "history last_exception retryable __cause__ __context__ __traceback__"
).split()


class Raising:
    """Raises for any access."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("str")

    def __iter__(self) -> Any:
        raise RuntimeError("iter")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __call__(self) -> Any:
        raise RuntimeError("call")


class Everything:
    """Has every attribute, each with itself as the value."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object) -> Any:
        return self

    def get(self, *_: object) -> Any:
        return self


values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.builds(Raising)
    | st.builds(Everything)
    | st.sampled_from([ValueError(), ConnectionResetError(), TimeoutError(), 200, 429, 503, object]),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.just("retry-after"), inner),
    max_leaves=5,
)


def disguised(name: str, attributes: dict[str, Any], raising: frozenset[str]) -> Exception:
    """An error that imitates one of a library, with these attributes, of which some raise."""
    package, _, title = name.partition(".")
    body: dict[str, Any] = {"__module__": package, "__str__": lambda self: attributes.get("text", "words")}
    for attribute in raising:
        body[attribute] = property(lambda self: 1 / 0)
    for attribute, value in attributes.items():
        body.setdefault(attribute, property(partial(_return_value, value)))
    error: Exception = type(title, (Exception,), body)()
    return error


def _return_value(value: object, _: object) -> object:
    return value


@given(
    name=st.sampled_from(NAMES),
    attributes=st.dictionaries(st.sampled_from(ATTRIBUTES), values),
    raising=st.frozensets(st.sampled_from(ATTRIBUTES), max_size=4),
)
def test_classify_never_raises(name: str, attributes: dict[str, Any], raising: frozenset[str]) -> None:
    fault = classify(disguised(name, attributes, raising))
    assert isinstance(fault, Fault)
    assert fault.kind in ("transient", "throttled", "timeout", "permanent", "unknown")
    assert fault.after is None or (math.isfinite(fault.after) and fault.after >= 0)
    assert fault.status is None or type(fault.status) is int
    assert fault.spent is None or type(fault.spent) is str


@pytest.mark.parametrize("value", [Raising, Everything, type(None)])
def test_hostile_attributes_of_known_errors_do_not_raise(value: type) -> None:
    for name in NAMES:
        assert isinstance(classify(disguised(name, dict.fromkeys(ATTRIBUTES, value()), frozenset())), Fault), name
        assert isinstance(classify(disguised(name, {}, frozenset(ATTRIBUTES))), Fault), name


def test_a_bare_error_of_each_known_name_has_no_wait_or_status() -> None:
    for name in NAMES:
        fault = classify(disguised(name, {}, frozenset()))
        assert fault.after is None
        assert fault.status is None
