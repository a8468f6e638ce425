"""Events that are made without validation."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import datetime, timezone

import pytest

from redrive import Event
from redrive.messages.event import trusted_event


def test_a_trusted_event_is_equal_to_a_validated_one() -> None:
    at = datetime(2026, 11, 18, tzinfo=timezone.utc)
    trusted = trusted_event("paid", ("p", 1), "p-1", "shop", {"user_id": "ann"}, at)
    validated = Event("paid", ("p", 1), id="p-1", source="shop", headers={"user_id": "ann"}, at=at)
    assert trusted == validated
    assert type(trusted) is Event
    assert repr(trusted) == repr(validated)


def test_a_trusted_event_is_immutable() -> None:
    event = trusted_event("paid", 1, "p-1", "shop", {}, None)
    with pytest.raises(FrozenInstanceError):
        event.type = "lost"  # type: ignore[misc]
