"""FaultServer follows its script, over real connections."""

from __future__ import annotations

import http.client
import socket
import threading
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime

import pytest

from redrive.testing.http_server import Answer, FaultServer, Step, refused, unreachable


def get(url: str, *, method: str = "GET", body: bytes | None = None, timeout: float = 5) -> tuple[int, bytes]:
    request = urllib.request.Request(url, data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:  # Python 3.14 warns about an open one that is collected
            return error.code, error.read()


def test_steps_follow_each_other_and_the_last_repeats() -> None:
    with FaultServer(503, Answer(200, body=b"here")) as server:
        assert [get(server.url) for _ in range(3)] == [(503, b""), (200, b"here"), (200, b"here")]
        assert server.count == 3


def test_an_empty_script_responds_with_200() -> None:
    with FaultServer() as server:
        assert get(server.url) == (200, b"")


def test_requests_are_recorded() -> None:
    with FaultServer() as server:
        get(server.url + "/a?b=1", method="PUT", body=b"payload")
        (request,) = server.requests
        assert (request.method, request.path, request.body) == ("PUT", "/a?b=1", b"payload")
        assert request.headers["content-length"] == "7"


def test_chunked_bodies_are_read() -> None:
    with FaultServer() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", "/", body=iter([b"one", b"two"]), encode_chunked=True)
        assert connection.getresponse().status == 200
        connection.close()
        assert server.requests[0].body == b"onetwo"


def test_waits_are_the_times_between_requests() -> None:
    with FaultServer() as server:
        get(server.url)
        time.sleep(0.1)
        get(server.url)
        (wait,) = server.waits
        assert wait >= 0.1


def test_a_path_may_have_its_own_script() -> None:
    with FaultServer(404) as server:
        server.script(500, 200, path="/x")
        assert [get(server.url + path)[0] for path in ("/x?q", "/y", "/x", "/x")] == [500, 404, 200, 200]


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("reset", ConnectionResetError),
        ("close", http.client.RemoteDisconnected),
        ("hang", TimeoutError),
        ("garbage", http.client.BadStatusLine),
        (Answer(body=b"half", trouble="cut"), http.client.IncompleteRead),
        (Answer(delay=60), TimeoutError),
        (Answer(body=b"slow", trouble="drip", pace=60), TimeoutError),
    ],
    ids=str,
)
def test_each_fault_fails_as_documented(step: Step, error: type[Exception]) -> None:
    with FaultServer(step) as server:
        patience = 0.2 if error is TimeoutError else 60  # the responding server may be on a very busy machine
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patience)
        with pytest.raises(error):  # some fail at the status line, some in the body
            connection.request("GET", "/")
            connection.getresponse().read()
        connection.close()
        assert server.count == 1


def test_a_drip_arrives_completely() -> None:
    with FaultServer(Answer(body=b"slow", trouble="drip", pace=0.01)) as server:
        assert get(server.url) == (200, b"slow")


def test_close_leaves_no_thread_while_a_request_hangs() -> None:
    before = threading.active_count()
    server = FaultServer("hang").start()
    with pytest.raises(TimeoutError):
        get(server.url, timeout=0.1)
    idle = http.client.HTTPConnection("127.0.0.1", server.port)
    idle.connect()
    server.close()
    server.close()
    assert threading.active_count() == before
    idle.close()


def test_headers_of_an_response_replace_default_headers() -> None:
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    with FaultServer(Answer(headers={"Date": date, "Retry-After": "2"}), 200) as server:
        with urllib.request.urlopen(server.url) as response:
            assert response.headers.get_all("date") == [date]
            assert response.headers["retry-after"] == "2"
        with urllib.request.urlopen(server.url) as response:
            assert parsedate_to_datetime(response.headers["date"])


def test_bodyless_responses_keep_the_connection_usable() -> None:
    with FaultServer(204, Answer(200, body=b"later")) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b""
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"later"
        connection.close()


def test_refused_rejects_connections() -> None:
    with refused() as url, pytest.raises(urllib.error.URLError) as caught:
        urllib.request.urlopen(url)
    assert isinstance(caught.value.reason, ConnectionRefusedError)


