"""Responses of `send`, and the error that each caller gets."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from redrive import outcome, retry
from redrive.batch.background import copies_of
from redrive.batch.buffer.delivery import errors_of_response
from redrive.errors import Refused

pytestmark = pytest.mark.req("G-4")


@pytest.mark.parametrize("said", [True, None])
def test_true_and_none_accept_the_batch(said: object) -> None:
    assert errors_of_response(said, 3) is None


def test_false_rejects_every_item() -> None:
    errors = errors_of_response(False, 2)
    assert errors is not None
    assert [str(error) for error in errors] == ["the receiver refused the batch of 2 items"] * 2
    assert all(isinstance(error, Refused) for error in errors)
    assert errors[0] is not errors[1]


def test_one_response_for_each_item() -> None:
    wrong = ValueError("too long")
    errors = errors_of_response([True, False, None, wrong], 4)
    assert errors is not None
    assert (errors[0], errors[2], errors[3]) == (None, None, wrong)
    assert isinstance(errors[1], Refused)


@pytest.mark.parametrize("said", [1, "ok", b"ok", {"ok": True}, object(), [True], [True, True, True], [True, 1], [True, "no"]])
def test_other_responses_are_rejected(said: object) -> None:
    with pytest.raises(TypeError, match="answer|send says"):
        errors_of_response(said, 2)


class Awkward(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


class Odd(Exception):
    def __copy__(self) -> Any:
        return ValueError("something else")


def aio_error() -> Exception:
    return grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), "broken")


@pytest.mark.parametrize(
    "error", [ValueError("x"), OSError(2, "no such file"), aio_error(), UnicodeDecodeError("utf-8", b"", 0, 1, "x")]
)
def test_each_caller_gets_its_own_copy_of_the_error(error: Exception) -> None:
    found: list[Exception] = []
    try:
        retry(max_attempts=2, backoff_base=0, jitter=0, on=Exception).call(_raise, error)
    except Exception as raised:
        found = copies_of(raised, 3)
    assert len({id(one) for one in found}) == 3
    for one in found:
        assert (type(one), str(one), one.args) == (type(error), str(error), error.args)
        assert one.__traceback__ is error.__traceback__
        ended = outcome(one)
        assert ended is not None
        assert ended.attempts == 2
    found[1].add_note("mine")
    assert "mine" not in found[2].__notes__


@pytest.mark.parametrize("error", [Awkward(code=3), Odd("x")])
def test_an_error_that_cannot_be_copied_is_shared(error: Exception) -> None:
    assert [one is error for one in copies_of(error, 3)] == [True, True, True]


def _raise(error: Exception) -> None:
    raise error
