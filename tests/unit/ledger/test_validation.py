"""Values that are stored come back unchanged: arrays, timestamps, names and errors."""

from __future__ import annotations

from datetime import datetime, timezone

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.ledger import validation
from redrive.ledger.db import compiled
from redrive.ledger.timestamps import from_db, to_micros

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_a_timestamp_survives_the_round_trip(given_: datetime) -> None:
    assert from_db(to_micros(given_)) == given_
    assert from_db(given_) == given_


def test_a_timestamp_without_a_time_zone_is_rejected() -> None:
    with pytest.raises(ValueError, match="time zone"):
        to_micros(datetime(2030, 1, 1))  # noqa: DTZ001


def test_arrays_survive_the_round_trip(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:

        @given(
            st.lists(st.none() | TEXT),
            st.lists(st.none() | st.binary()),
            st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
            st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
            st.lists(st.none() | st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(timezone.utc))),  # noqa: DTZ001
            st.lists(st.none() | st.booleans()),
        )
        def survive(
            texts: list[str | None],
            blobs: list[bytes | None],
            numbers: list[int | None],
            floats: list[float | None],
            moments: list[datetime | None],
            truths: list[bool | None],
        ) -> None:
            found = connection.execute(
                "SELECT %s::text[], %s::bytea[], %s::bigint[], %s::float8[], %s::timestamptz[], %s::boolean[]",
                (
                    compiled.text_array(texts), compiled.bytes_array(blobs), compiled.int_array(numbers),
                    compiled.int_array(floats), compiled.timestamp_array(moments), compiled.int_array(truths),
                ),
            ).fetchone()  # fmt: skip
            assert found == (texts, blobs, numbers, floats, moments, truths)

        survive()


@given(st.text())
def test_any_error_can_be_stored(text: str) -> None:
    kept = validation.storable_text(text)
    assert kept is not None
    assert "\x00" not in kept
    kept.encode()


def test_a_long_error_keeps_its_beginning_and_its_end() -> None:
    kept = validation.storable_text("begin" + "x" * 100_000 + "end")
    assert kept is not None
    assert kept.startswith("begin")
    assert kept.endswith("end")
    assert "characters left out" in kept
    assert len(kept) < validation.MAX_ERROR_CHARS + 100
