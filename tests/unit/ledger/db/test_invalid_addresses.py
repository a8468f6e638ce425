"""Invalid addresses: no error shows the password."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.http import AsyncClient, Client
from redrive.http.request import BaseUrl
from redrive.journal.redaction import redact_text
from redrive.journal.redaction.secrets import redact_address
from redrive.ledger import open_ledger
from redrive.messages import RedisStream
from redrive.storage.registry import to_registry
from tests.unit.cli.command import call

PASSWORDS = ["S3cretPw", *(f"S3cret{sign}Pw9" for sign in "@/#?: %["), "[S3cretPw"]
FORMS = [
    "{scheme}://ann:{pw}@127.0.0.1:1/shop",
    "{scheme}//ann:{pw}@127.0.0.1:1/shop",
    "{scheme}:ann:{pw}@127.0.0.1:1/shop",
    "{scheme}:/ann:{pw}@127.0.0.1:1/shop",
    "ann:{pw}@127.0.0.1:1/shop",
    "//ann:{pw}@127.0.0.1:1/shop",
    "{scheme}://ann:{pw}",
    "{scheme}://ann:{pw}/shop",
    "{scheme}://ann:{pw}@127.0.0.1:port/shop",
    "{scheme}://ann:{pw}@127.0.0.1:99999/shop",
    "{scheme}://ann:{pw}@127.0.0.1",
    "{scheme}://ann:{pw}@127.0.0.1:1,127.0.0.2:1/shop",
    "{scheme}://127.0.0.1:1/shop?user=ann&password={pw}",
    "{scheme}://127.0.0.1:1/shop?user=ann&passwrod=1&password={pw}&x",
    " {scheme}://ann:{pw}@127.0.0.1:1/shop",
    "'{scheme}://ann:{pw}@127.0.0.1:1/shop'",
    "{scheme}://ann:{pw}@127.0.0.1:1/shop\n",
    "host=127.0.0.1 port=1 user=ann password='{pw}'",
    "{scheme}://:{pw}@127.0.0.1:1",
]
SCHEMES = ["postgresql", "postgres", "postgressql", "mysql", "redis", "https"]
ADDRESSES = [
    form.format(scheme=scheme, pw=pw)
    for scheme in SCHEMES
    for form in FORMS
    for pw in PASSWORDS
    if "@127" in form or "password" in form or "@" not in pw  # without a host, the text after an @ is one
]


def leaks(text: str) -> bool:
    return "S3cret" in text or "Pw9" in text


def printed_text(act: Callable[[], Any]) -> str:
    """Return all that a program would print of the error: message, notes and causes. Empty after a success."""
    try:
        act()
    except Exception as error:
        text = "".join(traceback.format_exception_only(error))
        seen = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        while seen is not None:
            text += f"{seen!r} {seen}"
            seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
        return text
    return ""


@pytest.mark.req("J-4")
def test_a_shown_address_has_no_password() -> None:
    assert [url for url in ADDRESSES if leaks(redact_address(url))] == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann@db/shop", "postgresql://ann@db/shop"),
        ("postgresql://db:5432,db2:5432/shop?target_session_attrs=read-write", None),
        ("postgresql://[::1]:5432/shop", None),
        ("postgresql://db/shop?user=ann@server", None),
        ("sqlite:///C:/a@b/ledger.db", None),
        ("redis://cache:6379/0", None),
        ("https://crm.example:8443/v1", None),
    ],
)
def test_an_address_without_a_password_is_shown_as_it_is(url: str, shown: str | None) -> None:
    assert redact_address(url) == (shown or url)


@pytest.mark.req("J-4")
def test_no_function_that_takes_an_address_prints_its_password() -> None:
    takers: dict[str, Callable[[str], Any]] = {
        "App": App,
        "repr of App": lambda url: repr(App(url)),
        "RedisStream": lambda url: RedisStream(url, "s", group="g"),
        "Client": Client,
        "AsyncClient": AsyncClient,
        "path": BaseUrl("https://h.example").join,
    }
    found = [(name, url) for name, take in takers.items() for url in ADDRESSES if leaks(printed_text(lambda: take(url)))]  # noqa: B023
    assert found == []


@pytest.mark.req("J-4")
@pytest.mark.parametrize("scheme", ["postgresql", "postgressql"])
def test_no_ledger_that_cannot_be_opened_prints_its_password(scheme: str) -> None:
    urls = [url for url in ADDRESSES[:: len(PASSWORDS) // 2] if url.startswith(scheme)]
    assert [url for url in urls if leaks(printed_text(lambda: open_ledger(url)))] == []  # noqa: B023


@pytest.mark.req("J-4")
def test_the_command_prints_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, form in enumerate(FORMS):
        url = form.format(scheme="postgresql", pw=PASSWORDS[2 + number % 3])
        assert not leaks(call("dead", "list", "--ledger", url)[1]), url
        assert not leaks(call("dead", "list", REDRIVE_LEDGER=url)[1]), url
        Path("redrive.toml").write_text(f'ledger = """{url}"""\n')
        assert not leaks(call("dead", "list")[1]), url
        assert not leaks(call("config")[1]), url
        Path("redrive.toml").unlink()


@pytest.mark.req("J-4")
def test_storage_options_print_no_password() -> None:
    for url in ADDRESSES[:: len(PASSWORDS)]:
        options = {"bucket": "b", "endpoint_url": url, "key": "k", "secret": "S3cretPw", "region_name": "r"}
        for kind in ("s3", "sftp", "azure", "graph", "unknown"):
            given = {"raw": {"type": kind, "options": options}}
            text = printed_text(lambda: to_registry(given).get_store("raw"))  # noqa: B023
            assert not leaks(redact_text(text)), (kind, url)