def test_unreachable_never_connects() -> None:
    with unreachable() as url, pytest.raises(urllib.error.URLError) as caught:
        urllib.request.urlopen(url, timeout=0.2)
    assert isinstance(caught.value.reason, TimeoutError)


def test_a_server_that_was_not_started_has_no_address() -> None:
    with pytest.raises(RuntimeError, match="not been started"):
        FaultServer().url  # noqa: B018


def test_half_of_a_head_is_not_a_response() -> None:
    with FaultServer("half") as server, socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        said = b""
        while part := client.recv(1000):
            said += part
        assert said.startswith(b"HTTP/1.1 200")
        assert b"\r\n" not in said


def test_a_half_open_connection_responds_once() -> None:
    with FaultServer(Answer(body=b"here", trouble="half-open"), Answer(body=b"new")) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"here"
        connection.sock.settimeout(0.2)
        connection.request("GET", "/")  # accepted by the kernel, and never read
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()
        assert get(server.url) == (200, b"new")
        assert (server.count, server.connections) == (2, 2)


def test_connections_are_counted() -> None:
    with FaultServer() as server:
        assert (server.connections, server.open) == (0, 0)
        kept = http.client.HTTPConnection("127.0.0.1", server.port)
        for _ in range(2):
            kept.request("GET", "/")
            assert kept.getresponse().read() == b""
        assert (server.count, server.connections, server.open) == (2, 1, 1)
        kept.close()
        end = time.monotonic() + 60
        while server.open and time.monotonic() < end:
            time.sleep(0.01)
        assert server.open == 0


def test_a_server_that_was_down_keeps_its_address() -> None:
    with FaultServer(200, 201) as server:
        kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        kept.request("GET", "/")
        assert kept.getresponse().status == 200
        address = server.url
        with server.down():
            kept.close()
            with pytest.raises(urllib.error.URLError) as caught:
                urllib.request.urlopen(address)
            assert isinstance(caught.value.reason, ConnectionRefusedError)
        assert server.url == address
        assert get(address)[0] == 201
        assert (server.count, server.connections) == (2, 2)


def test_an_upstream_does_the_work_even_if_its_response_is_lost() -> None:
    with (
        FaultServer(Answer(202, {"x-own": "1"}, b"done")) as real,
        FaultServer("pass", "lost", Answer(passed=True, trouble="cut"), 503, upstream=real.url) as server,
    ):
        with urllib.request.urlopen(urllib.request.Request(f"{server.url}/a?b", data=b"work", method="PUT")) as response:
            assert (response.status, response.headers["x-own"], response.read()) == (202, "1", b"done")
        (seen,) = real.requests
        assert (seen.method, seen.path, seen.body) == ("PUT", "/a?b", b"work")
        with pytest.raises(ConnectionResetError):
            get(server.url)
        with pytest.raises(http.client.IncompleteRead):
            get(server.url)
        assert get(server.url)[0] == 503
        assert (server.count, real.count) == (4, 3)


def test_a_missing_upstream_is_a_502() -> None:
    with refused() as nobody, FaultServer(upstream=nobody) as server:
        assert get(server.url)[0] == 502
    with pytest.raises(ValueError, match="pass upstream="):
        FaultServer("pass")


def test_a_cut_response_of_the_upstream_has_its_full_length() -> None:
    with FaultServer(Answer(body=b"0123456789")) as behind, FaultServer(upstream=behind.url) as server:
        server.script(Answer(passed=True, trouble="cut"))
        with pytest.raises(http.client.IncompleteRead) as caught:
            urllib.request.urlopen(server.url).read()
        assert (caught.value.partial, caught.value.expected) == (b"01234", 5)


def test_the_upstreams_response_to_head_has_a_length() -> None:
    with FaultServer(Answer(body=b"0123456789", length=10)) as behind, FaultServer(upstream=behind.url) as server:
        with urllib.request.urlopen(urllib.request.Request(server.url, method="HEAD")) as answer:
            assert answer.headers["Content-Length"] == "10"
        assert behind.requests[0].headers["host"] == f"127.0.0.1:{server.port}"
