"""The address of a ledger."""

from __future__ import annotations

import pytest

from redrive.errors import LedgerError
from redrive.ledger.db.address import parse


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
