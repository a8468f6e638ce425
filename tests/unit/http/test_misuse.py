"""Invalid arguments raise at once and name the fix. Tokens are sent only to the client's server."""

from __future__ import annotations

from typing import Any

import httpx
import httpx2
import pytest

from redrive import RetryPolicy, http, retry
from redrive.http.request import BaseUrl
from redrive.testing import Answer, FaultServer
from tests.named import case_name


@pytest.mark.parametrize("kind", [http.Client, http.AsyncClient])
def test_an_unknown_option_is_rejected_with_the_known_ones(kind: Any) -> None:
    expected = rf"^http\.{kind.__name__} has no option 'retries'; use one of: auth, .*, such as retry=retry\("
    with pytest.raises(TypeError, match=expected):
        kind("http://crm", retries=3)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "must begin with http:// or https:// and a host"),
        ("crm.example.com", "must begin with http:// or https://"),
        ("ftp://crm.example.com", "must begin with http:// or https://"),
        ("http://", "and a host"),
        ("/v1", "and a host"),
        ("http://crm:99999", "is not a "),
        ("http://crm\n.example.com", "is not a "),
        ("http://ann:secret@crm", "pass auth="),
        ("http://crm/?a=1", r"must not contain \? or #"),
        ("http://crm/#a", r"must not contain \? or #"),
        ("http://crm/?", r"must not contain \? or #"),
    ],
)
@pytest.mark.parametrize("kind", [http.Client, http.AsyncClient])
def test_an_invalid_base_url_is_rejected(kind: Any, url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        kind(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"auth": ""}, "auth must be printable ASCII"),
        ({"auth": "se cret\n"}, "auth must be printable ASCII"),
        ({"auth": ("ann", "secret")}, "a bearer token or an httpx2.Auth, not tuple"),
        ({"user": 7}, "user must be text, not int"),
        ({"user": "jörg"}, "user must be printable ASCII"),
        ({"headers": [("a", "b")]}, "a mapping of names to text, not list"),
        ({"headers": {"a b": "c"}}, "has an invalid name: 'a b'"),
        ({"headers": {"a": 1}}, "header 'a' must be text, not int"),
        ({"headers": {"a": "secret\r\nb: c"}}, "header 'a' must be printable ASCII"),
        ({"retry": 3}, "retry= must be a RetryPolicy or a result of retry"),
        ({"retry": retry(key="a:{b}:c:d:v1")}, "pass idempotency_key= to the call"),
        ({"retry": retry(spill=lambda *_: None)}, "a client cannot enqueue a request as a job"),
        ({"client": httpx.Client()}, "use redrive.http.Transport with other clients"),
        ({"client": "x"}, "must be an httpx2"),
    ],
    ids=case_name,
)
@pytest.mark.parametrize("kind", [http.Client, http.AsyncClient])
def test_invalid_client_options_are_rejected(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        kind("http://crm", **options)
    assert "secret" not in str(caught.value).replace("'secret'", "secret" if "auth" not in options else "")


def test_a_sync_client_rejects_an_async_httpx_client_and_vice_versa() -> None:
    with pytest.raises(TypeError, match="client= must be an httpx2.Client, not httpx2"):
        http.Client("http://crm", client=httpx2.AsyncClient())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="client= must be an httpx2.AsyncClient, not httpx2"):
        http.AsyncClient("http://crm", client=httpx2.Client())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"json": {}, "content": b""}, "two bodies; pass one"),
        ({"json": {1, 2}}, "not JSON serializable"),
        ({"content": 5}, "content"),
        ({"idempotency_key": 5}, "must be a Key, its text, or True"),
        ({"idempotency_key": False}, "must be a Key, its text, or True"),
        ({"idempotency_key": ""}, "has 1 to 255 characters; this one has 0"),
        ({"idempotency_key": "x" * 256}, "has 1 to 255 characters; this one has 256"),
        ({"ok_statuses": 409}, "a set of statuses such as .409., not 409"),
        ({"ok_statuses": ["409"]}, "a set of statuses"),
        ({"operation": ""}, "operation= must be the name of the call"),
        ({"into": 5}, "into= must be the type of the response"),
        ({"into": "Session"}, "into= must be the type of the response"),
        ({"headers": {"a": "b\n"}}, "header 'a' must be printable"),
        ({"timeout": 0}, "timeout must be above 0"),
    ],
    ids=case_name,
)
def test_invalid_call_options_are_rejected_before_sending(options: dict[str, Any], message: str) -> None:
    with FaultServer() as server, http.Client(server.url) as api:
        with pytest.raises((TypeError, ValueError), match=message):
            api.post("/", **options)
        assert server.connections == 0


