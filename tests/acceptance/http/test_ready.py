"""`wait_until_ready`: wait for a service that is starting."""

from __future__ import annotations

import threading
import time

import httpx2
import pytest

from redrive import deadline, errors, outcome, retry
from redrive.testing import Answer, FaultServer, instant, refused
from tests.acceptance.http.both import QUICK, Mode, client

pytestmark = pytest.mark.req("H-6")


def test_a_ready_service_is_detected(mode: Mode, server: FaultServer) -> None:
    server.script(503, "reset", 404, 204)
    with client(mode, server.url) as api, instant() as clock:
        api.wait_until_ready()
    assert [seen.path for seen in server.requests] == ["/health"] * 4
    assert clock.slept == [0.1, 0.2, 0.4]


def test_a_server_that_starts_meanwhile_is_detected(mode: Mode, server: FaultServer) -> None:
    with client(mode, server.url) as api:
        went = threading.Event()

        def come_up() -> None:
            with server.down():
                went.set()
                time.sleep(0.3)

        starting = threading.Thread(target=come_up)
        starting.start()
        went.wait()
        api.wait_until_ready("/up", within=30)
        starting.join()
    assert server.count == 1


def test_an_unreachable_service_is_unavailable(mode: Mode) -> None:
    with refused() as url, client(mode, url) as api, instant() as clock, pytest.raises(errors.NotReady) as caught:
        api.wait_until_ready(within=20)
    assert caught.value.unavailable
    assert str(caught.value).startswith(f"{url}/health is unavailable (")
    assert "could not be reached: ConnectError" in str(caught.value)
    assert isinstance(caught.value.__cause__, httpx2.ConnectError)
    assert 16 < sum(clock.slept) <= 20
    assert max(clock.slept) <= 2


@pytest.mark.parametrize(("status", "unavailable"), [(503, True), (502, True), (500, False), (404, False), (401, False)])
def test_a_service_that_returns_errors_has_failed(mode: Mode, server: FaultServer, status: int, unavailable: bool) -> None:
    server.script(status)
    with client(mode, server.url) as api, instant(), pytest.raises(errors.NotReady) as caught:
        api.wait_until_ready(within=5)
    assert caught.value.unavailable is unavailable
    assert f"returns {status}" in str(caught.value)
    assert server.count > 3


@pytest.mark.parametrize("status", [405, 410, 501])
def test_hopeless_statuses_end_the_wait_immediately(mode: Mode, server: FaultServer, status: int) -> None:
    server.script(503, status)
    with client(mode, server.url) as api, instant() as clock, pytest.raises(errors.NotReady) as caught:
        api.wait_until_ready()
    assert (server.count, clock.slept, caught.value.unavailable) == (2, [0.1], False)
    assert f"it is reachable, and returns {status}; waiting does not help" in str(caught.value)


def test_a_404_hints_at_the_path(mode: Mode, server: FaultServer) -> None:
    """It is polled to the end, because proxies return 404 while the service behind them is starting."""
    server.script(404)
    with client(mode, server.url) as api, instant(), pytest.raises(errors.NotReady) as caught:
        api.wait_until_ready("/helth", within=5)
    assert "/helth failed (" in str(caught.value)
    assert str(caught.value).endswith("returns 404 each time; check the path")


def test_one_request_does_not_use_up_the_time(mode: Mode, server: FaultServer) -> None:
    server.script("hang", 200)
    with client(mode, server.url) as api:
        began = time.monotonic()
        with pytest.raises(errors.NotReady) as caught:
            api.wait_until_ready(within=0.4)
        assert time.monotonic() - began < 30
    assert caught.value.unavailable


def test_a_surrounding_deadline_and_retry_after_are_honoured(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    with client(mode, server.url) as api, instant() as clock:
        with pytest.raises(errors.NotReady), deadline(3):
            api.wait_until_ready(within=60)
        assert sum(clock.slept) <= 3
        server.script(Answer(503, {"retry-after": "600"}))
        before = server.count
        with pytest.raises(errors.NotReady):
            api.wait_until_ready(within=60)
        assert server.count == before + 1


def test_an_outer_retry_does_not_wait_again(mode: Mode, server: FaultServer) -> None:
    server.script(503)
    with client(mode, server.url) as api, instant() as clock, pytest.raises(errors.NotReady) as caught:
        retry(QUICK, on=errors.NotReady).call(api.wait_until_ready, within=10)
    assert sum(clock.slept) <= 10
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.reason == "nested"


def test_invalid_values_are_rejected(mode: Mode, server: FaultServer) -> None:
    with client(mode, server.url) as api:
        with pytest.raises(ValueError, match="within"):
            api.wait_until_ready(within=0)
        with pytest.raises(ValueError, match="is not at"):
            api.wait_until_ready("http://elsewhere/health")
