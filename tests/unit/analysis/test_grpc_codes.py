"""Each status code has one owner on a path, decided when the layers are built."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

import redrive
from redrive import RetryPolicy
from redrive.analysis.grpc import CLAIMED_CODES, CodeClaim, CodeRule, code_rule
from redrive.analysis.report import layers
from redrive.batch import SendBuffer
from redrive.errors import AttemptTimeout
from redrive.grpc import channel_options, retry
from tests.unit.batch.buffer.world import rpc_error

pytestmark = pytest.mark.req("G-7")
A = channel_options()


async def send(batch: list[int]) -> None: ...


def codes(rule: CodeRule) -> set[str]:
    return set(rule.codes)


def test_the_channel_owns_two_codes_and_the_next_layer_the_rest() -> None:
    assert codes(code_rule(A, None)) == {"INTERNAL", "DEADLINE_EXCEEDED"}
    assert codes(code_rule([*A, ("grpc.keepalive_time_ms", 1)], None)) == {"INTERNAL", "DEADLINE_EXCEEDED"}


def test_codes_of_a_disabled_channel_pass_to_the_next_layer() -> None:
    for behind in ((), channel_options(RetryPolicy.disabled())):
        assert codes(code_rule(behind, None)) == {"INTERNAL", "DEADLINE_EXCEEDED", "UNAVAILABLE"}


def test_a_code_with_two_owners_is_rejected() -> None:
    with pytest.raises(ValueError, match="UNAVAILABLE is already retried by the channel"):
        retry(behind=A, codes=["INTERNAL", "UNAVAILABLE"])
    with pytest.raises(ValueError, match="UNAVAILABLE is already retried"):
        SendBuffer(send, behind=A, codes=["UNAVAILABLE"])
    assert codes(code_rule(channel_options(codes=["RESOURCE_EXHAUSTED"]), ["UNAVAILABLE"])) == {"UNAVAILABLE"}


def test_two_redrive_layers_cannot_own_the_same_code() -> None:
    told = retry(behind=A, codes=["INTERNAL"])
    with pytest.raises(ValueError, match="INTERNAL is already retried by the layer in behind="):
        SendBuffer(send, behind=told, codes=["INTERNAL", "ABORTED"])
    SendBuffer(send, behind=told, codes=["ABORTED"])
    with pytest.raises(ValueError, match="UNAVAILABLE is already retried by the channel"):
        SendBuffer(send, behind=told, codes=["UNAVAILABLE"])
    SendBuffer(send, behind=told)


def test_a_layer_without_codes_is_rejected() -> None:
    everything = channel_options(codes=["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED"])
    with pytest.raises(ValueError, match="codes: the channel already retries DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE"):
        retry(behind=everything)


@pytest.mark.parametrize("wrong", ["UNAVALABLE", ["INTERNAL", "x"], [5], []])
def test_invalid_codes_are_rejected(wrong: Any) -> None:
    with pytest.raises(ValueError, match="codes must be names of gRPC status codes"):
        code_rule((), wrong)


def test_status_codes_of_grpcio_are_accepted() -> None:
    both: Any = [grpc.StatusCode.INTERNAL, "ABORTED"]
    assert codes(code_rule((), both)) == {"INTERNAL", "ABORTED"}


# ---- the rule for an error


def test_a_rule_retries_only_its_own_codes() -> None:
    rule = code_rule(A, None)
    internal = rule(rpc_error("INTERNAL"))
    assert internal is not None
    assert (internal.retryable, internal.spent) == (True, None)
    for code in ("NOT_FOUND", "ABORTED", "UNKNOWN", "CANCELLED"):
        found = rule(rpc_error(code))
        assert found is not None
        assert not found.retryable


def test_codes_of_the_channel_count_as_spent() -> None:
    found = code_rule(A, None)(rpc_error("UNAVAILABLE"))
    assert found is not None
    assert found.spent == "the channel"


def test_other_errors_are_passed_on() -> None:
    rule = code_rule(A, None)
    assert rule(ConnectionResetError()) is None
    assert rule(grpc.RpcError()) is None, "one without a code"
    assert rule(Liar()) is None


class Liar(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        raise ValueError("no code")


def test_an_attempt_timeout_is_treated_as_deadline_exceeded() -> None:
    found = code_rule(A, None)(AttemptTimeout("late"))
    assert found is not None
    assert found.kind == "timeout"
    other = code_rule(A, ["INTERNAL"])(AttemptTimeout("late"))
    assert other is not None
    assert not other.retryable


def test_a_permanent_code_can_be_retried_and_pushback_is_honoured() -> None:
    rule = code_rule((), ["NOT_FOUND", "UNKNOWN"])
    for error, expected in (
        (rpc_error("NOT_FOUND"), ("transient", None)),
        (rpc_error("UNKNOWN"), ("transient", None)),
        (rpc_error("NOT_FOUND", ("grpc-retry-pushback-ms", "250")), ("transient", 0.25)),
        (rpc_error("NOT_FOUND", ("grpc-retry-pushback-ms", "-1")), ("permanent", None)),
    ):
        found = rule(error)
        assert found is not None
        assert (found.kind, found.after) == expected


def test_a_layer_inside_a_buffer_skips_the_codes_of_the_buffer() -> None:
    inner, outer = code_rule(A, None), code_rule(A, None, claims=True)
    claim = CodeClaim(frozenset(outer.codes))

    def tried(rule: CodeRule) -> bool:
        found = rule(rpc_error("INTERNAL"))
        assert found is not None
        return found.retryable

    token = CLAIMED_CODES.set(claim)
    try:
        assert (tried(inner), tried(outer)) == (False, True)
        claim.has_ended = True
        assert tried(inner), "a task that was begun there and goes on is on its own"
    finally:
        CLAIMED_CODES.reset(token)


# ---- the output of `redrive layers`


def owners(*stack: Any) -> dict[str, tuple[str | None, int]]:
    report = layers(list(stack))
    assert not report.multiplies
    return {row.error: (row.owner, row.attempts) for row in report.errors if row.error.isupper()}


def test_the_report_names_the_owner_of_each_code() -> None:
    rpc = retry(behind=A).using(operation="call")
    buffer: SendBuffer[int] = SendBuffer(send, behind=A)
    name = f"{__name__}.send"
    channel = {"UNAVAILABLE": ("channel", 5), "RESOURCE_EXHAUSTED": ("channel", 5)}
    assert owners(rpc, A) == {**channel, "INTERNAL": ("call", 3), "DEADLINE_EXCEEDED": ("call", 3)}
    with_buffer = {**channel, "INTERNAL": (name, 4), "DEADLINE_EXCEEDED": (name, 4)}
    assert owners(buffer, A) == with_buffer
    assert owners(buffer, rpc, A) == with_buffer, "the buffer's, and not the call's inside it"


def test_a_buffer_may_own_only_some_codes() -> None:
    rpc = retry(behind=A, codes=["INTERNAL", "ABORTED"]).using(operation="call")
    buffer: SendBuffer[int] = SendBuffer(send, behind=A, codes=["INTERNAL"])
    found = owners(buffer, rpc, A)
    assert (found["INTERNAL"], found["ABORTED"]) == ((f"{__name__}.send", 4), ("call", 3))


def test_layers_without_behind_multiply_attempts() -> None:
    report = layers([SendBuffer(send), A])
    assert report.multiplies
    assert {row.error: row.attempts for row in report.errors}["UNAVAILABLE"] == 20


def test_retry_is_exported_by_the_grpc_package() -> None:
    assert redrive.grpc.retry is retry
    with pytest.raises(AttributeError, match="no attribute 'Interceptr'"):
        _ = redrive.grpc.Interceptr  # type: ignore[attr-defined]
