"""The simulated service: a queue with a capacity, and outages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.simulation.scenario import ServiceOutage, SimulatedService

np = pytest.importorskip("numpy", reason="the extra `simulate` is missing")

from redrive.simulation.service import ERROR, REJECTED, SUCCESS, ServiceModel  # noqa: E402


def respond(
    service: SimulatedService, arrivals: list[float], *outages: ServiceOutage, draw: float = 0.5
) -> list[tuple[float, int]]:
    draws = np.full(len(arrivals), draw)
    responses = ServiceModel(service, outages).respond(np.array(arrivals), draws, draws)
    return list(zip(responses.at.tolist(), responses.results.tolist(), strict=True))


def test_requests_above_the_capacity_wait_in_the_queue() -> None:
    service = SimulatedService(capacity=10, latency=0.5, queue=1)
    assert respond(service, [0.0, 0.0, 0.0]) == [(0.5, SUCCESS), (pytest.approx(0.6), SUCCESS), (pytest.approx(0.7), SUCCESS)]


def test_a_full_queue_rejects_at_once_and_keeps_its_capacity() -> None:
    service = SimulatedService(capacity=2, latency=0.5, queue=0.5, error_latency=0.1)
    assert respond(service, [0.0, 0.0, 0.0, 1.0]) == [(0.5, SUCCESS), (1.0, SUCCESS), (0.1, REJECTED), (1.5, SUCCESS)]


def test_a_service_that_is_down_responds_with_errors() -> None:
    service = SimulatedService(capacity=10, latency=0.5, error_latency=0.1)
    assert respond(service, [0.9, 1.0, 2.0], ServiceOutage(1, 1)) == [(1.4, SUCCESS), (1.1, ERROR), (2.5, SUCCESS)]


def test_a_service_that_hangs_does_not_respond() -> None:
    service = SimulatedService(capacity=10, latency=0.5)
    assert respond(service, [1.0], ServiceOutage(1, 1, kind="hang"))[0][0] == float("inf")


def test_a_partial_outage_fails_its_share_of_requests() -> None:
    service = SimulatedService(capacity=10, latency=0.5)
    outage = ServiceOutage(0, 1, share=0.3)
    assert [respond(service, [0.5], outage, draw=draw)[0][1] for draw in (0.29, 0.31)] == [ERROR, SUCCESS]


def test_a_slow_service_has_a_part_of_its_capacity() -> None:
    service = SimulatedService(capacity=10, latency=0.5, queue=9)
    slow = respond(service, [0.0, 0.0, 0.0], ServiceOutage(0, 1, kind="slow", capacity=0.1))
    assert [at for at, _ in slow] == [0.5, 1.5, 2.5]


@given(
    steps=st.lists(st.lists(st.integers(0, 63), min_size=1, max_size=12), min_size=1, max_size=8),
    capacity=st.sampled_from([4, 16, 64]),
    queue=st.sampled_from([0.0, 0.25, 1.0, 100.0]),
)
def test_steps_of_many_requests_equal_one_request_after_another(steps: list[list[int]], capacity: int, queue: float) -> None:
    service = SimulatedService(capacity=capacity, latency=0.5, queue=queue, error_latency=0.125)
    together, alone, half = ServiceModel(service, ()), ServiceModel(service, ()), np.array([0.5])
    for number, step in enumerate(steps):
        arrivals = np.sort(np.array([number + place / 64 for place in step]))
        halves = np.full(len(arrivals), 0.5)
        responses = together.respond(arrivals, halves, halves)
        single = [alone.respond(arrivals[place : place + 1], half, half) for place in range(len(arrivals))]
        assert responses.at.tolist() == [float(each.at[0]) for each in single]
        assert responses.results.tolist() == [int(each.results[0]) for each in single]
