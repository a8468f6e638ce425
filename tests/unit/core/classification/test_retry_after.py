"""Retry-After: the wait that a server requests."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.classification.known.http_responses import header, http_date, pushback, retry_after, seconds_until

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
pytestmark = pytest.mark.req("R-6")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("86400000", 86400000.0),
        ("-5", None),
        ("+5", None),
        ("", None),
        ("soon", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        ("٣", None),
        ("12 34", None),
    ],
)
def test_delta_seconds(text: str, seconds: float | None) -> None:
    assert retry_after({"Retry-After": text}, now=NOON) == seconds


def test_a_number_beyond_every_float_stays_finite() -> None:
    said = retry_after({"retry-after": "9" * 5000})
    assert said is not None
    assert math.isfinite(said)


@pytest.mark.parametrize(
    "text",
    ["Sun, 01 Mar 2026 12:00:30 GMT", "Sunday, 01-Mar-26 12:00:30 GMT", "Sun Mar  1 12:00:30 2026"],
    ids=["IMF-fixdate", "RFC 850", "asctime"],
)
def test_all_three_forms_of_an_http_date(text: str) -> None:
    assert retry_after({"retry-after": text}, now=NOON) == 30.0


def test_a_date_in_the_past_means_now() -> None:
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, now=NOON) == 0.0


def test_a_date_counts_from_the_servers_own_clock() -> None:
    hour_slow = NOON - timedelta(hours=1)
    headers = {
        "Date": format_datetime(hour_slow, usegmt=True),
        "Retry-After": format_datetime(hour_slow + timedelta(seconds=20), usegmt=True),
    }
    assert retry_after(headers, now=NOON) == 20.0


def test_an_invalid_date_header_falls_back_to_the_local_clock() -> None:
    headers = {"Date": "yesterday, 12:00", "Retry-After": format_datetime(NOON + timedelta(seconds=9), usegmt=True)}
    assert retry_after(headers, now=NOON) == 9.0


def test_without_now_the_system_clock_counts() -> None:
    moment = datetime.now(timezone.utc) + timedelta(seconds=100)
    said = retry_after({"retry-after": format_datetime(moment, usegmt=True)})
    assert said is not None
    assert 90 < said <= 100


@pytest.mark.parametrize("name", ["retry-after-ms", "x-ms-retry-after-ms", "Retry-After-Ms"])
def test_milliseconds_are_more_exact_than_seconds(name: str) -> None:
    assert retry_after({name: "1500", "retry-after": "2"}) == 1.5


def test_invalid_milliseconds_fall_back_to_seconds() -> None:
    assert retry_after({"retry-after-ms": "-1", "retry-after": "2"}) == 2.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("250", 0.25), ("-1", None), ("soon", None), ("", None), (None, None), ("1.5", None)],
)
def test_pushback(text: str | None, seconds: float | None) -> None:
    assert pushback(text) == seconds


def test_until_takes_naive_for_utc_and_never_goes_below_zero() -> None:
    assert seconds_until(datetime(2026, 3, 1, 12, 1), NOON) == 60.0  # noqa: DTZ001  # the point of the test
    assert seconds_until(NOON, NOON + timedelta(days=1)) == 0.0


class Hostile:
    def get(self, name: str) -> object:
        raise LookupError(name)


@pytest.mark.parametrize("headers", [None, 7, Hostile(), {"retry-after": object()}, {"retry-after": b"\xff"}])
def test_headers_of_any_kind(headers: object) -> None:
    assert retry_after(headers) is None


def test_bytes_and_numbers_are_accepted() -> None:
    assert header({"retry-after": b"5"}, "retry-after") == "5"
    assert retry_after({"retry-after": 5}) == 5.0


dates = st.datetimes(timezones=st.just(timezone.utc)).map(lambda moment: format_datetime(moment, usegmt=True))
words = st.text() | st.integers().map(str) | st.floats().map(str) | dates | st.from_regex(r"\A[0-9:, GMTa-z+-]*\Z")


@given(
    headers=st.dictionaries(st.sampled_from(["retry-after", "Retry-After", "date", "retry-after-ms"]), words),
    now=st.none() | st.datetimes(timezones=st.none() | st.just(timezone.utc)),
)
def test_retry_after_never_raises_and_returns_only_valid_values(headers: dict[str, str], now: datetime | None) -> None:
    said = retry_after(headers, now=now)
    assert said is None or (math.isfinite(said) and said >= 0)


@given(words)
def test_a_date_is_aware_or_none(text: str) -> None:
    moment = http_date(text)
    assert moment is None or moment.tzinfo is not None


@given(words)
def test_pushback_never_raises(text: str) -> None:
    said = pushback(text)
    assert said is None or (math.isfinite(said) and said >= 0)
