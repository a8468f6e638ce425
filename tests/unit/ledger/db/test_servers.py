"""The order in which the servers of an address are tried."""

from __future__ import annotations

from typing import Any, NoReturn

import psycopg
import pytest

from redrive.ledger.db.postgres import ATTRIBUTES_VARIABLE, Servers, WatchedConnection


def driver_options(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options that reach the driver. Nothing is connected."""
    options: dict[str, Any] = {}

    def refuse(_target: str, **given: Any) -> NoReturn:
        options.update(given)
        raise psycopg.OperationalError("no server here")

    monkeypatch.setattr(WatchedConnection, "connect", refuse)
    monkeypatch.delenv(ATTRIBUTES_VARIABLE, raising=False)
    with pytest.raises(psycopg.OperationalError):
        servers.connect()
    return options


@pytest.mark.req("E-8")
def test_several_hosts_share_the_timeout_and_must_take_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    options = driver_options(Servers("postgresql://a:1,b:2/shop"), monkeypatch)
    assert (options["host"], options["port"]) == ("a,b", "1,2")
    assert (options["connect_timeout"], options["target_session_attrs"]) == (5, "read-write")
    many = driver_options(Servers("postgresql:///shop?host=a,b,c,d,e,f"), monkeypatch)
    assert many["connect_timeout"] == 2


def test_one_host_keeps_its_timeout_and_may_be_a_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    options = driver_options(Servers("postgresql://a:1/shop"), monkeypatch)
    assert options["connect_timeout"] == 10
    assert "target_session_attrs" not in options


@pytest.mark.req("E-8")
def test_options_of_the_address_and_the_environment_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    options = driver_options(Servers("postgresql://a,b/shop?target_session_attrs=any&connect_timeout=7"), monkeypatch)
    assert not {"target_session_attrs", "connect_timeout"} & options.keys()


@pytest.mark.req("E-8")
def test_a_server_that_accepts_and_does_not_respond_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = Servers("postgresql://a:1,b:2,c:3/shop")
    driver_options(servers, monkeypatch)
    servers.skip()
    options = driver_options(servers, monkeypatch)
    assert (options["host"], options["port"]) == ("b,c,a", "2,3,1")
    servers.skip()
    servers.skip()
    assert driver_options(servers, monkeypatch)["host"] == "a,b,c"
