"""The report on a stack of layers: attempts, owners and seconds. Attempts are compared with real nested layers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError

import pytest
import stamina
import tenacity
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import Budget, Retry, RetryPolicy, classify, retry
from redrive.analysis.layer import Layer
from redrive.analysis.report import LayersReport, layers
from redrive.testing import instant


class CrmBusy(Exception):
    pass


class CrmLocked(CrmBusy):
    pass


class DiskFull(Exception):
    pass


AnyLayer: Any = Layer
"""For arguments that a type checker would reject."""

ERRORS: dict[str, type[Exception]] = {
    "CrmBusy": CrmBusy,
    "CrmLocked": CrmLocked,
    "DiskFull": DiskFull,
    "ConnectionResetError": ConnectionResetError,
    "transient": ConnectionAbortedError,
    "timeout": TimeoutError,
}

LAYERS = st.builds(
    retry,
    max_attempts=st.integers(1, 4),
    backoff_base=st.sampled_from([0, 0.25, 1.0]),
    jitter=st.just(0),
    timeout=st.sampled_from([None, None, 0.9, 3.3]),
    attempt_timeout=st.sampled_from([None, None, 10, 1.7]),
    on=st.sampled_from([None, None, CrmBusy, CrmLocked, (CrmBusy, classify), (DiskFull, ConnectionResetError)]),
    nested=st.sampled_from(["final", "final", "allow"]),
)


def count_attempts(stack: list[Retry], next_error: Callable[[int], Exception]) -> int:
    """Return the number of attempts that reach the bottom of real layers, if every attempt fails."""
    calls = 0

    def bottom() -> None:
        nonlocal calls
        calls += 1
        raise next_error(calls)

    nested = bottom
    for layer in reversed(stack):
        nested = layer(nested)
    with instant(), pytest.raises(Exception):  # noqa: B017, PT011  # the configured error
        nested()
    return calls


def row(report: LayersReport, error: str) -> Any:
    return next(row for row in report.errors if row.error == error)


def advice(report: LayersReport) -> list[str]:
    return [advice.code for advice in report.advice]


@pytest.mark.req("C-7")
@given(st.lists(LAYERS, min_size=1, max_size=4), st.data())
def test_reported_attempts_equal_those_of_real_layers(stack: list[Retry], data: st.DataObject) -> None:
    report = layers(stack)
    known = [error for error in ERRORS if error in {row.error for row in report.errors}]
    name = data.draw(st.sampled_from(known))
    said, real = row(report, name), count_attempts(stack, lambda _: ERRORS[name]())
    limited = any(layer.limit is not None for layer in report.layers)
    if said.again and limited:
        assert real <= said.attempts  # inner layers use up time of the outer one, which the report ignores
    else:
        assert real == said.attempts


@settings(max_examples=50)
@given(LAYERS, LAYERS)
def test_reported_attempts_hold_for_changing_errors(outer: Retry, inner: Retry) -> None:
    stack = [layer.using(RetryPolicy(most), attempt_timeout=None) for layer, most in ((outer, 3), (inner, 2))]
    known, choices, most = [CrmBusy, CrmLocked, ConnectionAbortedError], [0], 0

    def chosen(call: int) -> Exception:
        if call > len(choices):
            choices.append(0)
        return known[choices[call - 1]]()

    while choices:  # every sequence of errors that can happen, as an odometer
        calls = count_attempts(stack, chosen)
        most = max(most, calls)
        while choices and choices[-1] == len(known) - 1:
            choices.pop()
        if choices:
            choices[-1] += 1
    report = layers(stack)
    assert most <= report.mixed_attempts
    if not {"DiskFull", "ConnectionResetError"} & {name for layer in stack for name in names(layer)}:
        assert most == report.mixed_attempts


def names(layer: Retry) -> list[str]:
    return [error if isinstance(error, str) else error.__name__ for error in Layer.of(layer).errors]


@pytest.mark.req("C-7")
def test_three_layers_of_three_attempts_make_three_calls() -> None:
    report = layers([Layer("api"), Layer("service"), Layer("client")])
    assert (report.attempts, report.mixed_attempts, report.multiplies) == (3, 3, False)
    assert row(report, "transient").owner == "client"
    assert row(report, "permanent").owner is None
    assert layers([Layer("api", nested="allow"), Layer("service", nested="allow"), Layer("client")]).attempts == 27


@pytest.mark.parametrize(
    ("foreign", "by", "seen", "attempts"),
    [
        (tenacity.retry(stop=tenacity.stop_after_attempt(3)), "tenacity", None, 3),
        (tenacity.retry(stop=tenacity.stop_after_attempt(3), reraise=True), "tenacity", False, 9),
        (stamina.retry(on=ConnectionResetError, attempts=3, wait_initial=0, wait_jitter=0), "stamina", None, 9),
    ],
)
def test_spent_retries_of_other_libraries_are_detected(foreign: Any, by: Any, seen: bool | None, attempts: int) -> None:
    calls = 0

    @foreign  # type: ignore[untyped-decorator]
    def bottom() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionResetError

    inner = Layer("inner", by=by, policy=RetryPolicy(3), seen=seen)
    report = layers([Layer("outer"), inner])
    with instant(), pytest.raises((ConnectionResetError, tenacity.RetryError)):
        retry().call(bottom)
    assert calls == attempts == report.attempts
    assert report.multiplies is (attempts == 9)


def test_an_outer_layer_of_another_library_always_multiplies() -> None:
    calls = 0

    @tenacity.retry(stop=tenacity.stop_after_attempt(3))
    @retry(max_attempts=3)
    def bottom() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionResetError

    report = layers([retry(), Layer("outer", by="tenacity", policy=RetryPolicy(3)), Layer("inner")])
    with instant(), pytest.raises(tenacity.RetryError):
        retry(max_attempts=5).call(bottom)
    assert calls == report.attempts == 9  # and the Redrive layer around both finds the mark in the cause
    assert [advice.layer for advice in report.advice if advice.multiplies] == ["outer"]
    assert "stop_after_attempt(1)" in report.advice[0].do


def test_each_code_has_one_owner() -> None:
    """The three layers of a gRPC client: the channel, the call, the buffer."""
    channel = Layer("channel", by="grpc", policy=RetryPolicy(4), on=("UNAVAILABLE", "RESOURCE_EXHAUSTED"))
    call = Layer("call", policy=RetryPolicy.disabled())
    buffer = Layer("buffer", policy=RetryPolicy(5), on=("DEADLINE_EXCEEDED", "INTERNAL"))
    report = layers([buffer, call, channel])
    owners = {row.error: (row.owner, row.attempts) for row in report.errors}
    assert owners["UNAVAILABLE"] == owners["RESOURCE_EXHAUSTED"] == ("channel", 4)
    assert owners["DEADLINE_EXCEEDED"] == owners["INTERNAL"] == ("buffer", 5)
    assert owners["permanent"] == owners["unknown"] == (None, 1)
    assert not report.multiplies
    # UNAVAILABLE three times, then INTERNAL, which the buffer retries with a new call of the channel.
    assert report.mixed_attempts == 20
    assert "mixed" in advice(report)
    off = Layer("channel", by="grpc", policy=RetryPolicy.disabled())
    assert row(layers([Layer("buffer", on=("UNAVAILABLE",)), off]), "UNAVAILABLE").owner == "buffer"


@pytest.mark.parametrize(
    ("error", "kind", "retried"),
    [
        ("503", "transient", True),
        ("429", "throttled", True),
        ("404", "permanent", False),
        ("NOT_FOUND", "permanent", False),
        ("SlowDown", "throttled", True),
        ("E42", "unknown", False),
    ],
)
def test_a_code_is_owned_by_the_layer_that_retries_its_kind(error: str, kind: str, retried: bool) -> None:
    report = layers([Layer("odd", policy=RetryPolicy.disabled(), on=(error,)), Layer("usual")])
    found = row(report, error)
    assert (found.kind, found.owner) == (kind, "usual" if retried else None)


# ---- advice ----


def test_long_retry_after_waits_are_reported_without_a_limit() -> None:
    assert advice(layers(Layer("one"))) == ["long_wait"]
    assert advice(layers(Layer("one", policy=RetryPolicy(3, 0.1, timeout=60)))) == []


def test_a_shared_budget_is_reported() -> None:
    shared = Budget()
    report = layers([retry(budget=shared, operation="a", timeout=9), retry(budget=shared, operation="b"), retry(operation="c")])
    assert "a and b share one budget" in next(advice.says for advice in report.advice if advice.code == "shared_budget")
    named = layers([Layer("a", budget="crm"), Layer("b", budget="crm"), Layer("c", budget="other")])
    assert "the budget 'crm'" in next(advice.says for advice in named.advice if advice.code == "shared_budget")


def test_a_library_that_retries_everything_is_reported() -> None:
    report = layers(Layer("loop", by="tenacity", policy=RetryPolicy(3, 0, 0, 0)))
    assert row(report, "permanent").attempts == 3
    assert {"no_waits", "hopeless", "no_limit"} == set(advice(report))


# ---- sources of layers ----


def test_the_layers_around_one_function_are_found() -> None:
    @retry(max_attempts=5, on=CrmBusy)
    @tenacity.retry(stop=tenacity.stop_after_attempt(4))  # copies the attributes of its function, and is not counted twice
    @retry(max_attempts=2, operation="inner", on=(lambda error: isinstance(error, TimeoutError) or None, DiskFull))
    def fetch() -> None: ...

    report = layers(fetch)
    assert [(layer.by, layer.max_attempts) for layer in report.layers] == [("redrive", 5), ("tenacity", 4), ("redrive", 2)]
    owners = {row.error: row.owner and row.owner.rpartition(".")[2] for row in report.errors}
    assert (owners["timeout"], owners["DiskFull"], owners["CrmBusy"], owners["transient"]) == ("inner", "inner", "fetch", "fetch")


def test_layers_with_the_same_name_are_numbered() -> None:
    assert [layer.name for layer in layers([retry(), retry(), Layer("x")]).layers] == ["retry #1", "retry #2", "x"]


def test_a_custom_rule_is_listed_as_an_error() -> None:
    def crm_says_later(error: Exception) -> bool:
        raise RuntimeError("not one of ours")

    owners = {row.error: row.owner for row in layers(retry(on=crm_says_later)).errors}
    assert (owners["crm_says_later()"], owners["transient"]) == ("retry", None)


def test_examples_of_http_errors_have_no_open_body() -> None:
    seen: list[HTTPError] = []

    def rule(error: Exception) -> bool:
        if isinstance(error, HTTPError):
            seen.append(error)
        return False

    layers(retry(on=rule))
    assert {error.code for error in seen} == {404, 429}
    assert all(error.closed for error in seen)  # Python 3.14 emits a ResourceWarning for an open one


def test_the_report_is_json_data() -> None:
    data = json.loads(json.dumps(layers([Layer("a", attempt_timeout="none"), Layer("b")]).as_dict(), allow_nan=False))
    assert data["multiplies"] is False
    assert data["layers"][0]["attempt_timeout"] is None
    assert [row["error"] for row in data["errors"]] == ["transient", "throttled", "timeout", "permanent", "unknown"]
    assert {"code", "layer", "says", "do"} == set(data["advice"][0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: AnyLayer(""), "name of a layer must be text"),
        (lambda: AnyLayer("a", by="celery"), "by must be one of redrive, tenacity"),
        (lambda: AnyLayer("a", by="openai"), "set max_attempts"),
        (lambda: AnyLayer("a", nested="maybe"), "'final' or 'allow'"),
        (lambda: AnyLayer("a", on=()), "nothing is retried"),
        (lambda: AnyLayer("a", on=(3.5,)), "kinds of fault"),
        (lambda: AnyLayer("a", on=(KeyboardInterrupt,)), "kinds of fault"),
        (lambda: AnyLayer("a", seen=True), "not Redrive's"),
        (lambda: AnyLayer("a", attempt_timeout=0), "above 0"),
        (lambda: AnyLayer("a", attempt_timeout="soon"), "seconds or a timedelta"),
        (lambda: AnyLayer("a", policy={"max_attempts": 3}), "must be a RetryPolicy"),
        (lambda: AnyLayer("a", backoff=lambda attempt, draw: 1 / 0), "raises ZeroDivisionError"),
        (lambda: layers([]), "at least one layer"),
        (lambda: layers(len), "a layer must be a Retry"),
        (lambda: layers(["api"]), "not str 'api'"),
    ],
)
def test_invalid_layers_are_rejected(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=".*" + message.replace("(", r"\(")):
        wrong()


def test_an_invalid_backoff_is_treated_as_in_the_loop() -> None:
    odd = Layer("a", backoff=lambda attempt, draw: math.nan if attempt == 1 else math.inf)
    assert odd.wait(1) == (0, 0)
    assert odd.wait(2) == (1e8, 1e8)


def test_tenacity_in_the_same_chain_is_a_layer() -> None:
    quick = retry(RetryPolicy(max_attempts=3, backoff_base=0, jitter=0))
    outside = tenacity.retry(stop=tenacity.stop_after_attempt(3))(quick(_refuse))
    assert layers(outside).attempts == 9
    assert layers(outside).multiplies
    hidden = quick(tenacity.retry(stop=tenacity.stop_after_attempt(3), reraise=True)(_refuse))
    assert layers(hidden).attempts == 9
    told = quick(tenacity.retry(stop=tenacity.stop_after_attempt(3))(_refuse))
    assert layers(told).attempts == 3


def test_tenacity_without_a_stop_is_rejected() -> None:
    with pytest.raises(ValueError, match="cannot be read from .*stop_never.* pass the stack"):
        layers(tenacity.retry(retry()(_refuse)))


def _refuse() -> None:
    raise ConnectionRefusedError
