"""The id of a key."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from redrive.idempotency.record import KeyId

PARTS = st.text() | st.sampled_from(["", "a", ":", "%", "é", " "])


@example("a", "", "b", "", "v1")
@given(PARTS, PARTS, PARTS, PARTS, PARTS)
def test_from_template_agrees_with_of(domain: str, user: str, entity: str, operation: str, version: str) -> None:
    """The fast path agrees with the full parser, for invalid keys too."""
    text = f"{domain}:{user}:{entity}:{operation}:{version}"

    def outcome(read: Any) -> object:
        try:
            return read(text)
        except ValueError:
            return None

    fast, full = outcome(KeyId.from_template), outcome(KeyId.of)
    assert fast == full
