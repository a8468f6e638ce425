"""Where a ledger is: what is shown of it."""

from __future__ import annotations

import pytest

from redrive.ledger.address import parse


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
