"""Fingerprints of requests and of arguments."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.idempotency.fingerprint import ArgumentFingerprint, digest, fingerprint


@dataclass
class Point:
    x: int


@given(st.dictionaries(st.sampled_from(["order", "user", "ä"]), st.text() | st.integers(), min_size=1))
@example({"user": 'a"\\\n\u2028\ud800', "order": ""})
def test_arguments_are_compared_as_json(given_: dict[str, Any]) -> None:
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in given_]
    arguments = ArgumentFingerprint(inspect.Signature(parameters))
    arguments.prepare("f", {})
    assert arguments.digest(given_) == digest(given_)


@given(st.dictionaries(st.sampled_from(["order", "user", "ä"]), st.text(), min_size=1))
@example({"user": 'a"\\\n\u2028\ud800', "order": ""})
def test_text_arguments_have_the_same_digest(given_: dict[str, Any]) -> None:
    """The fast path for texts has the same digest, and rejects other values."""
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in given_]
    arguments = ArgumentFingerprint(inspect.Signature(parameters))
    arguments.prepare("f", dict.fromkeys(given_, str))
    assert arguments.digest(given_) == digest(given_)
    name = next(iter(given_))
    with pytest.raises(TypeError, match=f"argument '{name}': expected str, not int"):
        arguments.digest({**given_, name: 7})


def test_fingerprints_of_requests() -> None:
    assert fingerprint(None) is None
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 1})
    assert fingerprint(b"a") == fingerprint(bytearray(b"a")) != fingerprint("a")
    assert fingerprint(Point(1)) == fingerprint({"x": 1})
    with pytest.raises(TypeError, match="cannot be stored"):
        fingerprint(object())