@pytest.mark.parametrize("method", ["", "G ET", 7, "GET\r\n"])
def test_an_invalid_method_is_rejected(method: Any) -> None:
    with pytest.raises(TypeError, match="a method must be a word"), http.Client("http://127.0.0.1:1") as api:
        api.request(method, "/")


@pytest.mark.parametrize("path", ["/a", "a", "", "?a=1", "/a//b", "/../a", "tasks:run", "http:/a", "/http://evil/", " //evil"])
def test_a_path_stays_on_the_same_server(path: str) -> None:
    url = httpx2.URL(BaseUrl("https://crm.example.com/v1").join(path))
    assert (url.scheme, url.netloc) == ("https", b"crm.example.com")


def test_an_absolute_url_of_the_same_server_is_accepted() -> None:
    assert BaseUrl("https://crm/v1").join("https://crm:443/next?page=2") == "https://crm:443/next?page=2"


@pytest.mark.parametrize(
    "path",
    ["http://crm/", "https://crm:8443/", "https://evil/", "//evil/a", "https://crm@evil/", "https://ann@crm/", "\\\\evil\\a"],
)
def test_an_absolute_url_of_another_server_is_rejected(path: str) -> None:
    with pytest.raises(ValueError, match="sends its token and headers to no other server|is not a valid URL"):
        BaseUrl("https://crm/v1").join(path)


def test_an_invalid_path_is_rejected() -> None:
    with pytest.raises(TypeError, match="path must be text such as"):
        BaseUrl("http://crm").join(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not a "):
        BaseUrl("http://crm").join("http://crm:x/")


def test_a_redirect_to_another_server_does_not_carry_the_token() -> None:
    with (
        FaultServer() as other,
        FaultServer(Answer(307, {"location": other.url.replace("127.0.0.1", "localhost")})) as server,
        httpx2.Client(follow_redirects=True) as mine,
    ):
        http.Client(server.url, auth="secret", client=mine).get("/")
        assert server.requests[0].headers["authorization"] == "Bearer secret"
        (seen,) = other.requests
        assert "authorization" not in seen.headers


def test_redirects_are_not_followed_by_default() -> None:
    with FaultServer() as other, FaultServer(Answer(307, {"location": other.url})) as server, http.Client(server.url) as api:
        with pytest.raises(httpx2.HTTPStatusError, match="Redirect location"):
            api.get("/")
        assert other.connections == 0


def test_repr_contains_no_secret() -> None:
    api = http.Client("http://crm/v1/", auth="secret", headers={"x-api-key": "secret"})
    assert repr(api) == "Client('http://crm/v1')"
    assert "secret" not in repr(api.__redrive__)


@pytest.mark.req("C-7")
def test_clients_and_transports_appear_in_the_layers_report() -> None:
    from redrive.analysis.report import layers

    api = http.AsyncClient("http://crm:8080", retry=RetryPolicy(max_attempts=4))
    report = layers([retry(max_attempts=3, operation="handler"), api, http.Transport(retry=retry(operation="wire"))])
    assert [layer.name for layer in report.layers] == ["handler", "http crm:8080", "wire"]
    assert not report.multiplies


def test_creating_a_client_starts_no_thread() -> None:
    import threading

    before = threading.active_count()
    with http.Client("http://127.0.0.1:1"):
        pass
    assert threading.active_count() == before


def test_an_unknown_name_of_the_package_raises() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clint'"):
        http.Clint  # type: ignore[attr-defined]  # noqa: B018
    assert dir(http) == ["AsyncClient", "Client", "Transport"]
