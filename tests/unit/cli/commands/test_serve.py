"""`redrive serve`: its address, its errors, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from redrive.cli.root import app
from redrive.console import server
from redrive.console.security.credentials import AccessControl
from redrive.ledger import open_ledger
from redrive.ops.sign_in.hashes import Password, hashed_token
from redrive.settings import ConsoleSettings
from tests.unit.cli.command import PROGRAM, call, sqlite


@pytest.fixture
def url(tmp_path: Path) -> str:
    open_ledger(sqlite(tmp_path), migrate=True).close()
    return sqlite(tmp_path)


@pytest.mark.req("O-4")
@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "ops.example"])
def test_another_address_needs_a_password_or_a_token(url: str, host: str) -> None:
    status, printed = call("serve", url, "--host", host, "--port", "0")
    assert status == 2
    assert "reachable from other machines" in printed
    assert "REDRIVE_CONSOLE_PASSWORD" in printed


def test_a_startup_error_is_one_line(url: str, tmp_path: Path) -> None:
    status, printed = call("serve", url, REDRIVE_CONSOLE_PASSWORD="short")
    assert (status, "at least 8 characters" in printed) == (2, True)
    assert call("serve", f"sqlite:///{tmp_path / 'none.db'}", "--port", "0")[0] == 3
    assert call("serve", "no_such_module:app", "--port", "0")[0] == 2
    status, printed = call("serve", url, "--host", "198.51.100.1", "--port", "0", REDRIVE_CONSOLE_TOKEN="0123456789abcdef")
    assert (status, "console: cannot listen there" in printed) == (2, True)


@pytest.mark.req("O-4")
def test_a_hashed_password_is_accepted_by_the_console(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["serve", "--hash", "password"], input="correct horse\n")
    assert done.exit_code == 0
    hashed = done.stdout.strip()
    assert Password.read(hashed).matches("correct horse")
    assert CliRunner().invoke(app, ["serve", "--hash", "password"], input="short\n").exit_code == 2
    made = json.loads(call("serve", "--hash", "token", "--json")[1])
    assert made["hash"] == hashed_token(made["token"])
    assert call("serve", "--hash", "token")[1].splitlines()[1].startswith("hash   sha256:")
    monkeypatch.chdir(tmp_path)
    table = '[console]\nhost = "198.51.100.1"\nport = 0\n'
    Path("redrive.toml").write_text(f'{table}password = "{hashed}"\ntoken = "{made["hash"]}"\n')
    status, printed = call("serve", url)
    assert (status, "console: cannot listen there" in printed, "clear text" in printed) == (2, True, False)
    Path("redrive.toml").write_text(f'{table}password = "correct horse"\n')
    status, printed = call("serve", url)
    assert "redrive: console.password is in clear text in redrive.toml; hash it with `redrive serve --hash password`" in printed
    assert "correct horse" not in printed


def test_serve_prints_its_address_and_ends_on_sigterm(url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, "serve", "--ledger", url, "--port", "0", "--read-only", "--json"]
    environment = os.environ | {"REDRIVE_CONSOLE_TOKEN": "0123456789abcdef"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        said = json.loads(child.stdout.readline())
        assert (said["event"], said["guarded"], said["read_only"], said["ledger"]) == ("started", True, True, url)
        with urllib.request.urlopen(f"{said['url']}ready") as answer:
            assert json.load(answer) == {"status": "ok"}
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0


def test_a_signal_right_after_the_start_ends_it(url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, "serve", "--ledger", url, "--port", "0", "--json"]
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            child.send_signal(number)  # at once: uvicorn may not have its own handlers yet
            assert child.wait(60) == 0


def test_a_signal_before_the_server_runs_ends_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_ledger(url) as ledger, server.bind("127.0.0.1", 0) as listening:
        server.serve(ledger, AccessControl(), listening, on_start=lambda: signal.raise_signal(signal.SIGTERM))


def test_a_request_whose_head_does_not_arrive_is_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    heard: list[bytes] = []

    def slow() -> None:
        with socket.create_connection(listening.getsockname(), timeout=60) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            while not heard or not heard[0].endswith(b"}"):
                heard[:] = [b"".join(heard) + connection.recv(65536)]
            connection.sendall(b"GET /health HTTP/1.1\r\nx: ")  # and nothing else
            heard.append(connection.recv(65536))
        signal.raise_signal(signal.SIGTERM)

    with open_ledger(url) as ledger, server.bind("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=slow)
        server.serve(ledger, AccessControl(), listening, on_start=thread.start)
        thread.join()
    assert heard[0].startswith(b"HTTP/1.1 200 OK")
    assert heard[1:] == [b""]


@pytest.mark.req("X-4")
@pytest.mark.parametrize(
    ("options", "variables", "message"),
    [
        (["--proxy-header", "X-User"], {}, "TrustedProxy: addresses= is empty; name the addresses of the proxy"),
        (["--proxy-address", "10.0.0.5"], {}, "console.proxy_header: missing; name the header with the user"),
        (["--proxy-header", "X-User", "--proxy-address", "ten"], {}, "TrustedProxy: invalid address 'ten'"),
        ([], {"OIDC_ISSUER": "https://login.example"}, "console.oidc_client_id: missing"),
        ([], {"OIDC_CLIENT_ID": "console"}, "console.oidc_issuer: missing"),
        ([], {"OIDC_ISSUER": "https://login.example", "OIDC_CLIENT_ID": "console"}, "OIDC: no user would have access"),
        ([], {"OIDC_ISSUER": "http://login.example", "OIDC_CLIENT_ID": "c", "ROLE": "viewer"}, "OIDC: invalid issuer"),
        (
            [],
            {"OIDC_ISSUER": "https://login.example", "OIDC_CLIENT_ID": "c", "OIDC_SECRET_FILE": "/nowhere"},
            "console.oidc_secret_file: /nowhere: No such file or directory",
        ),
        ([], {"ROLES": "sre:operator"}, "console.roles: invalid entry 'sre:operator'; use sre=operator"),
        ([], {"ROLES": "sre=operator"}, "console.roles: no user has groups; set console.proxy_groups or console.oidc_issuer"),
        (["--proxy-header", "X-User", "--proxy-address", "10.0.0.5"], {"ROLES": "sre=operator"}, "no user has groups"),
        ([], {"ROLE": "admin"}, "console.role: invalid role 'admin'; use viewer or operator"),
        ([], {"OIDC_ISUER": "https://login.example"}, "did you mean 'REDRIVE_CONSOLE_OIDC_ISSUER'?"),
    ],
)
def test_an_invalid_way_in_is_reported_before_serving(
    url: str, options: list[str], variables: dict[str, str], message: str
) -> None:
    environment = {f"REDRIVE_CONSOLE_{name}": value for name, value in variables.items()}
    status, printed = call("serve", url, "--port", "0", *options, width=200, **environment)
    assert (status, message in printed) == (2, True), printed


@pytest.mark.req("X-4")
def test_a_provider_takes_each_setting() -> None:
    """The settings of `redrive serve` are the fields of OIDC."""
    texts = {name: f"a {name}" for name in ("client_id", "secret", "claim", "name_claim")} | {"scope": "openid groups"}
    addresses = {"issuer": "https://login.example", "redirect_url": "https://ops.example/login/oidc/callback"}
    settings = ConsoleSettings(role="viewer", **{f"oidc_{name}": value for name, value in (texts | addresses).items()})  # type: ignore[arg-type]
    oidc = server.sign_in_from_settings(settings).oidc
    assert oidc is not None
    texts["client_secret"] = texts.pop("secret")
    assert {name: getattr(oidc, name) for name in texts | addresses} == texts | addresses


@pytest.mark.req("X-4")
def test_a_trusted_proxy_lets_users_in(url: str) -> None:
    """The connection is from 127.0.0.1, also if the proxy forwards another address."""
    proxy = ["--proxy-header", "X-User", "--proxy-address", "127.0.0.1"]
    command = [sys.executable, "-c", PROGRAM, "serve", "--ledger", url, "--port", "0", "--json", *proxy]
    environment = os.environ | {"REDRIVE_CONSOLE_PROXIES": "127.0.0.1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        said = json.loads(child.stdout.readline())
        assert said["guarded"]
        headers = {"X-User": "ann", "X-Forwarded-For": "203.0.113.9"}
        with urllib.request.urlopen(urllib.request.Request(f"{said['url']}jobs", headers=headers)) as answer:
            assert ">ann<" in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{said['url']}jobs")
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
