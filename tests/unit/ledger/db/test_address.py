"""The address of a ledger."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from redrive.errors import LedgerError
from redrive.journal.redaction.secrets import address_secrets
from redrive.ledger.db.address import database_of, migrate_command, parse


@pytest.mark.req("J-4")
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@db/shop", "postgresql://ann:***@db/shop"),
        ("postgresql://ann:s3%40cret@db/shop?sslmode=require", "postgresql://ann:***@db/shop?sslmode=require"),
        ("postgresql://db/shop?user=ann&password=s3cret", "postgresql://db/shop?user=ann&password=***"),
        ("postgresql://db/shop?PASSWORD=s3cret&sslpassword=other&x=1", "postgresql://db/shop?PASSWORD=***&sslpassword=***&x=1"),
        ("sqlite:///ledger.db", "sqlite:///ledger.db"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    found = parse(url)
    assert found.shown == shown
    assert "s3" not in found.shown


@pytest.mark.parametrize(
    ("query", "left", "pooled"),
    [
        ("", "", False),
        ("?pool_mode=transaction", "", True),
        ("?pool_mode=session", "", False),
        ("?pool_mode=transaction&sslmode=disable", "?sslmode=disable", True),
        ("?sslmode=disable&pool_mode=transaction", "?sslmode=disable", True),
    ],
)
def test_the_pool_mode_is_not_passed_to_the_driver(query: str, left: str, pooled: bool) -> None:
    found = parse(f"postgresql://ann@db/shop{query}")
    assert (found.target, found.pooled) == (f"postgresql://ann@db/shop{left}", pooled)


def test_an_unknown_pool_mode_is_rejected() -> None:
    with pytest.raises(LedgerError, match="pool_mode must be transaction or session, as in the pooler, not 'statement'"):
        parse("postgresql://ann@db/shop?pool_mode=statement")


SEVERAL_HOSTS = {
    "postgresql://a:5432,b:5433/shop?target_session_attrs=read-write": ("a,b", "5432,5433"),
    "postgresql://a,b/shop?port=1,2": ("a,b", "1,2"),
    "postgresql:///shop?host=a,b&port=1,2&target_session_attrs=read-write": ("a,b", "1,2"),
    "postgresql://a:1,b,c:3/shop?load_balance_hosts=random": ("a,b,c", "1,,3"),
    "postgresql://[::1]:5432,[2001:db8::2]:5433/shop": ("::1,2001:db8::2", "5432,5433"),
    "postgresql://db-1:5432,[fe80::1%25eth0]/shop": ("db-1,fe80::1%eth0", "5432,"),
    "postgresql:///shop?host=::1,::2": ("::1,::2", None),
    "postgresql:///shop?host=/var/run/postgresql,b": ("/var/run/postgresql,b", None),
}


@pytest.mark.req("E-8")
@pytest.mark.parametrize(("url", "servers"), SEVERAL_HOSTS.items())
def test_several_hosts_reach_the_driver_in_every_spelling(url: str, servers: tuple[str, str | None]) -> None:
    found = parse(url)
    options = conninfo_to_dict(found.target)
    assert (options["host"], options.get("port")) == servers
    assert found.shown == url
    assert address_secrets(url) == []


@pytest.mark.req("E-8", "J-4")
@pytest.mark.parametrize("password", ["s3cret,Pw9", "s3%40cret%2CPw9", "s3%25cret%3APw9", "s3+cret&Pw9", "s3%2Fcret%3FPw9"])
def test_a_password_for_several_hosts_is_never_shown(password: str) -> None:
    for url in (
        f"postgresql://ann:{password}@a:1,[::1]:2/shop?target_session_attrs=primary",
        f"postgresql://ann:{password}@/shop?host=a,::1&port=1,2",
    ):
        found = parse(url)
        command = migrate_command(found.shown)
        assert found.shown == url.replace(password, "***")
        assert "s3" not in command
        assert url.replace(f":{password}", "") in command, "it runs as printed"


@pytest.mark.req("E-8")
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://a,b/shop?target_session_attrs=readwrite", "invalid target_session_attrs 'readwrite'; use read-write"),
        ("postgresql://a,b/shop?load_balance_hosts=yes", "invalid load_balance_hosts 'yes'; use disable or random"),
        ("postgresql://a,b/shop?port=1,2,3", "3 ports for 2 hosts; write one port for each host, or one for all"),
        ("postgresql://a:1,b:0/shop", "has no usable port"),
        ("postgresql://a:1,b:99999/shop", "a port is a number up to 65535"),
        ("postgresql://a:1,b:x/shop", "a port is a number up to 65535"),
        ("postgresql://a:1,[::1/shop", "cannot be read"),
        ("postgresql://a:1,b:2", "names no database"),
    ],
)
def test_an_invalid_list_of_hosts_is_rejected_before_anything_is_opened(url: str, problem: str) -> None:
    with pytest.raises(LedgerError) as caught:
        parse(url)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.req("E-8")
def test_a_database_is_the_same_in_every_spelling_of_its_address() -> None:
    assert len({
        database_of("postgresql://ann@a:1,b:2/shop?target_session_attrs=read-write"),
        database_of("postgres:///shop?host=b,a"),
        database_of("postgresql+psycopg://bob:***@B,A/shop"),
    }) == 1  # fmt: skip
    assert database_of("postgresql:///shop?host=a,b") != database_of("postgresql:///shop?host=c,d")
    assert database_of("sqlite:///a.db") != database_of("sqlite:///b.db")
