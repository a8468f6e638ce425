"""The duration of a stack of layers: waits, attempts and surrounding limits."""

from __future__ import annotations

import time

import pytest

from redrive import RetryPolicy, backoff
from redrive.analysis.layer import Layer
from redrive.analysis.report import LayersReport, layers


def advice(report: LayersReport) -> list[str]:
    return [advice.code for advice in report.advice]


def test_seconds_include_the_longest_waits_and_full_attempts() -> None:
    assert layers(Layer("one")).seconds == 0.5 + 0.75 + 3 * 10
    assert layers(Layer("one", attempt_timeout="none")).seconds is None
    assert layers(Layer("one", policy=RetryPolicy(5, timeout=7), attempt_timeout="none")).seconds == 7
    steps = Layer("one", policy=RetryPolicy(4), backoff=backoff.steps(10, 20, jitter=0.1), attempt_timeout=1)
    assert layers(steps).seconds == pytest.approx(11 + 22 + 22 + 4)


def test_surrounding_limits_apply_to_inner_layers() -> None:
    report = layers([Layer("outer", attempt_timeout=4, policy=RetryPolicy(2, timeout=30)), Layer("inner")])
    assert [(layer.limit, layer.limited_by, layer.seconds) for layer in report.layers] == [(30, "outer", 4), (4, "outer", 4)]
    assert advice(report) == ["cut_short", "idle"]


def test_other_libraries_ignore_surrounding_limits() -> None:
    inner = Layer("sdk", by="openai", policy=RetryPolicy(3, 0.5, 8, 0), attempt_timeout=60)
    report = layers([Layer("outer"), inner])
    assert report.seconds == 0.5 + 1 + 3 * 60
    assert {"deaf", "idle"} <= set(advice(report))
    # The outer layer starts no attempt after its time limit, but cannot end a running one.
    unseen = Layer("channel", by="grpc", policy=RetryPolicy(4, 0, 0, 0), attempt_timeout=2)
    assert layers([Layer("outer", policy=RetryPolicy(9, 0, 0, 0, timeout=10)), unseen]).seconds == 10 + 8


@pytest.mark.parametrize(
    ("policy", "reached", "code"),
    [
        (RetryPolicy(3, 5, 60, 0, timeout=4), 1, "never_fits"),
        (RetryPolicy(3, 5, 60, 0, timeout=5), 1, "never_fits"),
        (RetryPolicy(3, 5, 60, 0, timeout=6), 2, "unreachable"),
        (RetryPolicy(3, 5, 60, 0, timeout=16), 3, "cut_short"),
        (RetryPolicy(10**9, 1, 1, 0, timeout=10**6), 10**6, "unreachable"),
        (RetryPolicy(10**9, 0, 0, 0, timeout=10**6), 10**9, "cut_short"),
    ],
)
def test_attempts_beyond_the_time_limit_are_not_counted(policy: RetryPolicy, reached: int, code: str) -> None:
    began = time.process_time()
    report = layers(Layer("one", policy=policy))
    assert report.attempts == report.layers[0].attempts == reached
    assert advice(report) == [code]
    assert time.process_time() - began < 5


def test_a_billion_attempts_are_computed_quickly() -> None:
    began = time.process_time()
    patient = Layer("one", policy=RetryPolicy(10**9, 1, 60, 1), attempt_timeout=1)
    report = layers([patient, Layer("two", policy=RetryPolicy(10**9, 0.001, 0.001, 0))])
    assert report.attempts == 1000
    assert layers(patient).seconds == pytest.approx(62 * 1e9, rel=1e-3)
    hasty = layers(Layer("one", policy=RetryPolicy(10**12, 0, 0, 0, timeout=10**6), attempt_timeout=0.001))
    assert "makes 1000000000 of its 1000000000000 attempts" in hasty.advice[0].says
    assert time.process_time() - began < 5
